"""Two hundred fits in one process, and the memory of odd texts.

Run by hand::

    pip install -c constraints.txt '.[demo]' psutil
    python benchmarks/long_run.py fits
    python benchmarks/long_run.py texts

``fits`` prints resident memory, threads and file handles every 20 fits of a pipeline of all
estimators with one store of vectors. (Stores and spectra stay in memory as well, up to 256 MB
of vectors a process: many stores would fill that first.) ``texts`` prints the peak
of resident memory, above that of a process that has encoded one text, for each kind of input,
each in a process of its own.
"""

import os
import subprocess
import sys
import tempfile
import time
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import psutil
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, BiEncoder, NormalizingFlow, Whitening
from skcalib.datasets import load_toy_sts, minilm_path

KINDS = {
    "1,000,000 texts of three words": lambda: [f"{i} dogs bark" for i in range(1_000_000)],
    "1,000,000 texts, ten different": lambda: [f"{i % 10} dogs bark" for i in range(1_000_000)],
    "100,000 texts of one character": lambda: [chr(i) for i in range(100_000)],
    "one text of 10 MB, words": lambda: ["dog and cat " * (10 * 2**20 // 12)],
    "one text of 10 MB, one word": lambda: ["x" * (10 * 2**20)],
    "one text of 10 MB, Chinese": lambda: ["中" * (10 * 2**20 // 3)],
    "one hundred texts of 1 MB": lambda: [f"{i} " + "dog " * 2**18 for i in range(100)],
}


def fits():
    pairs, grades = load_toy_sts(return_X_y=True)
    process = psutil.Process()
    print("fits  resident MB  threads  handles")
    folder = tempfile.mkdtemp()
    for i in range(201):
        calibrator = NormalizingFlow(random_state=i) if i % 2 else Whitening(shrinkage="auto")
        memory = folder if i % 4 else None  # every fourth time the model runs
        encoder = BertEncoder(minilm_path(), layers=i % 3, memory=memory)
        BiEncoder(make_pipeline(encoder, calibrator)).fit(pairs).score(pairs, grades)
        if i % 20 == 0:
            resident = process.memory_info().rss / 2**20
            print(f"{i:4}  {resident:11.0f}  {process.num_threads():7}  {process.num_fds():7}")


def texts():
    for kind in KINDS:
        subprocess.run([sys.executable, __file__, kind], check=True)


def one(kind):
    import resource

    warnings.filterwarnings("ignore", message=".*cut off")
    encoder = BertEncoder(minilm_path(), layers=0).fit(["dog"])
    encoder.transform(["dog"])
    texts = KINDS[kind]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    started = time.monotonic()
    vectors = encoder.transform(texts)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    assert np.isfinite(vectors).all()
    print(
        f"{kind}: {peak:.0f} MB, of which {vectors.nbytes / 2**20:.0f} MB are the result, "
        f"{time.monotonic() - started:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    {"fits": fits, "texts": texts}.get(sys.argv[1], lambda: one(sys.argv[1]))()
