"""Throughput of encoding: texts per second for several ways to the same vectors.

Run by hand, on a quiet machine::

    pip install -c constraints.txt '.[demo]'
    SKCALIB_DATA=folder python benchmarks/encode.py [--repeats 5] [--texts 2000] [--threads 2]

In each round all contenders encode the same texts, one after the other. The columns are:

- the median of texts per second, and its range;
- the median ratio, round by round, to the best batch size of sentence-transformers in the same
  precision, and its range;
- the share of the speed of one packed matrix product, measured in the same round;
- the largest 1 - cosine to sentence-transformers' vectors in float32.

With one thread the clock is the processor's, which other programs on the machine disturb less.

(a) short: distinct sentences of STS; (b) mixed: texts of 5 to 256 tokens made from them.

``--architectures`` compares small models of other families in float32, with MiniLM's tokenizer
and random weights, on one thread, and writes the ratios to
``docs/results/encode-architectures.csv``.
"""

import argparse
import csv
import os
import platform
import shutil
import tempfile
import time
import warnings
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from skcalib import BertEncoder, VectorStore
from skcalib.datasets import fetch_sts, minilm_path
from skcalib.encoders.model.batches import BertModel
from skcalib.encoders.model.packed_linear import PackedLinear
from skcalib.utils.caches import VECTORS

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "encode-architectures.csv"
SIZE = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}
SIZE |= {"intermediate_size": 2048, "max_position_embeddings": 512, "initializer_range": 0.05}
DECODER = SIZE | {"num_key_value_heads": 4, "head_dim": 64}
TURNS = {"layer_types": ["sliding_attention", "full_attention"] * 2}
ARCHITECTURES = {
    "BERT": ("Bert", SIZE),
    "MPNet": ("MPNet", SIZE | {"max_position_embeddings": 514}),
    "ModernBERT": ("ModernBert", SIZE),
    "NomicBERT": ("NomicBert", SIZE),
    "EuroBERT": ("EuroBert", SIZE),
    "Qwen3": ("Qwen3", DECODER),
    "Gemma 3": ("Gemma3Text", DECODER | TURNS | {"sliding_window": 512}),
    "Gemma 3, both ways": (
        "Gemma3Text",
        DECODER | TURNS | {"sliding_window": 128, "use_bidirectional_attention": True},
    ),
    "Llama": ("Llama", DECODER),
}


def short_texts(n):
    sts = np.concatenate([fetch_sts(t).data.ravel() for t in ("stsb", "sts14", "sickr")])
    return list(np.random.default_rng(0).permutation(np.unique(sts.astype(str)))[:n])


def mixed_texts(n):
    rng = np.random.default_rng(1)
    words = " ".join(short_texts(4000)).split()
    lengths = rng.integers(4, 190, size=n)  # words; about 5 to 256 tokens
    starts = rng.integers(0, len(words) - 200, size=n)
    return [" ".join(words[s : s + m]) for s, m in zip(starts, lengths, strict=True)]


def alternatives(dtype, folder=None, sizes=(8, 32, 128)):
    """sentence-transformers with some batch sizes, by name."""
    options = {"model_kwargs": {"dtype": dtype}} if dtype != torch.float32 else {}
    transformer = Transformer(folder or minilm_path(), max_seq_length=256, **options)
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")]
    model = SentenceTransformer(modules=modules, device="cpu")
    assert next(model.parameters()).dtype == dtype

    def encode_by(size):
        return lambda texts: (
            model.encode(
                texts, batch_size=size, show_progress_bar=False, convert_to_tensor=True
            )
            .float()
            .numpy()
        )

    return {f"sentence-transformers, batch {size}": encode_by(size) for size in sizes}


def ours(dtype):
    """Ways to encode with this package, by name."""
    name = str(dtype).removeprefix("torch.")
    encoder = BertEncoder(minilm_path(), max_length=256, dtype=name).fit(["a"])
    ways = {"skcalib": encoder.transform}

    def everything(texts):
        out = np.empty((len(texts), 384), dtype=np.float32)
        store = VectorStore("unused")  # what it would keep
        model = BertModel(encoder._backbone(), encoder._recipe, store=store)
        for batch in model.encode(texts):
            asked = batch.vectors[:, model.slots.asked]
            out[batch.rows] = encoder._recipe.merge(asked, batch.counts)
        return out

    ways["skcalib, all layers and poolings"] = everything
    if dtype == torch.float32:
        cheap = BertEncoder(minilm_path(), max_length=256, layers=0).fit(["a"])
        ways["skcalib, layers=0"] = cheap.transform
    return ways


def product_rate(dtype, clock):
    """FLOP per second of one packed matrix product."""
    packed = PackedLinear(torch.nn.Linear(384, 1536), dtype)
    x = torch.randn(4096, 384).to(dtype)
    seconds = []
    with torch.inference_mode():
        for _ in range(12):
            start = clock()
            packed(x)
            seconds.append(clock() - start)
    return 2 * 4096 * 384 * 1536 / min(seconds)


