"""Three ways to fit a whitening on parts of the texts, on several processes or machines.

Run by hand::

    pip install -c constraints.txt '.[demo,dask]' ray
    python benchmarks/cluster.py [--rows 200000] [--texts 1500]

Each way encodes and fits a part where it lies, and merges the parts; vectors do not travel. It
prints vectors and texts a second, and checks that the result is that of one fit. Ray is left
out where it is not installed.
"""

import argparse
import functools
import time

import joblib
import numpy as np
from sklearn.preprocessing import FunctionTransformer

from skcalib import BertEncoder, Whitening
from skcalib.datasets import load_docstrings


# Processes of joblib, which may lie on many machines with its backends for dask and Ray.
def fit_part(encoder, part):
    return Whitening(power="auto").partial_fit(encoder.transform(part))


def by_joblib(encoder, parts):
    first, *others = joblib.Parallel(n_jobs=2)(
        joblib.delayed(fit_part)(encoder, part) for part in parts
    )
    return first.merge(*others)


# An array of dask, on the cluster of the client at hand.
def by_dask(encoder, parts):
    import dask.array as da
    from dask import delayed

    width, dtype = encoder.transform(parts[0][:1]).shape[1], np.float32
    encode = delayed(encoder.transform)
    blocks = [da.from_delayed(encode(part), (len(part), width), dtype) for part in parts]
    return Whitening(power="auto").fit(da.concatenate(blocks))


# Actors of Ray, each of which loads the model once.
def by_ray(encoder, parts):
    import ray

    @ray.remote
    class Worker:
        def fit(self, encoder, part):
            return Whitening(power="auto").partial_fit(encoder.transform(part))

    encoder, workers = ray.put(encoder), [Worker.remote() for _ in range(2)]
    fits = [workers[i % 2].fit.remote(encoder, part) for i, part in enumerate(parts)]
    return functools.reduce(lambda one, other: one.merge(other), map(ray.get, fits))


# The end of the ways.
def measure(name, fit, vectors, encoder, texts):
    """Print the speed of a way on vectors and on texts, with the workers warm."""
    identity = FunctionTransformer()
    fit(identity, np.array_split(vectors[:100], 2))
    fit(encoder, [texts[:2], texts[2:4]])
    begin = time.perf_counter()
    merged = fit(identity, np.array_split(vectors, 8))
    middle = time.perf_counter()
    fit(encoder, [list(part) for part in np.array_split(np.array(texts, object), 8)])
    end = time.perf_counter()
    rows, n_texts = len(vectors) / (middle - begin), len(texts) / (end - middle)
    whole = Whitening(power="auto").fit(vectors)
    np.testing.assert_allclose(
        merged.transform(vectors[:9]), whole.transform(vectors[:9]), atol=1e-5
    )
    print(f"{name:8} {rows:12,.0f} vectors/s {n_texts:8,.0f} texts/s")


def main():
    """Measure each way."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--texts", type=int, default=1500)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(options.rows, 384)).astype(np.float32) + 1
    texts = load_docstrings().data[: options.texts]
    encoder = BertEncoder("minilm").fit(texts)
    measure("joblib", by_joblib, vectors, encoder, texts)
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1) as cluster, Client(cluster):
        measure("dask", by_dask, vectors, encoder, texts)
    try:
        import ray
    except ImportError:
        return
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    measure("Ray", by_ray, vectors, encoder, texts)


if __name__ == "__main__":
    main()
