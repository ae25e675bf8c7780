"""Check skcalib on a GPU, time it, and print a report to paste.

No GPU has run skcalib so far. On a machine that has one, this takes some minutes::

    python benchmarks/accept_gpu.py

It compares results with those of the CPU, and checks precision, determinism, behavior when
memory runs out, threads, forks and, where there are two, a second GPU. Then it times the flow,
the encoder and whitening. The encoder is MiniLM of the ``demo`` extra, or ``--model FOLDER``.
The exit status is the number of checks that failed.
"""

import argparse
import contextlib
import multiprocessing
import os
import pickle
import platform
import sys
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial

os.environ["SCIPY_ARRAY_API"] = "1"  # scipy reads it at import

import numpy as np
import torch
from turns import report, turns

from skcalib import BertEncoder, NormalizingFlow
from skcalib.datasets import load_toy_sts, minilm_path

POWERS = 1.0, "auto"
DEVICES = {"GPU": "cuda", "CPU": "cpu"}
POOLINGS = ("cls", "mean", "max", "mean_own", "zipf")


def rows(n, d, dtype=np.float64):
    rng = np.random.RandomState(0)
    X = rng.normal(size=(n, d))
    X[:, d // 2 :] += X[:, : d - d // 2] ** 2
    return X.astype(dtype)


def fit(X, device="cuda", **settings):
    settings = {"max_epochs": 2, "random_state": 0, **settings}
    return NormalizingFlow(device=device, **settings).fit(X)


def difference(actual, expected):
    return float(np.abs(np.asarray(actual) - expected).max())


def flow_is_the_cpus():  # each check returns the text that the report shows
    X, worst = rows(1200, 12), 0.0
    for power in POWERS:
        gpu, cpu = fit(X, power=power), fit(X, "cpu", power=power)
        Z = cpu.transform(X)
        worst = max(worst, difference(gpu.transform(X), Z))
        worst = max(worst, difference(gpu.inverse_transform(Z), cpu.inverse_transform(Z)))
        loaded = pickle.loads(pickle.dumps(gpu)).set_params(device="cpu")
        worst = max(worst, difference(loaded.transform(X), gpu.transform(X)))
    assert worst < 1e-6, f"differs by {worst:.1g} in float64"
    return f"two flows, float64: differences up to {worst:.1g}"


def digits():
    X = rows(2000, 64, np.float32)
    flow = fit(X)
    Z = flow.transform(X)
    exact = flow.transform(X.astype(np.float64))
    error, back = difference(Z, exact), difference(flow.inverse_transform(Z), X)
    assert error < 1e-3, f"float32 is off by {error:.1g}; is TF32 on?"
    assert back < 1e-3, f"float32: the round trip is off by {back:.1g}"
    return f"float32 against float64 {error:.1g}, round trip {back:.1g}"


def memory_ends():
    X = rows(40_000, 128, np.float32)
    with memory_left(2**25):
        try:
            fit(X, batch_size=40_000, max_epochs=1)
        except MemoryError as error:
            kept = error.__context__
        else:
            raise AssertionError("a fit that exceeds the memory raised no error")
    assert kept is None, "the error keeps memory"
    fit(X[:2000], max_epochs=1)  # all memory is free again
    return "a fit raises MemoryError, the next one works"


@contextlib.contextmanager
def memory_left(n_bytes):
    """Leave only this many bytes of the GPU's memory."""
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + n_bytes) / total)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def threads():
    X = rows(1200, 12, np.float32)
    expected = fit(X).transform(X)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: fit(X).transform(X), range(4)))
    assert all(np.array_equal(Z, expected) for Z in found), "results differ between threads"
    return "four threads fit at once, with equal results"


def _in_child(queue, flow, X):
    queue.put(flow.transform(X))  # CUDA would fail here


def forks():
    X = rows(1200, 12)
    flow = fit(X, "auto")
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue, flow, X))
    child.start()
    Z = queue.get(timeout=120)
    child.join()
    assert difference(Z, flow.transform(X)) < 1e-6, "vectors of a forked child differ"
    return "'auto' is the CPU in a forked child, with the same vectors"


def second_device():
    if torch.cuda.device_count() < 2:
        return None
    X = rows(1200, 12)
    expected = fit(X, "cuda:0").transform(X)
    error = difference(fit(X, "cuda:1").transform(X), expected)
    assert error < 1e-6, f"differs by {error:.1g}"
    return f"trained after the first: differences up to {error:.1g}"


