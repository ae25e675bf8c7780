"""Throughput of encoding: texts per second for several ways to the same vectors.

Run by hand, on a quiet machine::

    pip install -c constraints.txt '.[demo]'
    SKCALIB_DATA=folder python benchmarks/encode.py [--repeats 5] [--texts 2000] [--threads 2]

In each round all contenders encode the same texts, one after the other. The ratio is to the
best batch size of sentence-transformers in the same precision, and "1 - cosine" the largest to
its vectors in float32. With one thread the clock is the processor's, which other programs
disturb less. Texts are sentences of STS, or mixed: of 5 to 256 tokens made from them.
"into a store" keeps all layers and poolings on disk.
"""

import argparse
import platform
import tempfile
import time

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from turns import largest_distance, mixed_texts, report, short_texts, turns

from skcalib import BertEncoder
from skcalib.datasets import minilm_path


def alternatives(dtype):
    """sentence-transformers with some batch sizes, by name."""
    options = {"model_kwargs": {"dtype": dtype}} if dtype != torch.float32 else {}
    transformer = Transformer(minilm_path(), max_seq_length=256, **options)
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")]
    model = SentenceTransformer(modules=modules, device="cpu")

    def encode_by(size):
        kept = {"batch_size": size, "show_progress_bar": False, "convert_to_tensor": True}
        return lambda texts: model.encode(texts, **kept).float().numpy()

    return {f"sentence-transformers, batch {size}": encode_by(size) for size in (8, 32, 128)}


def compare(title, given, repeats, clock):
    """Print the rates of all contenders in both precisions."""
    n = len(given(0))
    with tempfile.TemporaryDirectory() as folder:
        for dtype in ("float32", "bfloat16"):
            theirs = alternatives(getattr(torch, dtype))
            params = {"max_length": 256, "dtype": dtype}
            ways = theirs | {
                "skcalib": BertEncoder(minilm_path(), **params).fit(["a"]).transform,
                "skcalib, into a store": BertEncoder(
                    minilm_path(), memory=f"{folder}/{dtype}", **params
                )
                .fit(["a"])
                .transform,
            }
            if dtype == "float32":
                reference = np.float64(theirs["sentence-transformers, batch 32"](given(-1)))
            far = {
                name: {"1 - cosine": largest_distance(way(given(-1)), reference)}
                for name, way in ways.items()
            }
            seconds = turns(ways, repeats, given, clock)
            report(f"{title}, {dtype}", seconds, list(theirs), n, far)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    machine = platform.processor() or platform.machine()
    print(f"{machine}, {options.threads} threads, torch {torch.__version__}")
    compare("short", short_texts(options.texts), options.repeats, clock)
    compare("mixed", mixed_texts(options.texts // 8), options.repeats, clock)
