"""Throughput of encoding: texts per second for several ways to the same vectors.

Run by hand, on a quiet machine::

    pip install -c constraints.txt '.[demo]'
    SKCALIB_DATA=folder python benchmarks/encode.py [--model folder] [--dtypes float32 bfloat16]
        [--repeats 5] [--texts 2000] [--threads 2]

In each round all contenders encode the same texts, one after the other. The ratio is to the
best batch size of sentence-transformers in the same precision, and "1 - cosine" the largest to
its vectors in float32. With one thread the clock is the processor's, which other programs
disturb less. Texts are sentences of STS, or mixed: of 5 to 256 tokens made from them.
"into a store" keeps all layers and poolings on disk. Last, a prompt with the text twice is
compared with the same prompt with it once.
"""

import argparse
import platform
import tempfile
import time

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from sklearn.base import clone
from turns import largest_distance, mixed_texts, report, short_texts, turns

from skcalib import BertEncoder
from skcalib.datasets import minilm_path


def alternatives(folder, dtype):
    """sentence-transformers with some batch sizes, by name."""
    transformer = Transformer(folder, max_seq_length=256, model_kwargs={"dtype": dtype})
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")]
    model = SentenceTransformer(modules=modules, device="cpu")

    def encode_by(size):
        kept = {"batch_size": size, "show_progress_bar": False, "convert_to_tensor": True}
        return lambda texts: model.encode(texts, **kept).float().numpy()

    return {
        f"sentence-transformers, batch {size}": encode_by(size) for size in (8, 16, 32, 128)
    }


def compare(title, model, given, repeats, clock, dtypes):
    """Print the rates of all contenders in each precision, the first of which is float32."""
    n = len(given(0))
    with tempfile.TemporaryDirectory() as folder:
        for dtype in dtypes:
            theirs = alternatives(model, getattr(torch, dtype))
            plain = BertEncoder(model, pooling="mean", max_length=256, dtype=dtype)
            stored = clone(plain).set_params(memory=f"{folder}/{dtype}")
            ways = theirs | {
                "skcalib": plain.fit(["a"]).transform,
                "skcalib, into a store": stored.fit(["a"]).transform,
            }
            if dtype == dtypes[0]:
                reference = np.float64(theirs["sentence-transformers, batch 32"](given(-1)))
            far = {
                name: {"1 - cosine": largest_distance(way(given(-1)), reference)}
                for name, way in ways.items()
            }
            seconds = turns(ways, repeats, given, clock)
            report(f"{title}, {dtype}", seconds, list(theirs), n, far)


def compare_prompts(title, model, given, repeats, clock):
    """Print the rates of a prompt with the text once, and of one with it twice."""
    once = "Rewrite the sentence: {text}"
    prompts = {"the text once": once, "twice": f"{once}\nRewritten sentence: {{text}}"}
    plain = BertEncoder(model, pooling="mean", max_length=512)
    ways = {
        name: clone(plain).set_params(prompt=prompt).fit(["a"]).transform
        for name, prompt in prompts.items()
    }
    report(title, turns(ways, repeats, given, clock), "the text once", len(given(0)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="folder; default: MiniLM")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    machine = platform.processor() or platform.machine()
    print(f"{machine}, {options.threads} threads, torch {torch.__version__}")
    model = options.model or minilm_path()
    for title, given in (
        ("short", short_texts(options.texts)),
        ("mixed", mixed_texts(options.texts // 8)),
    ):
        compare(title, model, given, options.repeats, clock, options.dtypes)
        compare_prompts(f"{title}, in a prompt", model, given, options.repeats, clock)
