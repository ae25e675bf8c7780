"""The command in consoles that are not the usual ones, and interrupted."""

import io
import os
import subprocess
import sys

import pytest

from skcalib.__main__ import main

# These start an interpreter, which imports all that the command needs but torch: some 3 s.
of_posix = pytest.mark.skipif(os.name == "nt", reason="signals and redirections of POSIX")


@of_posix
def test_closed_streams_are_no_error(tmp_path):
    code = """
import sys, numpy as np, skcalib, skcalib.__main__, skcalib.cli.compare as command
assert sys.stdout is sys.stderr is None
letters = lambda texts: np.array([[text.count(c) + 0.1 for c in "aeinst"] for text in texts])
encoder = skcalib.TextEncoder(letters, name="letters")
command.encoder_of = lambda options, **params: encoder
sys.exit(skcalib.__main__.main())
"""
    texts = tmp_path / "texts"
    rows = ["tin star", "nine notes", "as it is", "an inn"] * 60
    texts.write_text("\n".join(f"{row} {i} inside" for i, row in enumerate(rows)))
    (tmp_path / "labels").write_text("\n".join(rows))
    options = [str(texts), "--labels", str(tmp_path / "labels")]
    command = [sys.executable, "-c", code, "compare", "none", *options]
    closed = ["sh", "-c", '"$@" >&- 2>&-', "sh", *command]
    assert subprocess.run(closed, timeout=300).returncode == 0


def test_a_console_that_cannot_show_a_text_shows_its_escape(monkeypatch):
    shown = {name: io.TextIOWrapper(io.BytesIO(), "ascii") for name in ("stdout", "stderr")}
    for name, stream in shown.items():
        monkeypatch.setattr(f"sys.{name}", stream)
    monkeypatch.setattr("sys.argv", ["skcalib", "compare", "minilm", "größe"])
    assert main() == 2
    shown["stderr"].seek(0)
    assert "gr\\xf6\\xdfe" in shown["stderr"].read()


@of_posix
@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("SIGINT", 130),
        ("SIGTERM", 143),
    ],
)
def test_a_signal_ends_the_command_without_a_traceback_or_files(name, status, tmp_path):
    code = f"""
import os, signal, sys, skcalib, skcalib.__main__
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may run where it is ignored
signal.signal(signal.SIGTERM, signal.SIG_DFL)

def stop(*_):
    os.kill(os.getpid(), signal.{name})
    raise ValueError("went on")

skcalib.BertEncoder.fit = stop
sys.exit(skcalib.__main__.main())
"""
    (tmp_path / "texts").write_text(
        "\n".join(" ".join(f"{i}.{j}" for j in range(20)) for i in range(60))
    )
    options = ["compare", "none", str(tmp_path / "texts"), "--save", str(tmp_path / "o")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *options],
        capture_output=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=300,
    )
    assert done.returncode == status
    assert done.stderr.splitlines() == ([b"interrupted"] if name == "SIGINT" else [])
    assert not [path for path in tmp_path.iterdir() if path.name[:2] in ("sk", ".o", "o")]
