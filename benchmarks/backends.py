"""Faster backends behind one encoder: texts a second, and the points that int8 costs.

Run by hand, on a quiet machine, in an environment of its own::

    pip install -c constraints.txt '.[demo,onnx]' openvino nncf
    SKCALIB_DATA=folder python benchmarks/backends.py [MODEL] [--prompt "query: "]

The raw model is exported by `save_onnx`, and its graph runs on onnxruntime
and on OpenVINO, in float32, in bfloat16 where the backend has it, and in int8. A `TextEncoder`
makes an encoder of each. All encode the same texts in turn; with one thread the clock is the
processor's. The scores are of vectors as they come and after ``Whitening(noise="auto")``,
fitted on vectors of the same backend: Spearman's correlation on STS-B's test pairs, and
R-precision on the test questions of Banking77.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import onnxruntime
import torch
from onnxruntime.quantization import quantize_dynamic
from sklearn.preprocessing import normalize
from transformers import AutoTokenizer

from skcalib import BertEncoder, TextEncoder, Whitening
from skcalib.datasets import fetch_sts, minilm_path
from skcalib.export import save_onnx
from skcalib.metrics import spearman
from skcalib.utils.caches import VECTORS

BATCH, MAX_LENGTH = 32, 256


class Graph:
    """An exported graph with its tokenizer: what `TextEncoder` takes."""

    def __init__(self, run, folder, prompt):
        self.run, self.prompt = run, prompt
        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def encode(self, texts):
        options = {"truncation": True, "max_length": MAX_LENGTH, "return_token_type_ids": False}
        tokens = self.tokenizer([self.prompt + text for text in texts], **options)
        order = np.argsort([len(ids) for ids in tokens["input_ids"]])  # little padding
        vectors = []
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            batch = {name: [tokens[name][row] for row in rows] for name in tokens}
            vectors.append(self.run(dict(self.tokenizer.pad(batch, return_tensors="np"))))
        return np.concatenate(vectors)[np.argsort(order)]


def on_onnxruntime(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)[0]


def on_openvino(path, threads, precision, quantize_on=None):
    import nncf
    import openvino

    core = openvino.Core()
    model = core.read_model(path)
    if quantize_on is not None:
        kind = nncf.ModelType.TRANSFORMER
        model = nncf.quantize(model, nncf.Dataset(quantize_on), model_type=kind)
    hints = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads}
    compiled = core.compile_model(model, "CPU", hints)
    return lambda inputs: compiled(inputs)[0]


def contenders(model, prompt, threads, folder, sample):
    """Return encoders of the same vectors, by name."""
    ours = {
        f"BertEncoder, {dtype}": BertEncoder(
            model, prompt=prompt or None, max_length=MAX_LENGTH, dtype=dtype
        ).fit(sample[:2])
        for dtype in ("float32", "bfloat16")
    }
    path, small = folder / "model.onnx", folder / "model-int8.onnx"
    save_onnx(ours["BertEncoder, float32"], path)
    quantize_dynamic(path, small, per_channel=True)
    runs = {
        "onnxruntime, float32": on_onnxruntime(path, threads),
        "onnxruntime, int8": on_onnxruntime(small, threads),
    }
    tokenizer = AutoTokenizer.from_pretrained(model)
    options = {"truncation": True, "max_length": MAX_LENGTH, "return_token_type_ids": False}
    inputs = [
        dict(tokenizer([prompt + text], **options, return_tensors="np")) for text in sample
    ]
    try:
        runs["OpenVINO, float32"] = on_openvino(path, threads, "f32")
        runs["OpenVINO, bfloat16"] = on_openvino(path, threads, "bf16")
        runs["OpenVINO, int8"] = on_openvino(path, threads, "f32", inputs)
    except ImportError as error:
        print(f"Without OpenVINO: {error}")
    graphs = {
        name: TextEncoder(Graph(run, model, prompt)).fit(sample[:2])
        for name, run in runs.items()
    }
    return ours | graphs


def mixed(texts, n):
    """Texts of 5 to 256 tokens."""
    rng = np.random.default_rng(1)
    words = " ".join(texts).split()
    lengths = rng.integers(4, 190, size=n)
    starts = rng.integers(0, len(words) - 200, size=n)
    return [" ".join(words[s : s + m]) for s, m in zip(starts, lengths, strict=True)]


def r_precision(vectors, labels):
    """Mean share of a text's label among as many nearest as the label has others, in %."""
    unit = normalize(vectors.astype(np.float64))
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -2)
    same = labels[:, None] == labels
    order = np.argsort(-cosines, axis=1, kind="stable")
    found = np.take_along_axis(same, order, axis=1)
    others = same.sum(axis=1) - 1
    kept = np.arange(len(labels)) < others[:, None]
    return 100 * np.mean((found & kept).sum(axis=1) / np.maximum(others, 1))


def banking():
    """Test questions of Banking77 and their intents."""
    import csv

    tasks = Path(os.environ["SKCALIB_DATA"]).parent / "tasks"
    with open(next(tasks.rglob("*test*.csv")), newline="", encoding="utf-8") as lines:
        rows = list(csv.reader(lines))[1:]
    rows = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))[:1500]]
    return [row[0] for row in rows], np.array([row[1] for row in rows])


def timed(encoders, texts, repeats, clock):
    seconds = {name: [] for name in encoders}
    for encoder in encoders.values():
        encoder.transform(texts[:64])
    for _ in range(repeats):
        for name, encoder in encoders.items():
            start = clock()
            encoder.transform(texts)
            seconds[name].append(clock() - start)
    rates = {name: len(texts) / np.array(times) for name, times in seconds.items()}
    return {
        name: f"{np.median(r):.0f} ({r.min():.0f}-{r.max():.0f})" for name, r in rates.items()
    }


def main(model, prompt, threads, repeats, n):
    test, train = fetch_sts("stsb"), fetch_sts("stsb", split="train")
    sentences = np.unique(train.data.ravel().astype(str))
    sentences = np.random.default_rng(0).permutation(sentences)[:4000].tolist()
    questions, intents = banking()
    clock = time.process_time if threads == 1 else time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        encoders = contenders(model, prompt, threads, Path(folder), sentences[:300])
        short = timed(encoders, sentences[:n], repeats, clock)
        long = timed(encoders, mixed(sentences, n // 8), repeats, clock)
        reference = None
        print(
            "| | short, texts/s | mixed, texts/s | 1 - cosine | STS-B | calibrated | "
            "R-precision | calibrated |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for name, encoder in encoders.items():
            left, right = (encoder.transform(list(c)) for c in test.data.T)
            asked = encoder.transform(questions)
            whitening = Whitening(noise="auto").fit(encoder.transform(sentences))
            scores = []
            for change in (np.asarray, whitening.transform):
                a, b = normalize(change(left)), normalize(change(right))
                scores.append(100 * spearman(test.target, np.sum(a * b, axis=1)))
            if reference is None:
                reference = normalize(left.astype(np.float64))
            far = 1 - np.sum(reference * normalize(left.astype(np.float64)), axis=1).min()
            found = [r_precision(c(asked), intents) for c in (np.asarray, whitening.transform)]
            print(
                f"| {name} | {short[name]} | {long[name]} | {far:.0e} | {scores[0]:.1f} | "
                f"{scores[1]:.1f} | {found[0]:.1f} | {found[1]:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default=None)
    parser.add_argument("--prompt", default="")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--texts", type=int, default=800)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    VECTORS.bound = 0  # else later rounds read the vectors of the first
    torch.set_num_threads(given.threads)
    main(given.model or minilm_path(), given.prompt, given.threads, given.repeats, given.texts)
