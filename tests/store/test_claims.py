"""Claims: one worker at a time, in whatever thread or process, and never a deadlock."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from filelock import Timeout

from skcalib._store import claims
from skcalib._store.claims import claim_one, hold, share_out


@pytest.mark.parametrize("n", [0, 1, 3, 100, 3000, 100_000])
def test_each_text_is_in_one_share_and_its_file_too(tmp_path, n):
    hashes = np.random.default_rng(n).integers(2**32, size=n)
    shares = share_out(tmp_path, hashes.tolist())
    positions = [i for share in shares for i in share.positions]
    assert sorted(positions) == list(range(n))
    files = [file for share in shares for file in share.lock_files]
    assert len(set(files)) == len(files) <= claims.N_FILES
    assert all(share.lock_files == sorted(share.lock_files) for share in shares)
    # Full batches, but for the last, and as many shares as there are texts for.
    assert len(shares) == min(claims.N_FILES, -(-n // claims.TEXTS))
    assert all(len(share.positions) > 0 for share in shares)


def test_the_same_text_has_the_same_file_in_any_company(tmp_path):
    hashes = np.random.default_rng(0).integers(2**32, size=5000).tolist()
    file_of = {}
    for part in (hashes, hashes[::-1], hashes[:1000], hashes[4000:4001]):
        for share in share_out(tmp_path, part):
            for i in share.positions:
                (one,) = share_out(tmp_path, [part[i]])
                (file,) = one.lock_files
                assert file in share.lock_files
                assert file_of.setdefault(part[i], file) == file


def test_what_another_thread_has_claimed_comes_last(tmp_path):
    shares = share_out(tmp_path, list(range(3000)))
    assert len(shares) > 2
    others, order = list(shares), []
    with claim_one(others) as first:
        thread = threading.Thread(target=work, args=(list(shares), order))
        thread.start()
        while len(order) < len(shares) - 1:
            thread.join(0.01)
        assert thread.is_alive()
    thread.join()
    assert order[-1] == first.lock_files
    assert len(others) == len(shares) - 1


def work(shares, order):
    while shares:
        with claim_one(shares) as share:
            order.append(share.lock_files)


def test_threads_that_claim_all_shares_of_different_texts_come_to_an_end(tmp_path):
    """Shares that overlap in part, none of which may be waited for in a circle."""
    rng = np.random.default_rng(0)
    inside, wrong = dict.fromkeys(range(claims.N_FILES), 0), []

    def work(hashes):
        shares = share_out(tmp_path, hashes)
        while shares:
            with claim_one(shares) as share:
                for file in share.lock_files:
                    number = int(file.stem[-2:])
                    inside[number] += 1
                    wrong.append(inside[number] != 1)
                time.sleep(0.001)
                for file in share.lock_files:
                    inside[int(file.stem[-2:])] -= 1

    threads = [
        threading.Thread(target=work, args=(rng.integers(2**32, size=size).tolist(),))
        for size in (600, 1000, 2000, 3000)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=600)
        assert not thread.is_alive()
    assert wrong
    assert not any(wrong)


def test_locks_hold_between_processes_and_end_with_them(tmp_path):
    code = (
        "import pathlib, sys; from skcalib._store.claims import hold;"
        "context = hold([pathlib.Path(sys.argv[1])], timeout=0); context.__enter__();"
        "print('held', flush=True); sys.stdin.read()"
    )
    path = tmp_path / "lock"
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(Timeout),
            hold([tmp_path / "another", path], timeout=0),
        ):
            pass
        with hold([tmp_path / "another"], timeout=0):  # nothing is kept of the attempt
            pass
        other.kill()
        other.wait(timeout=60)
        with hold([path], timeout=60):
            pass


def test_locks_that_cannot_be_made_are_left_out(tmp_path):
    with hold([tmp_path], timeout=0):  # a folder
        pass
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    with hold([link], timeout=0):
        pass
    assert not (tmp_path / "elsewhere").exists()
