"""Latency and throughput of examples/serve.py: in batches, also smoothed, and one by one.

    SKCALIB_DATA=folder python benchmarks/serve.py

Each client sends a sentence, waits for its vector, and sends the next. No sentence occurs
twice. "smoothed" searches among 100,000 vectors: sentences, and copies of them with noise.
"""

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from multiprocessing import get_context
from pathlib import Path
from threading import Thread

import numpy as np
import uvicorn
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from turns import sentences, spread

from skcalib import BertEncoder, NeighborSmoothing, Whitening
from skcalib.datasets import minilm_path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from serve import application


def client(port, texts):
    """Send texts one after the other; return the seconds that each took."""
    connection, seconds = HTTPConnection("127.0.0.1", port, timeout=60), []
    for text in texts:
        start = time.perf_counter()
        body, headers = json.dumps({"texts": [text]}), {"Content-Type": "application/json"}
        connection.request("POST", "/vectors", body, headers)
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"the server answered {response.status}: {response.read()}")
        response.read()
        seconds.append(time.perf_counter() - start)
    connection.close()
    return seconds


def clients(port, texts, n_clients):
    """Return p50 and p99 in milliseconds, and texts per second, of simultaneous clients."""
    with ThreadPoolExecutor(n_clients) as threads:
        start = time.perf_counter()
        shares = [texts[i::n_clients] for i in range(n_clients)]
        seconds = list(threads.map(client, [port] * n_clients, shares))
        total = time.perf_counter() - start
    p50, p99 = np.percentile(np.concatenate(seconds), [50, 99])
    return 1000 * p50, 1000 * p99, len(texts) / total


@contextmanager
def running(app):
    """Yield the port of a server that runs in a thread."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, access_log=False, log_level="error"))
    thread = Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 200])
    parser.add_argument("--texts", type=int, default=500, help="texts per round")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--fitted", type=int, default=100_000, help="vectors of the smoothing")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    texts = sentences().tolist()
    pipeline = make_pipeline(BertEncoder(minilm_path()), Whitening(power="auto"))
    vectors = pipeline.fit_transform(texts[:1000])
    vectors = np.tile(vectors, (-(-options.fitted // 1000), 1))[: options.fitted]
    vectors += rng.normal(scale=vectors.std() / 2, size=vectors.shape).astype(np.float32)
    smoothed = make_pipeline(FrozenEstimator(pipeline), NeighborSmoothing().fit(vectors))
    rounds = iter(np.array_split(texts[1000:], (len(texts) - 1000) // options.texts))
    figures = {}
    with (
        running(application(pipeline)) as batches,
        running(application(smoothed)) as smooth,
        running(application(pipeline, most_texts=1)) as alone,
        get_context("spawn").Pool(1) as process,  # the clients run in a process of their own
    ):
        for _ in range(options.repeats):
            for n_clients in options.clients:
                ports = {"in batches": batches, "smoothed": smooth, "one at a time": alone}
                for name, port in ports.items():
                    part = process.apply(clients, (port, list(next(rounds)), n_clients))
                    figures.setdefault((n_clients, name), []).append(part)
    print("| clients | | p50, ms | p99, ms | texts per second |\n|---:|---|---:|---:|---:|")
    for (n_clients, name), parts in figures.items():
        cells = (spread(column, ".0f") for column in zip(*parts, strict=True))
        print(f"| {n_clients} | {name} | {' | '.join(cells)} |")
