"""The command ``skcalib evaluate``."""

import argparse
import csv
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

import skcalib
from skcalib import Whitening
from skcalib.base import FloatTransformer, calibrator_tags
from skcalib.cli.options import add_column, add_encoding, encoder_of, layers, names, texts_in
from skcalib.compat import check_params
from skcalib.evaluation import ScoreTable, evaluate_retrieval, evaluate_sts
from skcalib.evaluation._sts import BENCHMARKS, checked_texts
from skcalib.model_selection._encoders import folder_for

SETTINGS = ("model", "pooling", "layers", "calibrator", "fit_on", "aggregate")


def _of_skcalib() -> Iterator[tuple[str, Any]]:
    """Yield the steps that calibrate, by the last word of their names, in lower case."""
    for kind in (getattr(skcalib, name) for name in skcalib.__all__):
        if isinstance(kind, type) and issubclass(kind, FloatTransformer):
            step: Any = kind()
            if calibrator_tags(step).calibrates:
                if hasattr(step, "random_state"):
                    step.set_params(random_state=0)
                yield re.findall("[A-Z][a-z]*", kind.__name__)[-1].lower(), step


CALIBRATORS = {"raw": "passthrough", **dict(_of_skcalib())}


def named_calibrators(options: argparse.Namespace) -> dict[str, Any]:
    """Return the calibrators of the rows, by name; "passthrough" is that of "raw"."""
    named: dict[str, Any] = {}
    for kind in options.calibrators:
        if kind not in CALIBRATORS:
            known = ", ".join(CALIBRATORS)
            raise ValueError(f"--calibrators has {kind!r}; expected some of {known}.")
        if kind != "whitening":
            named[kind] = CALIBRATORS[kind]
            continue
        for n_components, noise in product(options.n_components, options.noise):
            whitening = Whitening(n_components, noise=noise)
            check_params(whitening)  # wrong ones show before hours of work
            named[str(whitening)] = whitening
    return named


def dimensions(value: str) -> list[int | None]:
    """Return numbers of dimensions, None for "all"."""
    return [None if name == "all" else int(name) for name in names(value)]


