"""The command ``skcalib calibrate``."""

import argparse
import json
import platform
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib
from sklearn.pipeline import Pipeline

from skcalib import export
from skcalib.calibration.neighbors.estimator import NeighborSmoothing
from skcalib.cli.options import (
    add_column,
    add_encoding,
    encoder_of,
    layers,
    names,
    texts_in,
    with_groups,
)
from skcalib.datasets import load_docstrings, load_toy_sts
from skcalib.export._formats import FORMATS, PLAIN
from skcalib.export._writing import written_whole
from skcalib.model_selection._calibrate import calibrate
from skcalib.model_selection._tasks import TASKS

PACKAGES = ("skcalib", "scikit-learn", "numpy", "scipy", "torch", "transformers", "joblib")
BUNDLED = {"docstrings": load_docstrings, "toy": load_toy_sts}
LEARNED = "noise", "power", "shrinkage"  # by a whitening
SHOWN = 8  # other candidates in the printed table; the report has all


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
    add(
        "texts",
        metavar="TEXTS",
        help="UTF-8 file, a text per line or a table; or docstrings or toy",
    )
    add_column(add)
    add("--output", required=True, metavar="FOLDER", help="new folder to write to")
    written = "pipeline.joblib, a model folder, or model.onnx"
    formats = [name for name, how in FORMATS.items() if how.file is not None]
    add("--format", choices=formats, default="joblib", help=f"{written}; default: joblib")
    declared = "default: what the model's folder declares, else all"
    poolings = f"poolings to try, such as mean,cls,max,zipf; {declared}"
    add("--pooling", type=names, help=poolings)
    several = f"layers to try, such as 0,3,first_last,0+3; {declared}"
    add("--layers", type=names, help=several)
    tasks = [task for task in TASKS if task]
    add("--task", choices=tasks, help="what the vectors are for; default: none of these")
    add("--queries", metavar="FILE", help="sample of queries; TEXTS are then documents")
    add("--n-groups", type=int, help="approximate number of groups to distinguish")
    grouped = "group of each text, on the line of the same number, such as its language"
    add("--groups", metavar="FILE", help=grouped)
    add_encoding(add)
    add("--max-length", type=int, help="tokens of a text or window; default: the model's limit")
    add("--n-texts", type=int, default=2000, help="texts in the search; default: 2000")
    add("--random-state", type=int, default=0, help="seed of the sample; default: 0")
    add("-q", "--quiet", action="store_true", help="no progress bar and no table")


def run(options: argparse.Namespace) -> None:
    """Search, write the pipeline and a report, and print the table."""
    how = FORMATS[options.format]
    recipe = replace(PLAIN, stride=0 if options.overflow == "windows" else None)
    # What cannot be written is refused before hours of work.
    how.checked(recipe, [NeighborSmoothing()] if TASKS[options.task].smooths else [])
    if options.texts in BUNDLED and not (options.groups or Path(options.texts).exists()):
        texts, groups = BUNDLED[options.texts]().data.ravel().tolist(), None
    else:
        texts, groups = with_groups(options.texts, options.groups, column=options.column)
    queries_encoder = None
    if options.query_prompt is not None:
        if not options.queries:
            raise ValueError("--query-prompt needs --queries FILE.")
        queries_encoder = encoder_of(options, prompt=options.query_prompt)
    with written_whole(options.output) as folder:  # refused before hours of work
        pipeline = calibrate(
            encoder_of(options),
            texts,
            task=options.task,
            queries=options.queries and texts_in(options.queries, options.column),
            queries_encoder=queries_encoder,
            groups=groups,
            pooling=options.pooling,
            layers=options.layers and list(map(layers, options.layers)),
            n_groups=options.n_groups,
            n_texts=options.n_texts,
            random_state=options.random_state,
            memory=options.memory,
            verbose=False if options.quiet else None,
        )
        pipeline["encode"].set_params(memory=None)  # a folder of this machine
        folder.mkdir()
        save = getattr(export, how.save) if how.save else joblib.dump
        save(pipeline, folder / (how.file or ""))
        content = json.dumps(report(pipeline, options), indent=2)
        (folder / "report.json").write_text(content + "\n", "utf-8")
    if not options.quiet:
        calibration = pipeline.calibration_
        print(f"{calibration.table(SHOWN)}\n\n{calibration.explanation}\n")
        loads = f"{how.loader}({str(Path(options.output) / (how.file or ''))!r})"
        print(f"Wrote {options.output}, with a report.json. Load it with {loads}")


def report(pipeline: Pipeline, options: argparse.Namespace) -> dict[str, Any]:
    """Return the report: settings, and scores of all candidates."""
    calibrator = pipeline["calibrate"]
    return {
        "model": options.model,
        "fingerprint": pipeline["encode"].fingerprint_,
        "texts": options.texts,
        "prompt": getattr(pipeline["encode"], "prompt_", ""),
        "criterion": "mean reciprocal rank of one part of a text, found from another part; "
        "score compares calibrations of one layer and pooling, halves layers and poolings",
        "random_state": options.random_state,
        **{name: getattr(calibrator, f"{name}_", None) for name in LEARNED},
        **asdict(pipeline.calibration_),
        "versions": {"python": platform.python_version()} | {p: version(p) for p in PACKAGES},
    }
