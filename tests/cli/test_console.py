"""The command: as a module of Python, and interrupted."""

import subprocess
import sys

from skcalib import BertEncoder, __version__
from skcalib.__main__ import main


def test_ctrl_c_ends_the_command_without_a_traceback_or_files(tmp_path, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(BertEncoder, "fit", stop)
    texts = tmp_path / "texts"
    texts.write_text("\n".join(" ".join(f"{i}.{j}" for j in range(20)) for i in range(60)))
    assert main(["compare", "none", str(texts), "--save", str(tmp_path / "o")]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert [*tmp_path.iterdir()] == [texts]


def test_it_runs_as_a_module():
    command = [sys.executable, "-m", "skcalib", "--version"]
    shown = subprocess.check_output(command, text=True)
    assert shown == f"skcalib {__version__}\n"
