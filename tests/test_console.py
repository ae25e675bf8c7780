"""The command in consoles and under signals that are not the usual ones.

Each test starts an interpreter, which imports all that the command needs: 3 to 8 s.
"""

import json
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


@pytest.mark.parametrize("redirected", [">&-", "2>&-"])
def test_a_closed_stream_is_no_error(redirected, tiny_bert):
    done = run("--model", str(tiny_bert), redirected=redirected)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)


def test_a_console_that_cannot_show_a_text_shows_its_escape():
    done = run("--model", "größe", PYTHONIOENCODING="ascii:strict", PYTHONUTF8="0")
    assert done.returncode == 2
    assert b"gr\\xf6\\xdfe" in done.stderr


# The tests may run where a signal is ignored, such as SIGHUP under nohup and SIGINT in the
# background of a script, and processes inherit that.
AS_IN_A_TERMINAL = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
for name in "SIGHUP", "SIGTERM":
    signal.signal(getattr(signal, name), signal.SIG_DFL)
"""


def ends(code, folder):
    """Exit statuses of forks, which code prints, and what all wrote; none leaves a folder."""
    code = AS_IN_A_TERMINAL + code
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *OPTIONS, "--model", "none"],
        capture_output=True,
        env={**os.environ, "TMPDIR": str(folder)},
        timeout=300,
    )
    *written, statuses = done.stdout.splitlines()
    assert not [path for path in folder.iterdir() if path.name.startswith(("skcalib", ".o"))]
    return json.loads(statuses), [*written, *done.stderr.splitlines()]


def test_a_signal_ends_in_an_exit_that_leaves_nothing(tmp_path):
    code = """
import json, os, signal, sys, skcalib, skcalib.__main__

def stop(*_):
    print(*{path[:3] for path in os.listdir(home)} & {"skc", ".o-"}, flush=True)
    os.kill(os.getpid(), getattr(signal, name))
    raise ValueError("went on")

skcalib.BertEncoder.fit, statuses, home = stop, [], os.environ["TMPDIR"]
calibrate = ["", "calibrate", "none", "toy", "--output", home + "/o"]
for name, held in ("SIGHUP", False), ("SIGTERM", False), ("SIGINT", False), ("SIGHUP", True):
    for options in sys.argv, calibrate:
        if not (child := os.fork()):
            if held:  # by nohup
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
            sys.argv = options
            sys.exit(skcalib.__main__.main())
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(statuses))
"""
    statuses, written = ends(code, tmp_path)
    assert statuses == [129, 129, 143, 143, 130, 130, 2, 2]
    begun = [b"skc", b".o-"] * 4  # folders for vectors, and for what will be the output
    assert written == [*begun, *[b"interrupted"] * 2, *[b"error: went on"] * 2]


def test_a_signal_during_the_imports_ends_the_command_at_once(tmp_path):
    # As the script that pip installs does; and the package swallows what the signal raises.
    code = """
import json, os, signal, sys

statuses = {}
class Finder:
    def find_spec(self, found, *_):
        if found not in ("numpy", "sklearn", "pandas", "skcalib.metrics") or found in statuses:
            return
        statuses[found] = []
        for number in (signal.SIGINT, signal.SIGHUP):
            if not (child := os.fork()):
                try:
                    os.kill(os.getpid(), number)
                except BaseException:
                    pass
                return  # to go on
            status = os.waitpid(child, 0)[1]
            statuses[found].append(os.waitstatus_to_exitcode(status))
        if len(statuses) == 4:
            print(json.dumps(statuses), flush=True)
            os._exit(0)

sys.meta_path.insert(0, Finder())
from skcalib.__main__ import main
main()
"""
    statuses, written = ends(code, tmp_path)
    packages = "numpy", "sklearn", "pandas", "skcalib.metrics"
    assert statuses == {package: [130, 129] for package in packages}
    assert [written, *tmp_path.iterdir()] == [[]]
