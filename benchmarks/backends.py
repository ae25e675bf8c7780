"""Faster backends behind one encoder: texts a second, and the points that int8 costs.

Run by hand, on a quiet machine, in an environment of its own::

    pip install -c constraints.txt '.[demo,onnx]' openvino nncf
    SKCALIB_DATA=folder python benchmarks/backends.py [MODEL] [--prompt "query: "]

The raw model is exported by `save_onnx`, and its graph runs on onnxruntime
and on OpenVINO, in float32, in bfloat16 where the backend has it, and in int8. A `TextEncoder`
makes an encoder of each. All encode the same texts in turn; with one thread the clock is the
processor's. The scores are of raw vectors: Spearman's correlation on STS-B's test pairs, and
R-precision on 1,500 test questions of Banking77.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import torch
from onnxruntime.quantization import quantize_dynamic
from sklearn.preprocessing import normalize
from transformers import AutoTokenizer
from turns import largest_distance, mixed_texts, report, sentences, short_texts, turns

from skcalib import BertEncoder, TextEncoder
from skcalib.datasets import fetch_sts, minilm_path
from skcalib.evaluation import evaluate_labeled
from skcalib.export import save_onnx
from skcalib.metrics import spearman

TASKS = Path(os.environ.get("SKCALIB_DATA", "data/sts")).parent / "tasks"
TOKENS, MAX_LENGTH = 1024, 256  # of a batch, with padding; and of a text


class Graph:
    """An exported graph with its tokenizer: what `TextEncoder` takes."""

    def __init__(self, run, folder, prompt):
        self.run, self.prompt = run, prompt
        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def encode(self, texts):
        options = {"truncation": True, "max_length": MAX_LENGTH, "return_token_type_ids": False}
        tokens = self.tokenizer([self.prompt + text for text in texts], **options)
        lengths = np.array([len(ids) for ids in tokens["input_ids"]])
        order, vectors, start = np.argsort(-lengths), [], 0  # little padding
        while start < len(order):
            rows = order[start : start + TOKENS // lengths[order[start]]]
            start += len(rows)
            batch = {name: [tokens[name][row] for row in rows] for name in tokens}
            vectors.append(self.run(dict(self.tokenizer.pad(batch, return_tensors="np"))))
        return np.concatenate(vectors)[np.argsort(order)]


def on_onnxruntime(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)[0]


def on_openvino(path, threads, precision, quantize_on=None, kept=lambda widths: False):
    """Run a graph, in int8 but for products with weights of widths that are ``kept``."""
    import nncf
    import openvino

    core = openvino.Core()
    model = core.read_model(path)
    if quantize_on is not None:
        names = []
        for node in model.get_ops():
            if node.get_type_name() == "MatMul":
                weight = node.input(1).get_partial_shape()
                if weight.is_static and kept(weight.to_shape()):
                    names.append(node.get_friendly_name())
        options = {"ignored_scope": nncf.IgnoredScope(names=names)} if names else {}
        kind = nncf.ModelType.TRANSFORMER
        model = nncf.quantize(model, nncf.Dataset(quantize_on), model_type=kind, **options)
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
        runs["OpenVINO, int8"] = on_openvino(path, threads, "bf16", inputs)
        # The second product of a feed-forward layer has the largest activations.
        runs["OpenVINO, int8 in part"] = on_openvino(
            path, threads, "bf16", inputs, lambda widths: widths[0] > widths[1]
        )
    except ImportError as error:
        print(f"Without OpenVINO: {error}")
    graphs = {
        name: TextEncoder(Graph(run, model, prompt)).fit(sample[:2])
        for name, run in runs.items()
    }
    return ours | graphs


def main(model, prompt, threads, repeats, n):
    test, clock = fetch_sts("stsb"), time.process_time if threads == 1 else time.perf_counter
    questions = pd.read_csv(TASKS / "banking77-test.csv").sample(1500, random_state=0)
    questions = questions.to_numpy()
    with tempfile.TemporaryDirectory() as folder:
        sample = sentences()[:300].tolist()
        encoders = contenders(model, prompt, threads, Path(folder), sample)
        more = {}
        for name, encoder in encoders.items():
            left, right = (encoder.transform(list(column)) for column in test.data.T)
            if not more:
                reference = left
            cosines = np.sum(normalize(left) * normalize(right), axis=1)
            asked = evaluate_labeled(encoder, *questions.T, scores=["R-precision"])
            more[name] = {
                "1 - cosine": largest_distance(left, reference),
                "STS-B": f"{100 * spearman(test.target, cosines):.1f}",
                "R-precision": f"{asked.scores[0, 0]:.1f}",
            }
        ways = {name: encoder.transform for name, encoder in encoders.items()}
        for title, given in (("short", short_texts(n)), ("mixed", mixed_texts(n // 8))):
            seconds = turns(ways, repeats, given, clock)
            report(title, seconds, next(iter(ways)), len(given(0)), more)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default=None)
    parser.add_argument("--prompt", default="")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--texts", type=int, default=800)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    main(given.model or minilm_path(), given.prompt, given.threads, given.repeats, given.texts)
