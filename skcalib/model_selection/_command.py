"""The command ``skcalib calibrate``."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from itertools import compress
from operator import and_, or_
from pathlib import Path
from typing import Any, NamedTuple

import joblib
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from skcalib._command_line import add_encoding, layers, names, texts_in, with_groups
from skcalib._encoder.estimator import BertEncoder
from skcalib.datasets import load_docstrings, load_toy_sts
from skcalib.export import save_onnx, save_sentence_transformer
from skcalib.export._onnx import import_runtime
from skcalib.export._sentence_transformer import sentence_transformers
from skcalib.export._writing import written_whole
from skcalib.model_selection._calibrate import calibrate
from skcalib.model_selection._tasks import TASKS

PACKAGES = ("skcalib", "scikit-learn", "numpy", "scipy", "torch", "transformers", "joblib")
BUNDLED = {"docstrings": load_docstrings, "toy": load_toy_sts}
SHOWN = 8  # other candidates in the printed table; the report has all


class Format(NamedTuple):
    """A way to save the fitted pipeline."""

    save: Callable[[Any, Path], Any]
    file: str  # in the folder, or "" for the folder itself
    loader: str
    packages: Callable[[str], Any]  # imports what it needs; an error names what is missing
    # Whether it cannot hold a pipeline that may have windows, and a smoothing.
    lacks: Callable[[bool, bool], bool]


FORMATS = {
    "joblib": Format(joblib.dump, "pipeline.joblib", "joblib.load", str, lambda *_: False),
    "sentence-transformers": Format(
        save_sentence_transformer, "", "SentenceTransformer", sentence_transformers, or_
    ),
    "onnx": Format(save_onnx, "model.onnx", "InferenceSession", import_runtime, and_),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its arguments."""
    parser.description = (
        "Choose layer, pooling and calibration of a model from texts without labels, and save "
        "the fitted pipeline. The table shows the raw model first. The scores are mean "
        "reciprocal ranks of finding one part of a text from another: score compares "
        "calibrations of one layer and pooling, halves compares layers and poolings."
    )
    parser.epilog = "Example: skcalib calibrate minilm docstrings --output calibrated"
    add = parser.add_argument
    add("model", metavar="MODEL", help="hub id, folder, or minilm (of the demo extra)")
    add("texts", metavar="TEXTS", help="UTF-8 file with a text per line, or docstrings or toy")
    add("--output", required=True, metavar="FOLDER", help="new folder to write to")
    written = "pipeline.joblib, a model folder, or model.onnx"
    add("--format", choices=FORMATS, default="joblib", help=f"{written}; default: joblib")
    declared = "default: what the model's folder declares, else all"
    poolings = f"poolings to try, such as mean,cls,max,zipf; {declared}"
    add("--pooling", type=names, help=poolings)
    several = f"layers to try, such as 0,3,first_last,0+3; {declared}"
    add("--layers", type=names, help=several)
    tasks = [task for task in TASKS if task]
    add("--task", choices=tasks, help="what the vectors are for; default: none of these")
    add("--queries", metavar="FILE", help="sample of queries; TEXTS are then documents")
    add("--n-clusters", type=int, help="about how many groups the vectors shall tell apart")
    grouped = "group of each text, in the line of the same number, such as its language"
    add("--groups", metavar="FILE", help=grouped)
    add_encoding(add)
    add("--max-length", type=int, help="tokens of a text or window; default: the model's limit")
    add("--n-texts", type=int, default=2000, help="texts in the search; default: 2000")
    add("--random-state", type=int, default=0, help="seed of the sample; default: 0")
    add("-q", "--quiet", action="store_true", help="no progress bar and no table")


def run(options: argparse.Namespace) -> None:
    """Search, write the pipeline and a report, and print the table."""
    how = _checked_format(options)
    texts, groups = options.texts, None
    if texts in BUNDLED and not Path(texts).exists():
        texts = BUNDLED[texts]().data.ravel().tolist()
    if options.groups:
        texts, groups = with_groups(texts, options.groups)
    elif isinstance(texts, str):
        texts = texts_in(texts)
    params = {name: getattr(options, name) for name in ("prompt", "max_length", "overflow")}
    encoder = BertEncoder(options.model, **params)
    queries_encoder = None
    if options.query_prompt is not None:
        queries_encoder = clone(encoder).set_params(prompt=options.query_prompt)
    with written_whole(options.output) as folder:  # refused before hours of work
        pipeline = calibrate(
            encoder,
            texts,
            task=options.task,
            queries=options.queries and texts_in(options.queries),
            queries_encoder=queries_encoder,
            groups=groups,
            pooling=options.pooling,
            layers=options.layers and list(map(layers, options.layers)),
            n_clusters=options.n_clusters,
            n_texts=options.n_texts,
            random_state=options.random_state,
            memory=options.memory,
            verbose=False if options.quiet else None,
        )
        encoder = pipeline["encode"].set_params(memory=None)  # a folder of this machine
        folder.mkdir()
        how.save(pipeline, folder / how.file)
        content = json.dumps(report(pipeline, options), indent=2)
        (folder / "report.json").write_text(content + "\n", "utf-8")
    if not options.quiet:
        calibration = pipeline.calibration_
        print(f"{calibration.table(SHOWN)}\n\n{calibration.summary()}\n")
        loads = f"{how.loader}({str(Path(options.output) / how.file)!r})"
        print(f"Wrote {options.output}, with a report.json. Load it with {loads}")


def _checked_format(options: argparse.Namespace) -> Format:
    """Refuse what cannot be written, before hours of work."""
    how, task = FORMATS[options.format], TASKS[options.task]
    asked = options.overflow == "windows", task.smooths
    if how.lacks(*asked):
        names = "--overflow windows", f"the NeighborSmoothing of --task {options.task}"
        others = [name for name in reversed(FORMATS) if not FORMATS[name].lacks(*asked)]
        raise ValueError(
            f"{' and '.join(compress(names, asked))} is what --format "
            f"{options.format} cannot hold. Use --format {' or '.join(others)}."
        )
    how.packages(f"--format {options.format}")
    return how


def report(pipeline: Pipeline, options: argparse.Namespace) -> dict[str, Any]:
    """Return the report: settings, and scores of all candidates."""
    calibrator = pipeline["calibrate"]
    return {
        "model": options.model,
        "fingerprint": pipeline["encode"].fingerprint_,
        "texts": options.texts,
        "criterion": "mean reciprocal rank of one part of a text, found from another part; "
        "score compares calibrations of one layer and pooling, halves layers and poolings",
        "random_state": options.random_state,
        "noise": getattr(calibrator, "noise_", None),
        "power": getattr(calibrator, "power_", None),
        "shrinkage": getattr(calibrator, "shrinkage_", None),
        **asdict(pipeline.calibration_),
        "versions": {"python": platform.python_version()} | {p: version(p) for p in PACKAGES},
    }