def encoder_check(model, texts):
    """Return the check of the encoder with this model."""

    def check():
        some, worst, least = texts[:64], 0.0, 1.0
        for pooling in POOLINGS:
            cpu = BertEncoder(model, pooling=pooling, device="cpu").fit_transform(some)
            gpu = BertEncoder(model, pooling=pooling, device="cuda").fit_transform(some)
            worst = max(worst, difference(gpu, cpu) / np.abs(cpu).max())
            for dtype in ("float16", "bfloat16"):
                half = BertEncoder(model, pooling=pooling, device="cuda", dtype=dtype)
                vectors = half.fit_transform(some)
                norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(cpu, axis=1)
                least = min(least, float(((vectors * cpu).sum(axis=1) / norms).min()))
        assert worst < 1e-3, f"float32 differs by {worst:.1g} of the largest entry"
        assert least > 0.999, f"half precision has a cosine of only {least:.4f} to float32"
        encoder = BertEncoder(model, device="cuda").fit(some)
        vectors = encoder.transform(some)
        assert np.array_equal(encoder.transform(some), vectors), "two passes differ"
        with memory_left(2**25), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about smaller batches
            error = difference(encoder.transform(texts[:512])[: len(some)], vectors)
        assert error < 1e-3 * np.abs(vectors).max(), f"smaller batches differ by {error:.1g}"
        return f"five poolings: float32 off by {worst:.1g}, half precision cosine {least:.5f}"

    return check


def speed(model, texts):
    """Print the seconds of each task on both devices."""
    tasks = {}
    for d in (384, 768):
        Y = rows(17256, d, np.float32)
        flows = {name: fit(Y, device, max_epochs=1) for name, device in DEVICES.items()}
        tasks[f"flow, fit of 17,256 x {d}"] = {
            name: partial(fit, Y, device, max_epochs=1) for name, device in DEVICES.items()
        }
        tasks[f"flow, transform of {d}"] = {
            n: partial(f.transform, Y) for n, f in flows.items()
        }
    if model:
        tasks["encoder, 256 texts"] = {
            f"{name}, {dtype}": BertEncoder(model, device=device, dtype=dtype)
            .fit(texts)
            .transform
            for name, device in DEVICES.items()
            for dtype in ("float32", "bfloat16")
        }
    for title, ways in tasks.items():

        def given(turn, encodes="encoder" in title):
            return np.resize(np.roll(texts, -256 * turn), 256).tolist() if encodes else None

        timed = {name: partial(synchronized, way) for name, way in ways.items()}
        report(title, turns(timed, 3, given), [name for name in ways if "CPU" in name])


def synchronized(way, argument):
    way() if argument is None else way(argument)
    torch.cuda.synchronize()


def run(checks):
    """Print a line for each check; return the number of failures."""
    n_failed = 0
    for name, check in checks.items():
        try:
            outcome = check()
            verdict = "not run" if outcome is None else "passed"
        except Exception as error:  # the report names any error
            n_failed += 1
            verdict, outcome = "FAILED", f"{type(error).__name__}: {error}".splitlines()[0]
            if not isinstance(error, AssertionError):
                traceback.print_exc()
        print(f"| {name} | {verdict} | {outcome or ''} |", flush=True)
    return n_failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="folder of a BERT; MiniLM by default, if installed")
    model = parser.parse_args().model
    if not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device.")
    if model is None:
        with contextlib.suppress(ImportError):
            model = minilm_path()
    sentences = load_toy_sts().data.ravel().tolist()
    texts = [f"{sentence} {i}" for i in range(4096 // len(sentences)) for sentence in sentences]

    print("## skcalib on a GPU\n")
    print(f"- torch {torch.__version__}, Python {platform.python_version()}, {sys.platform}")
    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        print(f"- {gpu.name}, {gpu.total_memory / 2**30:.0f} GiB, {gpu.major}.{gpu.minor}")
    print(f"- precision of float32 products: {torch.get_float32_matmul_precision()}")
    checks = {
        "flow against the CPU": flow_is_the_cpus,
        "precision of the flow": digits,
        "memory runs out": memory_ends,
        "determinism, threads": threads,
        "forks": forks,
        "a second GPU": second_device,
        "encoder": encoder_check(model, texts) if model else lambda: None,
    }
    print("\n| check | verdict | result |\n|---|---|---|")
    n_failed = run(checks)
    speed(model, texts)
    print(f"\n{n_failed} of {len(checks)} checks failed.")
    sys.exit(n_failed)


if __name__ == "__main__":
    main()