def flops(texts):
    """FLOP of MiniLM's matrix products: linear layers and attention."""
    tokenizer = BertEncoder(minilm_path()).fit(["a"])._backbone().tokenizer
    ids = tokenizer(texts, truncation=True, max_length=256)["input_ids"]
    lengths = np.array([len(i) for i in ids], dtype=np.float64)
    layer = 2 * (4 * 384 * 384 + 2 * 384 * 1536)
    return 6 * (layer * lengths.sum() + 4 * 384 * (lengths**2).sum())


def compare(title, texts, repeats, clock):
    print(f"\n{title}: {len(texts)} texts", flush=True)
    total, reference = flops(texts), None
    for dtype in (torch.float32, torch.bfloat16):
        theirs = alternatives(dtype)
        ways = theirs | ours(dtype)
        vectors = {name: way(texts) for name, way in ways.items()}  # a warm-up round
        if reference is None:
            reference = vectors["sentence-transformers, batch 32"].astype(np.float64)
        seconds, rates = {name: [] for name in ways}, []
        for _ in range(repeats):
            rates.append(product_rate(dtype, clock))
            for name, way in ways.items():
                start = clock()
                way(texts)
                seconds[name].append(clock() - start)
        best = np.min([seconds[name] for name in theirs], axis=0)
        product = f"one product: {np.median(rates) / 1e9:.0f} GFLOP/s"
        print(
            f"{dtype}, {product:32}texts/s    (min to max)  ratio  (min to max)  share  1 - cos"
        )
        for name, times in seconds.items():
            times = np.array(times)
            rate, ratio = len(texts) / times, best / times
            share = np.median(total / times / rates)
            v = vectors[name].astype(np.float64)
            cosine = np.sum(v * reference, axis=1)
            cosine /= np.linalg.norm(v, axis=1) * np.linalg.norm(reference, axis=1)
            print(
                f"{name:44}{np.median(rate):9.0f}  ({rate.min():.0f} to {rate.max():.0f})",
                end="",
            )
            print(f"{np.median(ratio):7.2f}  ({ratio.min():.2f} to {ratio.max():.2f})", end="")
            print(
                f"{share:7.0%}{np.max(1 - cosine):9.0e}" if "=0" not in name else "", flush=True
            )


def save_random(family, params, folder):
    """Save a random model of a family with MiniLM's tokenizer."""
    for path in Path(minilm_path()).glob("*token*"):
        shutil.copy(path, folder)
    shutil.copy(Path(minilm_path()) / "vocab.txt", folder)
    marks = {"bos_token_id": 101, "eos_token_id": 102, "pad_token_id": 0}
    model = getattr(transformers, f"{family}Model")
    torch.manual_seed(0)
    model(model.config_class(vocab_size=30522, **marks, **params)).save_pretrained(folder)


def ratios_of(folder, sets, repeats):
    """Yield whether texts share a row, and per set the ratios and the largest 1 - cosine."""
    ways = alternatives(torch.float32, folder, sizes=(8, 32))
    encoder = BertEncoder(folder, pooling="mean", max_length=256).fit(["a"])
    yield "yes" if encoder._backbone().forward.longest_packed else "no"
    ways["skcalib"] = encoder.transform
    for texts in sets.values():
        *theirs, ours = (way(texts).astype(np.float64) for way in ways.values())
        cosine = np.sum(ours * theirs[0], axis=1)
        cosine /= np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs[0], axis=1)
        ratios = []
        for _ in range(repeats):
            seconds = []
            for way in ways.values():
                start = time.process_time()
                way(texts)
                seconds.append(time.process_time() - start)
            ratios.append(min(seconds[:-1]) / seconds[-1])
        yield ratios, np.max(1 - cosine)


def compare_architectures(sets, repeats):
    """Print and write the ratios to the best batch size of sentence-transformers."""
    rows = []
    for name in ARCHITECTURES:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a decoder's first token, which nothing reads
            save_random(*ARCHITECTURES[name], folder)
            in_row, *results = ratios_of(folder, sets, repeats)
        row = {"architecture": name, "texts share a row": in_row}
        for title, (ratios, distance) in zip(sets, results, strict=True):
            row[title] = f"{np.median(ratios):.2f}"
            row[f"{title}, range"] = f"{min(ratios):.2f} to {max(ratios):.2f}"
            print(*row.values(), f"1 - cosine {distance:.0e}", sep=", ", flush=True)
        rows.append(row)
        with open(RESULTS, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--architectures", action="store_true")
    arguments = parser.parse_args()
    VECTORS.bound = 0  # otherwise later rounds read the vectors of the first
    if arguments.architectures:
        torch.set_num_threads(1)
        n = arguments.texts
        sets = {"short": short_texts(n), "mixed": mixed_texts(n // 4)}
        compare_architectures(sets, arguments.repeats)
        raise SystemExit
    torch.set_num_threads(arguments.threads)
    clock = time.process_time if arguments.threads == 1 else time.perf_counter
    machine = platform.processor() or platform.machine()
    print(f"{machine}, {arguments.threads} threads, torch {torch.__version__}")
    compare("(a) short", short_texts(arguments.texts), arguments.repeats, clock)
    compare("(b) mixed", mixed_texts(arguments.texts // 8), arguments.repeats, clock)
