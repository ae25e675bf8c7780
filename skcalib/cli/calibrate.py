"""The command ``skcalib calibrate``."""

import argparse
import json
import platform
import sys
import warnings
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib

from skcalib import export
from skcalib.calibration.neighbors import NeighborSmoothing
from skcalib.cli.options import (
    OF_TEXTS,
    add_encoding,
    add_model_and_texts,
    encoder_of,
    layers,
    names,
    with_labels,
)
from skcalib.datasets import load_docstrings, load_toy_sts
from skcalib.export._formats import FORMATS, PLAIN
from skcalib.export._writing import written_whole
from skcalib.markdown import markdown
from skcalib.model_selection import CalibrationSearch
from skcalib.model_selection._candidates import RAW, TASKS
from skcalib.statistics.bootstrap import Difference

CRITERION = (
    "mean reciprocal rank of one part of a text, found from another part; score compares "
    "calibrations of one layer and pooling, halves layers and poolings"
)
PACKAGES = ("skcalib", "scikit-learn", "numpy", "scipy", "torch", "transformers", "joblib")
BUNDLED = {"docstrings": load_docstrings, "toy": load_toy_sts}
LEARNED = "noise", "power", "level", "shrinkage"  # by a whitening
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
    add_model_and_texts(add, "docstrings, or toy")
    add("-o", "--output", required=True, metavar="FOLDER", help="new folder to write to")
    written = "pipeline.joblib, a model folder, or model.onnx"
    formats = [name for name, how in FORMATS.items() if how.file is not None]
    add("--format", choices=formats, default="joblib", help=f"{written}; default: joblib")
    declared = "default: what the model's folder declares, else all"
    poolings = f"poolings to try, such as mean,cls,max,zipf; {declared}"
    add("--pooling", type=names, help=poolings)
    several = f"layers to try, such as 0,3,first_last,0+3; {declared}"
    add("--layers", type=names, help=several)
    tasks = [task for task in TASKS if task]
    add("--task", choices=tasks, help="what you look for; default: none of these")
    add("--n-groups", type=int, help="approximate number of groups to distinguish")
    grouped = f"group of each text, such as its language: {OF_TEXTS}"
    add("--groups", metavar="GROUPS", help=grouped)
    add_encoding(add)
    add("--n-texts", type=int, default=2000, help="texts in the search; default: 2000")
    add("--random-state", type=int, default=0, help="seed of the sample; default: 0")
    add("-q", "--quiet", action="store_true", help="no progress bar and no table")


def run(options: argparse.Namespace) -> None:
    """Search, write the pipeline and a report, and print the table."""
    how = FORMATS[options.format]
    recipe = replace(PLAIN, windows=options.overflow == "windows")
    # What cannot be written is refused before hours of work.
    how.checked(recipe, [NeighborSmoothing()] if TASKS[options.task].smooths else [])
    if options.texts in BUNDLED and not (options.groups or Path(options.texts).exists()):
        texts, groups = BUNDLED[options.texts]().data.ravel().tolist(), None
    else:
        texts, groups = with_labels(options.texts, options.groups, column=options.column)
    search = CalibrationSearch(
        encoder_of(options),
        task=options.task,
        n_groups=options.n_groups,
        pooling=options.pooling,
        layers=options.layers and list(map(layers, options.layers)),
        n_texts=options.n_texts,
        random_state=options.random_state,
        verbose=not options.quiet and sys.stderr.isatty(),
    )
    with written_whole(options.output) as folder:  # refused before hours of work
        pipeline = search.fit(texts, groups=groups).best_estimator_
        pipeline["encode"].set_params(memory=None)  # a folder of this machine
        folder.mkdir()
        save = getattr(export, how.save) if how.save else joblib.dump
        with warnings.catch_warnings():  # which names a parameter that this command has not
            warnings.filterwarnings("ignore", "The model's own folder ends with Normalize")
            save(pipeline, folder / (how.file or ""))
        content = json.dumps(report(search, options), indent=2)
        (folder / "report.json").write_text(content + "\n", "utf-8")
        with (folder / "README.md").open("a", encoding="utf-8") as card:
            if not card.tell():  # no model card yet, as sentence-transformers needs one
                card.write(f"# {Path(options.model).name}, calibrated\n")
            card.write(_data_and_figures(search, options))
    if not options.quiet:
        if search.n_texts_:
            print(f"{table(candidate_rows(search), search.best_index_)}\n")
        print(f"{search.reason_}\n")
        loads = f"{how.loader}({str(Path(options.output) / (how.file or ''))!r})"
        print(f"Wrote {options.output}, with a report.json. Load it with {loads}")


def report(search: CalibrationSearch, options: argparse.Namespace) -> dict[str, Any]:
    """Return the report: settings, and scores of all candidates."""
    encoder, calibrator = (search.best_estimator_[step] for step in ("encode", "calibrate"))
    rows = candidate_rows(search)
    return {
        "model": options.model,
        "fingerprint": encoder.fingerprint_,
        "texts": options.texts,
        "prompt": encoder.prompt_,
        "task": options.task,
        "random_state": options.random_state,
        **{name: getattr(calibrator, f"{name}_", None) for name in LEARNED},
        "criterion": CRITERION,
        "n_texts": search.n_texts_,
        "reason": search.reason_,
        "chosen": rows[search.best_index_],
        "candidates": rows,
        "versions": {"python": platform.python_version()} | {p: version(p) for p in PACKAGES},
    }


def candidate_rows(search: CalibrationSearch) -> list[dict[str, Any]]:
    """Rows of the results for JSON, which has no NaN: the raw model's first."""
    columns = {name: column.tolist() for name, column in search.cv_results_.items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return [{name: None if v != v else v for name, v in row.items()} for row in rows]


def table(rows: list[dict[str, Any]], chosen: int) -> str:
    """Return a Markdown table, times 100: raw model, choice, others of its layer, the best."""
    raw, best = rows[0], rows[chosen]
    others = sorted(rows[1:], key=lambda row: -row["halves"])
    others = [row for row in others if row is not best]
    at_home = [row for row in others if _state(row) == _state(raw)]
    others = [row for row in others if _state(row) != _state(raw)][:SHOWN]
    notes = [("raw", raw), ("chosen", best), *(("", row) for row in [*at_home, *others])]
    head = ["", "pooling", "layer", "candidate", "score", "halves", "gain over raw"]
    return markdown(head, [[note, *_cells(row)] for note, row in notes])


def _data_and_figures(search: CalibrationSearch, options: argparse.Namespace) -> str:
    """Return a section for a model card."""
    shown = ""
    if search.n_texts_:
        rows = table(candidate_rows(search), search.best_index_)
        shown = f"{CRITERION.capitalize()}, times 100:\n\n{rows}\n\n"
    return (
        f"\n## Data and figures\n\nCalibrated without labels, by the texts of "
        f"`{Path(options.texts).name}`. {shown}{search.reason_}\n"
    )


def _state(row: dict[str, Any]) -> tuple[Any, Any]:
    return row["pooling"], row["layers"]


def _cells(row: dict[str, Any]) -> list[str]:
    """Cells of a row of the table after the first."""
    layer = "" if row["layers"] is None else str(row["layers"])
    scores = [f"{100 * row[name]:.1f}" for name in ("score", "halves")]
    gain = Difference(row["gain"], row["gain_low"], row["gain_high"])
    shown = "" if row["candidate"] == RAW else str(gain)
    return [row["pooling"], layer, row["candidate"], *scores, shown]
