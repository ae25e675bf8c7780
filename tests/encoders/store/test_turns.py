"""The store's database: one worker at a time, never a deadlock, and no trust in its SQL."""

import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from skcalib.encoders.store import connect, turn


def test_no_sql_of_the_file_may_call_a_function_of_this_process(tmp_path):
    with closing(connect(tmp_path / "file")) as db:
        assert db.execute("PRAGMA trusted_schema").fetchone() == (0,)


def test_threads_take_turns(tmp_path):
    inside, most = [], []

    def work():
        for _ in range(5):
            with turn(tmp_path), turn(tmp_path):  # a thread may nest it
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.001)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert most == [1] * 20


def test_a_turn_ends_with_its_process_and_who_waits_is_told(tmp_path):
    code = (
        "import pathlib, sys; from skcalib.encoders.store import turn;"
        "context = turn(pathlib.Path(sys.argv[1])); context.__enter__();"
        "print('held', flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], **pipes) as other:
        assert other.stdout.readline() == "held\n"
        threading.Timer(11, other.kill).start()  # after the ten seconds without a warning
        with pytest.warns(UserWarning, match="waits for its turn"), turn(tmp_path):
            assert other.wait(timeout=60) != 0
