"""A hundred fits in one process: memory, threads and handles stay where they were."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import _thread, os, sys, threading, time
import numpy as np
from sklearn.pipeline import make_pipeline
from skcalib import BertEncoder, BiEncoder, NormalizingFlow, Whitening

folder, model, *texts = sys.argv[1:]
pairs = np.array([(a, b) for a in texts for b in texts[:4]])

def fit(i):
    calibrator = NormalizingFlow(random_state=i) if i % 2 else Whitening(shrinkage="auto")
    encoder = BertEncoder(model, layers=i % 3, memory=folder if i % 3 else None)
    BiEncoder(make_pipeline(encoder, calibrator)).fit(pairs).predict(pairs)

def state():
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return resident, n_threads(), len(os.listdir("/proc/self/fd"))

def n_threads():
    # Not `threading.active_count`: of threads that `_thread` starts it counts dead ones too,
    # which may be more or fewer. One whose work is done may take a moment to end.
    for _ in range(6000):
        alive = [t for t in threading.enumerate() if not isinstance(t, threading._DummyThread)]
        if _thread._count() == len(alive) - 1:
            return len(alive)
        time.sleep(0.01)
    raise AssertionError("a thread does not end")

for i in range(20):
    fit(i)
before = state()
for i in range(100):
    fit(i)
after = state()
assert after[0] - before[0] < 50, (before, after)
assert after[1:] == before[1:], (before, after)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc here")
def test_a_hundred_fits_leave_memory_threads_and_handles_as_they_were(
    tiny_bert, texts, tmp_path
):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), tiny_bert, *texts]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