def levels(value: str) -> list[float | str]:
    """Return numbers, or "auto"."""
    return [name if name == "auto" else float(name) for name in names(value)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its arguments."""
    parser.description = (
        "Print Spearman's rho x 100 on the benchmarks of semantic textual similarity. With "
        "--retrieval, print the measures of a search, and 95 % intervals of the differences to "
        "the first row. Each combination of pooling, layers and calibrator has a row."
    )
    parser.epilog = (
        "Lists are separated by commas. A list that starts with a minus needs an equals sign: "
        "--layers=-1,first_last. Benchmarks are read from --data-home or SKCALIB_DATA, a "
        "folder of CSV files, or else from the hub."
    )
    add = parser.add_argument
    add("--model", default="minilm", help="hub id, folder, or minilm (of the demo extra)")
    on = parser.add_mutually_exclusive_group()
    seven = "default: all seven; also toy"
    on.add_argument("--tasks", type=names, default=list(BENCHMARKS), help=seven)
    on.add_argument("--retrieval", metavar="FOLDER", help="search a folder in BEIR's layout")
    add("--split", help="with --retrieval, file in qrels; default: test")
    kinds = "raw,whitening"
    known = f"some of {', '.join(CALIBRATORS)}; default: {kinds}"
    add("--calibrators", type=names, default=kinds, help=known)
    kept = "dimensions that a whitening keeps, or all; several give a row each; default: all"
    add("--n-components", type=dimensions, default="all", help=kept)
    add("--noise", type=levels, default="auto", help="of a whitening, or auto; default: auto")
    add("--pooling", type=names, default="mean", help="default: mean")
    several = "ints, names, or ints joined by + such as 0+3; default: -1"
    add("--layers", type=names, default="-1", help=several)
    add_encoding(add)
    sources = (
        "target (the scored sentences themselves, or the documents that are searched), train "
        "(STS-B's training split), or a file with one sentence per line; default: target"
    )
    add("--fit-on", default="target", help=sources)
    add_column(add)
    hows = "of subsets; wmean is what BERT-flow's paper reports; default: all"
    add("--aggregate", choices=("all", "mean", "wmean"), default="all", help=hows)
    add("--data-home", help="folder of CSV files")
    add("--output", help="new CSV file; each row is written as soon as it is known")
    add("-q", "--quiet", action="store_true", help="no progress bar")


def run(options: argparse.Namespace) -> None:
    """Evaluate, print a table, and write it to a file if asked."""
    calibrators = named_calibrators(options)  # checked before anything is encoded
    for name in ("split", "query_prompt"):
        if not options.retrieval and getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} needs --retrieval FOLDER.")
    is_named = options.fit_on in ("target", "train")
    texts = options.fit_on if is_named else texts_in(options.fit_on, options.column)
    fixed = options.fit_on, "" if options.retrieval else options.aggregate
    options.verbose = not options.quiet and sys.stderr.isatty()
    rows = {" ".join(r): r for r in product(options.pooling, options.layers, calibrators)}
    pipelines: dict[str, Pipeline] = {}
    tables: list[ScoreTable] = []
    with new_file(options.output) as file, folder_for(options.memory) as memory:
        for row, (pooling, layer, name) in rows.items():
            encoder = encoder_of(options, pooling=pooling, layers=layers(layer), memory=memory)
            steps = [("encode", encoder), ("calibrate", calibrators[name])]
            pipelines[row] = Pipeline(steps)
        with warnings.catch_warnings():  # the rows repeat them
            warnings.simplefilter("ignore")
            for pipeline in pipelines.values():  # a bad layer shows before hours of work
                width = len(clone(pipeline["encode"]).fit([""]).get_feature_names_out())
                kept = pipeline.get_params().get("calibrate__n_components")
                if isinstance(kept, int) and kept > width:
                    raise ValueError(
                        f"--n-components {kept} exceeds the {width} dimensions of the vectors. "
                        f"Give numbers up to {width}, or all."
                    )
        writer, settings = csv.writer(file), iter(rows.values())
        for table in (_search if options.retrieval else _similarity)(pipelines, texts, options):
            if not tables:
                writer.writerow([*SETTINGS, *table.columns])
            for scores in table.scores:
                known = options.model, *next(settings), *fixed
                writer.writerow([*known, *(f"{score:.2f}" for score in scores)])
            file.flush()
            tables.append(table)
    if len(tables) > 1:
        scores = np.vstack([table.scores for table in tables])
        table = ScoreTable(tuple(rows), table.columns, scores)
    print(table)


@contextmanager
def new_file(path: str | None) -> Iterator[TextIO]:
    """Open a new file, and remove it if nothing is written; or no file."""
    if path is None:
        yield StringIO()
        return
    output = Path(path).expanduser()
    if output.is_file() and not output.stat().st_size:
        output.unlink()  # of a process that was killed
    elif output.exists():
        raise FileExistsError(f"--output {path!r} exists. Choose another, or remove it.")
    try:
        with output.open("x", encoding="utf-8", newline="") as file:
            yield file
    finally:
        if output.exists() and not output.stat().st_size:
            output.unlink()


def _similarity(
    pipelines: dict[str, Pipeline], texts: Any, options: argparse.Namespace
) -> Iterator[ScoreTable]:
    """Yield a table of each row, as soon as it is known."""
    for row, pipeline in pipelines.items():
        yield evaluate_sts(
            {row: pipeline},
            options.tasks,
            fit_on=texts,
            aggregate=options.aggregate,
            data_home=options.data_home,
            verbose=options.verbose,
        )


def _search(
    pipelines: dict[str, Pipeline], texts: Any, options: argparse.Namespace
) -> Iterator[ScoreTable]:
    """Yield the table of all rows, which are compared with the first."""
    prompt = options.prompt if options.query_prompt is None else options.query_prompt
    encoders = {
        row: clone(pipeline["encode"]).set_params(prompt=prompt)
        for row, pipeline in pipelines.items()
    }
    yield evaluate_retrieval(
        pipelines,
        options.retrieval,
        queries_encoder=encoders,
        split=options.split or "test",
        fit_on=checked_texts(texts, options.data_home),
        verbose=options.verbose,
    )
