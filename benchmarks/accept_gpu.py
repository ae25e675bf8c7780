"""Accept or refuse a GPU: check skcalib on it, time it, and print a report to paste.

No GPU has run skcalib so far. One command, some minutes, on the first machine that has one::

    python benchmarks/accept_gpu.py

It checks results against those of the CPU, digits, determinism, memory that ends, threads,
forks and, where there are two, a second GPU. Then it times the flow, the encoder and
whitening. The encoder is MiniLM of the ``demo`` extra, or ``--model FOLDER``. The exit status
is the number of checks that failed.

Without a GPU the checks run on a pretended one (``tests/support/pretended_cuda.py``), whose
arithmetic is the CPU's, and nothing is timed. The report says so.
"""

import argparse
import contextlib
import itertools
import multiprocessing
import os
import pickle
import platform
import sys
import tempfile
import threading
import time
import traceback
import warnings
from pathlib import Path
from unittest import mock

os.environ["SCIPY_ARRAY_API"] = "1"  # which scipy reads when it is imported

import numpy as np
import sklearn
import torch

import skcalib._flow.training
import skcalib._machine.devices
from skcalib import BertEncoder, NormalizingFlow, Whitening
from skcalib.datasets import load_toy_sts, minilm_path

FLOWS = list(itertools.product(("additive", "affine"), ("reverse", "shuffle", "lu")))
POOLINGS = ("cls", "mean", "max", "mean_sqrt_len", "zipf")


class Failed(Exception):
    """A check found something wrong."""


def expect(holds, message):
    if not holds:
        raise Failed(message)


def rows(n, d, dtype=np.float64):
    rng = np.random.RandomState(0)
    X = rng.normal(size=(n, d))
    X[:, d // 2 :] += X[:, : d - d // 2] ** 2
    return X.astype(dtype)


def fit(X, device="cuda", **settings):
    settings = {"max_epochs": 2, "random_state": 0, **settings}
    return NormalizingFlow(device=device, **settings).fit(X)


def eager():
    """Train without recording steps."""
    return mock.patch.object(skcalib._flow.training, "RECORDED_FROM", 2**60)


def difference(actual, expected):
    return float(np.abs(np.asarray(actual) - expected).max())


# Checks return what the report shows of them.


def flow_is_the_cpus(machine):
    X, worst = rows(1200, 12), 0.0
    for coupling, permutation in FLOWS:
        settings = {"coupling": coupling, "permutation": permutation}
        gpu, cpu = fit(X, **settings), fit(X, "cpu", **settings)
        Z = cpu.transform(X)
        worst = max(worst, difference(gpu.transform(X), Z))
        worst = max(worst, difference(gpu.inverse_transform(Z), cpu.inverse_transform(Z)))
        loaded = pickle.loads(pickle.dumps(gpu)).set_params(device="cpu")
        worst = max(worst, difference(loaded.transform(X), gpu.transform(X)))
    expect(worst < 1e-6, f"differs by {worst:.1g} in float64")
    return f"six flows, float64: differences up to {worst:.1g}"


def recorded_is_eager(machine):
    X, worst = rows(1200, 12), 0.0
    for coupling, permutation in FLOWS:
        settings = {"coupling": coupling, "permutation": permutation}
        recorded = fit(X, **settings)
        with eager():
            worst = max(
                worst, difference(recorded.transform(X), fit(X, **settings).transform(X))
            )
    expect(worst < 1e-6, f"differs by {worst:.1g}")
    return f"six flows: differences up to {worst:.1g}"


def digits(machine):
    X = rows(2000, 64, np.float32)
    flow = fit(X)
    Z = flow.transform(X)
    exact = flow.transform(X.astype(np.float64))
    error, back = difference(Z, exact), difference(flow.inverse_transform(Z), X)
    expect(error < 1e-3, f"float32 is off by {error:.1g}; is TF32 on?")
    expect(back < 1e-3, f"float32 does not come back, by {back:.1g}")
    return f"float32 against float64 {error:.1g}, round trip {back:.1g}"


def whitening_of_tensors(machine):
    X = rows(3000, 64, np.float32)
    with sklearn.config_context(array_api_dispatch=True):
        on_gpu = Whitening(shrinkage=0.1).fit_transform(torch.as_tensor(X, device="cuda"))
    expect(on_gpu.device.type == "cuda", f"vectors are on {on_gpu.device}")
    error = difference(on_gpu.cpu().numpy(), Whitening(shrinkage=0.1).fit_transform(X))
    expect(error < 1e-4, f"differs by {error:.1g}")
    return f"float32: differences up to {error:.1g}"


def deterministic(machine):
    X = rows(1200, 12, np.float32)
    first, second = fit(X), fit(X)
    for name, weights in first._weights.items():
        expect(np.array_equal(weights, second._weights[name]), f"{name} differs between fits")
    return "two fits are equal in every bit"


def memory_ends(machine):
    X = rows(40_000, 128, np.float32)
    with memory_left(machine, 2**25):
        try:
            fit(X, batch_size=40_000, max_epochs=1)
        except MemoryError as caught:
            expect(caught.__context__ is None, "the error holds memory")
        else:
            raise Failed("a fit that cannot fit ended without an error")
    fit(X[:2000], max_epochs=1)  # all is given back
    return "a fit says MemoryError, the next one works"


@contextlib.contextmanager
def memory_left(machine, n_bytes):
    """Leave so many bytes of the GPU's memory."""
    if machine:
        machine.memory = machine.used() + n_bytes
        yield
        machine.memory = None
        return
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + n_bytes) / total)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def threads(machine):
    X = rows(1200, 12, np.float32)
    expected, found = fit(X).transform(X), []

    def train():
        with machine.in_this_thread() if machine else contextlib.nullcontext():
            found.append(fit(X).transform(X))

    workers = [threading.Thread(target=train) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    expect(len(found) == 4, f"{4 - len(found)} of 4 threads failed")
    expect(all(np.array_equal(Z, expected) for Z in found), "results differ between threads")
    return "four threads fit at once, with equal results"


def _in_child(queue, flow, X):
    queue.put((skcalib._machine.devices.resolve_device("auto").type, flow.transform(X)))


def forks(machine):
    X = rows(1200, 12)
    flow = fit(X, "auto")
    expected = flow.transform(X)
    if machine:
        machine.is_forked = True
        device, Z = skcalib._machine.devices.resolve_device("auto").type, flow.transform(X)
        machine.is_forked = False
    else:
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=_in_child, args=(queue, flow, X))
        child.start()
        device, Z = queue.get(timeout=120)
        child.join()
    expect(device == "cpu", f"'auto' is {device} in a forked child")
    expect(difference(Z, expected) < 1e-6, "a forked child maps otherwise")
    return "'auto' is the CPU in a forked child, with the same vectors"


