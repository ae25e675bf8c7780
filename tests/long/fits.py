"""Fit two hundred times in one process, and encode odd texts, with an eye on memory.

Run by hand, with the extra `demo` and psutil::

    python tests/long/fits.py fits
    python tests/long/fits.py texts

``fits`` prints memory, threads and file handles every 20 fits of a pipeline of all estimators
with one store of vectors. ``texts`` prints for each kind of input the peak of memory above that
of a process that has encoded one text, and that of the result, each in a process of its own.
"""

import os
import resource
import subprocess
import sys
import tempfile
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
    "one hundred texts of 1 MB": lambda: [f"{i} " + "dog " * 2**18 for i in range(100)],
}


def fits():
    pairs, grades = load_toy_sts(return_X_y=True)
    process, folder = psutil.Process(), tempfile.mkdtemp()
    print("fits  resident MB  threads  handles")
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


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # MB


def one(kind):
    warnings.filterwarnings("ignore", message=".*cut off")
    encoder = BertEncoder(minilm_path(), layers=0).fit(["dog"])
    encoder.transform(["dog"])
    texts, before = KINDS[kind](), peak()
    vectors = encoder.transform(texts)
    assert np.isfinite(vectors).all()
    print(f"{kind}: {peak() - before:.0f} MB, of which {vectors.nbytes / 2**20:.0f} MB result")


if __name__ == "__main__":
    {"fits": fits, "texts": texts}.get(sys.argv[1], lambda: one(sys.argv[1]))()
