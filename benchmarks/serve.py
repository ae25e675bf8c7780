"""Latency and throughput of examples/serve.py with eight clients, in batches and one by one.

    SKCALIB_DATA=folder python benchmarks/serve.py

Each client sends a sentence, waits for its vector, and sends the next; no sentence comes twice.
"""

import argparse
import json
import sys
import time
from http.client import HTTPConnection
from multiprocessing import get_context
from pathlib import Path
from threading import Thread

import numpy as np
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, Whitening
from skcalib.datasets import fetch_sts, minilm_path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from serve import serve


def client(port, texts, seconds):
    """Send texts one after the other; append the seconds that each took."""
    connection = HTTPConnection("127.0.0.1", port)
    for text in texts:
        start = time.perf_counter()
        connection.request("POST", "/", json.dumps({"texts": [text]}))
        connection.getresponse().read()
        seconds.append(time.perf_counter() - start)


def clients(port, texts, n_clients, queue):
    """Run clients in threads of a process of their own."""
    seconds = []
    threads = [
        Thread(target=client, args=(port, texts[i::n_clients], seconds))
        for i in range(n_clients)
    ]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queue.put((seconds, time.perf_counter() - start))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--texts", type=int, default=800, help="a round")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    train = sorted(set(fetch_sts("stsb", "train").data.ravel()))
    np.random.default_rng(0).shuffle(train)
    pipeline = make_pipeline(BertEncoder(minilm_path()), Whitening(noise="auto"))
    pipeline.fit(train[:1000])
    servers = {"in batches": serve(pipeline, 0), "one by one": serve(pipeline, 0, most_texts=1)}
    for server in servers.values():
        Thread(target=server.serve_forever, daemon=True).start()
    rest, figures = train[1000:], {name: [] for name in servers}
    context = get_context("spawn")
    for _ in range(options.repeats):
        for name, server in servers.items():
            texts, rest = rest[: options.texts], rest[options.texts :]
            queue = context.Queue()
            arguments = (server.server_port, texts, options.clients, queue)
            process = context.Process(target=clients, args=arguments)
            process.start()
            seconds, total = queue.get()
            process.join()
            p50, p95 = np.percentile(seconds, [50, 95])
            figures[name].append((1000 * p50, 1000 * p95, len(texts) / total))
    print("| | p50, ms | p95, ms | texts a second |\n|---|---:|---:|---:|")
    for name, rounds in figures.items():
        columns = zip(*rounds, strict=True)
        cells = (f"{np.median(c):.0f} ({min(c):.0f} to {max(c):.0f})" for c in columns)
        print(f"| {name} | {' | '.join(cells)} |")
    ratio = [a[2] / b[2] for a, b in zip(*figures.values(), strict=True)]
    print(f"texts a second, ratio: {np.median(ratio):.2f} ({min(ratio):.2f}, {max(ratio):.2f})")