def second_device(machine):
    if torch.cuda.device_count() < 2:
        return None
    X = rows(1200, 12)
    expected = fit(X, "cuda:0").transform(X)
    error = difference(fit(X, "cuda:1").transform(X), expected)
    expect(error < 1e-6, f"differs by {error:.1g}")
    return f"trained after the first: differences up to {error:.1g}"


def encoder_check(model, texts):
    """Return the check of the encoder with this model."""

    def check(machine):
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
        expect(worst < 1e-3, f"float32 differs by {worst:.1g} of the largest entry")
        expect(least > 0.999, f"half precision: a cosine of {least:.4f} to float32")
        encoder = BertEncoder(model, device="cuda").fit(some)
        vectors = encoder.transform(some)
        expect(np.array_equal(encoder.transform(some), vectors), "two passes differ")
        with memory_left(machine, 2**25), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # which tell of smaller batches
            error = difference(encoder.transform(texts[:512])[: len(some)], vectors)
        expect(error < 1e-3 * np.abs(vectors).max(), f"smaller batches differ by {error:.1g}")
        return f"five poolings: float32 off by {worst:.1g}, half precision cosine {least:.5f}"

    return check


# Speed, on a real GPU only.


def seconds(function, repeats=3):
    """Return the shortest time of some calls, after one that does not count."""
    function()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def speed(model, texts):
    """Yield what is timed, the unit, and the figure on the GPU and on the CPU."""
    for d in (384, 768):
        X = rows(17256, d, np.float32)
        cpu = seconds(lambda X=X: fit(X, "cpu", max_epochs=1))
        yield (
            f"flow, 17,256 x {d}, recorded",
            "s",
            seconds(lambda X=X: fit(X, max_epochs=1)),
            cpu,
        )
        with eager():
            once = seconds(lambda X=X: fit(X, max_epochs=1))
            yield f"flow, 17,256 x {d}, eager", "s", once, cpu
        flow = fit(X, max_epochs=1)
        gpu = seconds(lambda flow=flow, X=X: flow.transform(X))
        flow.set_params(device="cpu")
        yield f"flow, transform of {d}", "s", gpu, seconds(lambda f=flow, X=X: f.transform(X))
    X = rows(100_000, 768, np.float32)
    tensor = torch.as_tensor(X, device="cuda")
    with sklearn.config_context(array_api_dispatch=True):
        gpu = seconds(lambda: Whitening(shrinkage=0.1).fit(tensor).transform(tensor))
    cpu = seconds(lambda: Whitening(shrinkage=0.1).fit(X).transform(X))
    yield "whitening, 100,000 x 768, fit and transform", "s", gpu, cpu
    if model:
        some = texts[:256]
        encoder = BertEncoder(model, device="cpu").fit(some)
        cpu = len(some) / seconds(lambda: encoder.transform(some), 1)
        for dtype in ("float32", "float16", "bfloat16"):
            on_gpu = BertEncoder(model, device="cuda", dtype=dtype).fit(texts)
            gpu = len(texts) / seconds(lambda on_gpu=on_gpu: on_gpu.transform(texts))
            yield f"encoder, {dtype}", "texts/s", gpu, cpu


