"""The command in consoles and under signals that are not the usual ones."""

import os
import signal
import subprocess
import sys

import pytest

COMMAND = [
    sys.executable,
    "-m",
    "skcalib",
    "evaluate",
    "--tasks",
    "toy",
    "--calibrators",
    "raw",
]
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and redirections of POSIX")


def run(*options, redirected="", **environment):
    """Run the command by a shell; return its exit status and what it wrote."""
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirected}', "sh", *COMMAND, *options],
        capture_output=True,
        env={**os.environ, **environment},
        timeout=300,
    )


@pytest.mark.parametrize("redirected", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_is_no_error(redirected, tiny_bert):
    done = run("--model", str(tiny_bert), redirected=redirected)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)


def test_a_console_that_cannot_show_a_text_shows_its_escape():
    done = run("--model", "größe", PYTHONIOENCODING="ascii:strict", PYTHONUTF8="0")
    assert done.returncode == 2
    assert b"gr\\xf6\\xdfe" in done.stderr


@pytest.mark.parametrize(
    ("name", "status"), [("SIGHUP", 129), ("SIGTERM", 143), ("SIGINT", 130)]
)
def test_a_signal_ends_in_an_exit_that_leaves_nothing(name, status, tiny_bert, tmp_path):
    code = (
        "import os, signal, sys, skcalib.__main__ as m\n"
        "import skcalib.evaluation as e\n"
        f"e.evaluate_sts = lambda *a, **k: os.kill(os.getpid(), signal.{name})\n"
        "sys.exit(m.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *COMMAND[3:], "--model", str(tiny_bert)],
        capture_output=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=300,
    )
    assert done.returncode == status
    assert b"Traceback" not in done.stderr
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("skcalib")]
    assert signal.Signals[name]


@pytest.mark.parametrize("package", ["numpy", "sklearn", "pandas", "skcalib._texts"])
@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGHUP", 129)])
def test_a_signal_during_the_imports_ends_the_command_at_once(package, name, status, tmp_path):
    # As the script that pip installs does; and the package swallows what the signal raises.
    code = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, found, *_):\n"
        f"        if found == {package!r}:\n"
        "            try:\n"
        f"                os.kill(os.getpid(), signal.{name})\n"
        "            except BaseException:\n"
        "                pass\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from skcalib.__main__ import main\n"
        "sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "evaluate", "--tasks", "toy", "--model", "none"],
        capture_output=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=300,
    )
    assert (done.returncode, done.stdout, done.stderr) == (status, b"", b"")
    assert not [*tmp_path.iterdir()]


def test_nohup_holds():
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "import skcalib.__main__ as m\n"
        "import skcalib.evaluation._command as c\n"
        "c.run = lambda options: os.kill(os.getpid(), signal.SIGHUP)\n"
        "sys.exit(m.main())"
    )
    done = subprocess.run([sys.executable, "-c", code, *COMMAND[3:], "--model", "none"])
    assert done.returncode == 0
