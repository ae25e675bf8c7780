"""Compare time, memory and accuracy of Whitening with other whitenings of sentence vectors.

All contenders get the same float32 rows and keep ``--kept`` dimensions:

- ``skcalib``: ``Whitening``
- ``sklearn-f32``, ``sklearn-f64``: ``PCA(whiten=True, svd_solver="covariance_eigh")`` on the
  rows as they are, and on a float64 copy, whose creation counts
- ``full``: the same with ``svd_solver="full"``
- ``incremental``: ``IncrementalPCA(whiten=True)``
- ``faiss``: ``PCAMatrix(eigen_power=-0.5)``, where faiss is installed
- ``numpy``: ``numpy.cov`` of a float64 copy and ``numpy.linalg.svd``

Each round times all contenders one after the other. Times are compared within a round, so that
a slow minute affects all of them. The output has medians of the ratios, with quartiles. Peak
memory is measured in a separate process, as the difference to the same process without the fit;
its rows are a memmap, whose pages do not count. Accuracy is ``max |W'ΣW - I|`` on a harder
sample, where Σ is a float64 covariance. The mean of that sample is 100 times its spread, and
its eigenvalues span eight decades::

    python benchmarks/whitening.py --rows 100000 --features 768 --rounds 5
    python benchmarks/whitening.py --rows 1000000 --memmap --rounds 2 \
        --contenders skcalib sklearn-f32 faiss
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
from sklearn.decomposition import PCA, IncrementalPCA

from skcalib import Whitening
from skcalib.calibration.whitening import recent


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


class Float64(PCA):
    """PCA of a float64 copy."""

    def fit(self, X, y=None):
        return super().fit(X.astype(np.float64), y)


MAKERS = {
    "skcalib": lambda k: Whitening(k),
    "sklearn-f32": lambda k: PCA(k, whiten=True, svd_solver="covariance_eigh"),
    "sklearn-f64": lambda k: Float64(k, whiten=True, svd_solver="covariance_eigh"),
    "full": lambda k: PCA(k, whiten=True, svd_solver="full"),
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
    if path is None:
        return rows
    rows.flush()
    return np.load(path, mmap_mode="r")


def seconds(function, X):
    recent._fits.clear()  # otherwise a second fit of the same rows comes from memory
    start = time.perf_counter()
    function(X)
    return time.perf_counter() - start


def compare(times):
    """Yield median seconds, and median and quartiles of the ratio to skcalib."""
    ours = np.array(times["skcalib"])
    for name, values in times.items():
        low, middle, high = np.percentile(np.array(values) / ours, [25, 50, 75])
        yield name, np.median(values), f"{middle:.2f} ({low:.2f}-{high:.2f})"


def peak_memory(name, path, kept):
    """Megabytes of anonymous memory at the peak of a fit, above those before it."""
    code = f"""
import sys, threading, time
sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
import numpy as np
import whitening
def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) / 1024
X = np.load({path!r}, mmap_mode="r")
whitening.MAKERS[{name!r}](8).fit(X[:4000])  # starts libraries and threads
before = peak = anonymous()
done = False
def watch():
    global peak
    while not done:
        peak = max(peak, anonymous())
        time.sleep(0.002)
thread = threading.Thread(target=watch)
thread.start()
whitening.MAKERS[{name!r}]({kept}).fit(X)
done = True
thread.join()
print(peak - before)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return float(run.stdout) if run.returncode == 0 else float("nan")


def inaccuracy(name, rows, kept):
    """Largest entry of ``W'ΣW - I``, with the W of the fitted model."""
    X = rows.astype(np.float64)
    covariance = np.cov(X, rowvar=False)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        model = MAKERS[name](kept).fit(rows)
        if name == "faiss":
            import faiss

            W = faiss.vector_to_array(model.matrix.A).reshape(-1, rows.shape[1])[:kept].T
        elif name == "skcalib":
            W = model._linear_map.projection
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
    parser.add_argument("--skip", nargs="*", default=[], choices=["memory", "accuracy"])
    args = parser.parse_args()
    names = ["skcalib", *(name for name in args.contenders if name != "skcalib")]

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.npy")
        X = make_rows(args.rows, args.features, path)
        X = X if args.memmap else np.array(X)
        fits, transforms = ({name: [] for name in names} for _ in range(2))
        for name in names:
            MAKERS[name](8).fit(X[:4000])
        for _ in range(args.rounds):
            models = {}
            for name in names:
                models[name] = MAKERS[name](args.kept)
                fits[name].append(seconds(models[name].fit, X))
            for name in names:
                transforms[name].append(seconds(models[name].transform, X[:100_000]))
        for title, times in (("fit", fits), ("transform of 100k", transforms)):
            print(f"\n{title}, {args.rows} x {args.features}, {args.rounds} rounds")
            print(f"{'':<14}{'seconds':>9}  ratio to skcalib (quartiles)")
            for name, middle, ratio in compare(times):
                print(f"{name:<14}{middle:>9.3f}  {ratio}")
        if "memory" not in args.skip:
            print("\npeak memory of fit above the rows, MB")
            for name in names:
                print(f"{name:<14}{peak_memory(name, path, args.kept):>9.0f}")
    if "accuracy" not in args.skip:
        print(f"\nmax |W'ΣW - I|, hard sample of 50k rows, k = {args.kept} / {args.features}")
        rows = make_rows(50_000, args.features, hard=True)
        for name in names:
            errors = (inaccuracy(name, rows, k) for k in (args.kept, args.features))
            print(f"{name:<14}" + " / ".join(f"{error:.0e}" for error in errors))


if __name__ == "__main__":
    main()
