"""Throughput of encoding: texts per second of ways to the same vectors.

Run by hand, on a quiet machine::

    pip install -c constraints.txt '.[demo]'
    SKCALIB_DATA=folder python benchmarks/encode.py [--repeats 5] [--texts 2000]

All contenders encode the same texts in turn, round by round; printed are the median of texts
per second, its spread, the median ratio to sentence-transformers at its default batch size,
round by round, and the largest 1 - cosine to its vectors.

(a) short: distinct sentences of STS; (b) mixed: texts of 5 to 256 tokens made of them.
"""

import argparse
import os
import platform
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

import skcalib._packed_linear as packed_linear
from skcalib import BertEncoder
from skcalib._encoding import encode
from skcalib._pooling import PRIMITIVES
from skcalib.datasets import fetch_sts, minilm_path


def short_texts(n):
    sts = np.concatenate([fetch_sts(t).data.ravel() for t in ("stsb", "sts14", "sickr")])
    return list(np.random.default_rng(0).permutation(np.unique(sts.astype(str)))[:n])


def mixed_texts(n):
    rng = np.random.default_rng(1)
    words = " ".join(short_texts(4000)).split()
    lengths = rng.integers(4, 190, size=n)  # words; about 5 to 256 tokens
    starts = rng.integers(0, len(words) - 200, size=n)
    return [" ".join(words[s : s + m]) for s, m in zip(starts, lengths, strict=True)]


def contenders(texts):
    """Name, and a function that encodes the texts."""
    transformer = Transformer(minilm_path(), max_seq_length=256)
    peer = SentenceTransformer(
        modules=[transformer, Pooling(384, pooling_mode="mean")], device="cpu"
    )
    options = {"max_length": 256}
    ours = BertEncoder(minilm_path(), **options).fit(texts)
    half = BertEncoder(minilm_path(), dtype="bfloat16", **options).fit(texts)
    cheap = BertEncoder(minilm_path(), layers=0, **options).fit(texts)
    ours.transform(texts[:8])
    half.transform(texts[:8])

    can_pack = packed_linear.can_pack
    packed_linear.can_pack = lambda dtype: False
    from skcalib import _backbone, _model_files

    portable = _backbone.Backbone(
        _model_files.locate(minilm_path()), "", torch.device("cpu"), torch.float32
    )
    packed_linear.can_pack = can_pack

    def everything():
        stream = encode(
            ours._backbone(), texts, layers=range(7), primitives=PRIMITIVES, max_length=256
        )
        out = np.empty((len(texts), 384), dtype=np.float32)
        for batch in stream:
            out[batch.rows] = batch.vectors[:, -1, PRIMITIVES.index("mean")]
        return out

    def on_portable():
        out = np.empty((len(texts), 384), dtype=np.float32)
        stream = encode(portable, texts, layers=[6], primitives=["mean"], max_length=256)
        for batch in stream:
            out[batch.rows] = batch.vectors[:, 0, 0]
        return out

    encode_peer = lambda size: peer.encode(texts, batch_size=size, show_progress_bar=False)  # noqa: E731
    return {
        "sentence-transformers, batch 32": lambda: encode_peer(32),
        "sentence-transformers, batch 8": lambda: encode_peer(8),
        "sentence-transformers, batch 128": lambda: encode_peer(128),
        "skcalib": lambda: ours.transform(texts),
        "skcalib, portable path": on_portable,
        "skcalib, all layers and poolings": everything,
        "skcalib, bfloat16 products": lambda: half.transform(texts),
        "skcalib, layers=0": lambda: cheap.transform(texts),
    }


def compare(title, texts, repeats):
    print(f"\n{title}: {len(texts)} texts")
    ways = contenders(texts)
    seconds = {name: [] for name in ways}
    vectors = {name: way() for name, way in ways.items()}  # a round to warm up
    for _ in range(repeats):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - start)
    reference = next(iter(vectors.values())).astype(np.float64)
    base = np.array(next(iter(seconds.values())))
    print(f"{'':34}{'texts/s':>9}{'(min to max)':>16}{'ratio':>8}{'max 1 - cos':>13}")
    for name, times in seconds.items():
        rate = len(texts) / np.array(times)
        v = vectors[name].astype(np.float64)
        cosine = np.sum(v * reference, axis=1)
        cosine /= np.linalg.norm(v, axis=1) * np.linalg.norm(reference, axis=1)
        spread = f"({rate.min():.0f} to {rate.max():.0f})"
        ratio = np.median(base / np.array(times))
        print(f"{name:34}{np.median(rate):9.0f}{spread:>16}{ratio:8.2f}", end="")
        print(f"{np.max(1 - cosine):13.1e}" if "layers=0" not in name else f"{'-':>13}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--texts", type=int, default=2000)
    arguments = parser.parse_args()
    print(
        f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads,",
        end=" ",
    )
    print(f"torch {torch.__version__}")
    compare("(a) short", short_texts(arguments.texts), arguments.repeats)
    compare("(b) mixed", mixed_texts(arguments.texts // 4), arguments.repeats)
