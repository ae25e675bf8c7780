"""Compare time, memory and accuracy of Whitening with other whitenings of sentence vectors.

All contenders get the same float32 rows and keep ``--kept`` dimensions:

- ``skcalib``: ``Whitening``
- ``sklearn``: ``PCA(whiten=True, svd_solver="covariance_eigh")``
- ``incremental``: ``IncrementalPCA(whiten=True)``
- ``faiss``: ``PCAMatrix(eigen_power=-0.5)``, where faiss is installed
- ``numpy``: ``numpy.cov`` of a float64 copy and ``numpy.linalg.svd``

Peak memory is measured in a separate process, above that of the same process without the fit;
its rows are a memmap, whose pages do not count. Accuracy is ``max |W'ΣW - I|`` on a harder
sample, with W from the images of the axes and Σ a float64 covariance. The mean of that sample
is 100 times its spread, and its eigenvalues span eight decades::

    python benchmarks/whitening.py --rows 100000 --features 768 --rounds 5
    python benchmarks/whitening.py --rows 1000000 --memmap --rounds 2 \
        --contenders skcalib sklearn faiss
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import warnings

import numpy as np
from sklearn.decomposition import PCA, IncrementalPCA
from turns import report, turns

from skcalib import Whitening


class Numpy:
    """Covariance and SVD of a float64 copy."""

    def __init__(self, kept):
        self.kept = kept

    def fit(self, X):
        X = X.astype(np.float64)
        self.mean_ = X.mean(axis=0)
        u, s, _ = np.linalg.svd(np.cov(X, rowvar=False))
        self.W = (u / np.sqrt(s))[:, : self.kept]
        return self

    def transform(self, X):
        return (X - self.mean_) @ self.W


class Faiss:
    """PCAMatrix trained on all rows."""

    def __init__(self, kept):
        self.kept = kept

    def fit(self, X):
        import faiss

        self.matrix = faiss.PCAMatrix(X.shape[1], self.kept, -0.5)
        self.matrix.max_points_per_d = 2**31 - 1  # all rows, not a sample of them
        self.matrix.train(np.ascontiguousarray(X))
        return self

    def transform(self, X):
        return self.matrix.apply(np.ascontiguousarray(X))


MAKERS = {
    "skcalib": lambda k: Whitening(k),
    "sklearn": lambda k: PCA(k, whiten=True, svd_solver="covariance_eigh"),
    "incremental": lambda k: IncrementalPCA(k, whiten=True, batch_size=5000),
    "faiss": Faiss,
    "numpy": Numpy,
}


def make_rows(n, d, path=None, *, hard=False):
    """Float32 rows with an easy spectrum and a mean as large as the spread, or a hard one."""
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
    spread = 10.0 ** np.linspace(0, -4 if hard else -1, d)
    mix = (spread[:, None] * rotation).astype(np.float32)
    rows = np.empty((n, d), dtype=np.float32)
    if path is not None:
        rows = np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
    for start in range(0, n, 20_000):
        part = rows[start : start + 20_000]
        part[:] = rng.standard_normal(part.shape, dtype=np.float32) @ mix
        part += 100 if hard else 0.3
    return rows


def anonymous():
    """Megabytes of this process that no file backs."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) / 1024


def print_peak(name, path, kept):
    """Print the megabytes at the peak of a fit, above those before it."""
    X, done, peaks = np.load(path, mmap_mode="r"), threading.Event(), []
    MAKERS[name](8).fit(X[:4000])  # starts libraries and threads
    before = anonymous()

    def watch():
        while not done.wait(0.002):
            peaks.append(anonymous())

    thread = threading.Thread(target=watch)
    thread.start()
    MAKERS[name](kept).fit(X)
    done.set()
    thread.join()
    print(max(peaks, default=before) - before)


def inaccuracy(name, rows, kept):
    """Largest entry of ``W'ΣW - I``, with the W of the fitted model."""
    covariance, d = np.cov(rows.astype(np.float64), rowvar=False), rows.shape[1]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        model = MAKERS[name](kept).fit(rows)
        if name == "faiss":
            import faiss

            W = faiss.vector_to_array(model.matrix.A).reshape(-1, d)[:kept].T
        elif name == "numpy":
            W = model.W
        else:
            W = model.components_.T / np.sqrt(model.explained_variance_)
        W = W.astype(np.float64)
        return np.abs(W.T @ covariance @ W - np.eye(W.shape[1])).max()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=768)
    parser.add_argument("--kept", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memmap", action="store_true")
    parser.add_argument("--contenders", nargs="+", default=list(MAKERS), choices=MAKERS)
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)  # of a process of its own
    options = parser.parse_args()
    if options.peak:
        print_peak(*options.peak, options.kept)
        return
    names = ["skcalib", *(name for name in options.contenders if name != "skcalib")]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.npy")
        X = make_rows(options.rows, options.features, path)
        X = X if options.memmap else np.array(X)
        models = {}

        def given(turn):
            X[0, 0] += 1  # else a second fit of the same rows comes from memory
            return X

        def fit(name):
            return lambda X: models.update({name: MAKERS[name](options.kept).fit(X)})

        def transform(name):
            return lambda X: models[name].transform(X[:100_000])

        title = f"{options.rows} x {options.features}"
        fits = turns({name: fit(name) for name in names}, options.rounds, given)
        report(f"fit, {title}", fits, "skcalib")
        mapped = turns({name: transform(name) for name in names}, options.rounds, given)
        report(f"transform of 100k, {title}", mapped, "skcalib")
        print("\n| peak memory of fit above the rows | MB |\n|---|---|")
        for name in names:
            call = [sys.executable, __file__, "--kept", str(options.kept), "--peak", name, path]
            run = subprocess.run(call, capture_output=True, text=True)
            print(f"| {name} | {float(run.stdout or 'nan'):.0f} |")
    print("\n| max of W'ΣW - I | all kept but a third | all |\n|---|---|---|")
    rows = make_rows(50_000, options.features, hard=True)
    for name in names:
        errors = (inaccuracy(name, rows, k) for k in (options.kept, options.features))
        print(f"| {name} | {' | '.join(f'{error:.0e}' for error in errors)} |", flush=True)


if __name__ == "__main__":
    main()
