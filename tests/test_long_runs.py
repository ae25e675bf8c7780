"""A hundred fits in one process: memory, threads and handles stay where they were."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, sys, threading
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
    return resident, threading.active_count(), len(os.listdir("/proc/self/fd"))

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
