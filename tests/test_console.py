"""The command in consoles that are not the usual ones, and interrupted.

Each test starts an interpreter, which imports all that the command needs: 3 to 8 s.
"""

import os
import subprocess
import sys

import pytest

OPTIONS = ["evaluate", "--tasks", "toy", "--calibrators", "raw"]
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and redirections of POSIX")


def run(*options, redirected="", **environment):
    """Run the command by a shell; return its exit status and what it wrote."""
    command = [sys.executable, "-m", "skcalib", *OPTIONS, *options]
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirected}', "sh", *command],
        capture_output=True,
        env={**os.environ, **environment},
        timeout=300,
    )


def test_closed_streams_are_no_error(tiny_bert):
    assert run("--model", str(tiny_bert), redirected=">&- 2>&-").returncode == 0


def test_a_console_that_cannot_show_a_text_shows_its_escape():
    done = run("--model", "größe", PYTHONIOENCODING="ascii:strict", PYTHONUTF8="0")
    assert done.returncode == 2
    assert b"gr\\xf6\\xdfe" in done.stderr


def test_ctrl_c_ends_the_command_without_a_traceback(tmp_path):
    code = """
import os, signal, sys, skcalib, skcalib.__main__
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may run where it is ignored

def stop(*_):
    os.kill(os.getpid(), signal.SIGINT)
    raise ValueError("went on")

skcalib.BertEncoder.fit = stop
sys.exit(skcalib.__main__.main())
"""
    options = ["calibrate", "none", "toy", "--output", str(tmp_path / "o")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *options],
        capture_output=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=300,
    )
    assert done.returncode == 130
    assert done.stderr.splitlines() == [b"interrupted"]
    assert not [path for path in tmp_path.iterdir() if path.name[:2] in ("sk", ".o")]