def run(checks, machine):
    """Print a line for each check; return how many failed."""
    n_failed = 0
    for name, check in checks.items():
        try:
            outcome = check(machine)
            verdict = "not run" if outcome is None else "passed"
        except Exception as error:  # whatever it is, the report names it
            n_failed += 1
            verdict, outcome = "FAILED", f"{type(error).__name__}: {error}".splitlines()[0]
            if not isinstance(error, Failed):
                traceback.print_exc()
        print(f"| {name} | {verdict} | {outcome or ''} |", flush=True)
    return n_failed


@contextlib.contextmanager
def pretended():
    """Pretend a machine with two GPUs."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
    from pretended_cuda import NoCompiler, PretendedCuda, load_guard

    with tempfile.TemporaryDirectory() as folder:
        try:
            load_guard(folder)
        except NoCompiler as error:
            sys.exit(f"There is no GPU here, and none can be pretended: {error}.")
        with PretendedCuda(n_devices=2) as machine:
            yield machine


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="folder of a BERT; MiniLM by default, if installed")
    arguments = parser.parse_args()
    model = arguments.model
    if model is None:
        with contextlib.suppress(ImportError):
            model = minilm_path()
    sentences = load_toy_sts().data.ravel().tolist()
    texts = [f"{sentence} {i}" for i in range(4096 // len(sentences)) for sentence in sentences]

    real = torch.cuda.is_available()
    print("## skcalib on a GPU\n" if real else "## skcalib on a pretended GPU\n")
    print(f"- torch {torch.__version__}, Python {platform.python_version()}, {sys.platform}")
    for index in range(torch.cuda.device_count() if real else 0):
        gpu = torch.cuda.get_device_properties(index)
        print(f"- {gpu.name}, {gpu.total_memory / 2**30:.0f} GiB, {gpu.major}.{gpu.minor}")
    print(f"- precision of float32 products: {torch.get_float32_matmul_precision()}")
    if not real:
        print("- no GPU: CPU arithmetic that says it is on one; nothing is timed")
    checks = {
        "flow against the CPU": flow_is_the_cpus,
        "recorded steps against eager ones": recorded_is_eager,
        "digits of the flow": digits,
        "determinism": deterministic,
        "memory that ends": memory_ends,
        "threads": threads,
        "forks": forks,
        "a second GPU": second_device,
        "whitening of tensors": whitening_of_tensors,
        "encoder": encoder_check(model, texts) if model else lambda machine: None,
    }
    print("\n| check | verdict | found |\n|---|---|---|")
    with contextlib.nullcontext() if real else pretended() as machine:
        n_failed = run(checks, machine)
    if real:
        print("\n| speed | unit | GPU | CPU |\n|---|---|---:|---:|")
        for name, unit, gpu, cpu in speed(model, texts):
            print(f"| {name} | {unit} | {gpu:.4g} | {cpu:.4g} |", flush=True)
    print(f"\n{n_failed} of {len(checks)} checks failed.")
    sys.exit(n_failed)


if __name__ == "__main__":
    main()
