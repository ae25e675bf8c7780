"""The command ``skcalib evaluate``."""

import argparse
import csv
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline

from skcalib import BertEncoder, GroupErasure, NeighborSmoothing
from skcalib._calibrators import CALIBRATORS
from skcalib._command_line import add_encoding, layers, names, texts_in
from skcalib._encoder.any_encoder import fit_with_groups
from skcalib.datasets._sts import HUB, SPLITS
from skcalib.evaluation import ScoreTable, evaluate_retrieval, evaluate_sts
from skcalib.evaluation._beir import read_beir
from skcalib.evaluation._sts import BENCHMARKS, checked_texts
from skcalib.model_selection._encoders import folder_for

SETTINGS = ("model", "pooling", "layers", "calibrator", "fit_on", "aggregate")


def named_calibrators(options: argparse.Namespace) -> dict[str, Any]:
    """Return the calibrators of the rows, by name; "passthrough" is that of "raw"."""
    named: dict[str, Any] = {}
    for kind in options.calibrators:
        if (how := CALIBRATORS.get(kind)) is None:
            raise ValueError(
                f"There is no calibrator {kind!r}. Choose from {', '.join(CALIBRATORS)}. "
                "Options such as --n-components 128,64 and --noise 0,auto give several "
                "whitenings."
            )
        if how.needs and not getattr(options, how.needs):
            raise ValueError(f"--calibrators {kind} needs --{how.needs} FOLDER.")
        for values in product(*(getattr(options, name) for name in how.options)):
            made = how.make(**dict(zip(how.options, values, strict=True)))
            named[str(made) if values else kind] = made
    if options.smoothing:
        smoothed = {k: make_pipeline(step, NeighborSmoothing()) for k, step in named.items()}
        named |= {f"{name}, smoothed": pipeline for name, pipeline in smoothed.items()}
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
    _add_calibrators(add)
    add("--pooling", type=names, default="mean", help="default: mean")
    several = "ints, names, or ints joined by + such as 0+3; default: -1"
    add("--layers", type=names, default="-1", help=several)
    add("--layer-merge", default="mean", help="of 0+3: mean or concat; default: mean")
    add_encoding(add)
    sources = (
        "target (the scored sentences themselves, or the documents that are searched), train "
        "(STS-B's training split), or a file with one sentence per line; default: target"
    )
    add("--fit-on", default="target", help=sources)
    hows = "of subsets: all, mean, or wmean, which BERT-flow's paper reports; default: all"
    add("--aggregate", default="all", help=hows)
    add("--data-home", help="folder of CSV files")
    add("--output", help="new CSV file, which gets each row as soon as it is known")
    add("--force", action="store_true", help="replace the file of --output")
    add("-q", "--quiet", action="store_true", help="no progress bar")


def _add_calibrators(add: Callable[..., Any]) -> None:
    kinds = "raw,whitening"
    also = "also flow; and search, which erases documents against queries, then whitens"
    add("--calibrators", type=names, default=kinds, help=f"{also}; default: {kinds}")
    kept = "dimensions that a whitening keeps, or all; several give a row each; default: all"
    add("--n-components", type=dimensions, default="all", help=kept)
    add("--noise", type=levels, default="auto", help="of a whitening, or auto; default: auto")
    add("--shrinkage", type=levels, default="0", help="of a whitening, or auto; default: 0")
    smoothed = "also try each calibrator followed by NeighborSmoothing"
    add("--smoothing", action="store_true", help=smoothed)


def run(options: argparse.Namespace) -> None:
    """Evaluate, print a table, and write it to a file if asked."""
    calibrators = named_calibrators(options)  # checked before anything is encoded
    fit_on = options.fit_on
    if fit_on not in ("target", "train") and not Path(fit_on).expanduser().exists():
        raise ValueError(f"--fit-on {fit_on!r} is neither target nor train, nor a file.")
    for name in ("split", "query_prompt"):
        if not options.retrieval and getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} needs --retrieval FOLDER.")
    _check_output(options)
    texts = fit_on if fit_on in ("target", "train") else texts_in(fit_on)
    aggregate = "" if options.retrieval else options.aggregate
    settings, pipelines = {}, {}
    tables: list[ScoreTable] = []
    with opened(options.output) as file, folder_for(options.memory) as memory:
        for row in product(options.pooling, options.layers, calibrators):
            pooling, layer, name = row
            encoder = BertEncoder(
                options.model,
                pooling=pooling,
                layers=layers(layer),
                layer_merge=options.layer_merge,
                prompt=options.prompt,
                overflow=options.overflow,
                memory=memory,
            )
            settings[" ".join(row)] = (options.model, *row, fit_on, aggregate)
            steps = [("encode", encoder), ("calibrate", calibrators[name])]
            pipelines[" ".join(row)] = Pipeline(steps)
        with warnings.catch_warnings():  # which the rows give again
            warnings.simplefilter("ignore")
            for pipeline in pipelines.values():  # a bad layer shows before hours of work
                clone(pipeline["encode"]).fit([""])
        writer, rows = csv.writer(file), iter(settings.values())
        for table in (_search if options.retrieval else _similarity)(pipelines, texts, options):
            if not tables:
                file.truncate(0)
                writer.writerow([*SETTINGS, *table.columns])
            for scores in table.scores:
                writer.writerow([*next(rows), *(f"{score:.2f}" for score in scores)])
            file.flush()
            tables.append(table)
    if len(tables) > 1:
        scores = np.vstack([table.scores for table in tables])
        table = ScoreTable(tuple(pipelines), table.columns, scores)
    print(table)


def _check_output(options: argparse.Namespace) -> None:
    """Refuse a file that exists, unless forced, and always one that is read."""
    if options.output is None or not (output := Path(options.output).expanduser()).exists():
        return
    home = Path(options.data_home or os.environ.get("SKCALIB_DATA") or ".").expanduser()
    inputs = [Path(options.fit_on).expanduser()]
    inputs += [home / f"{task}-{split}.csv" for task in HUB for split in SPLITS]
    for folder in filter(None, (options.retrieval, options.model, options.memory)):
        inputs += Path(folder).expanduser().rglob("*")
    if any(path.is_file() and path.samefile(output) for path in inputs):
        raise FileExistsError(
            f"--output {options.output!r} exists and is read. Choose another."
        )
    if not options.force:
        raise FileExistsError(f"--output {options.output!r} exists; --force replaces it.")


@contextmanager
def opened(output: str | None) -> Iterator[TextIO]:
    """Open the file for the scores, keep its content until there are new ones, or no file."""
    if output is None:
        yield StringIO()
        return
    path = Path(output).expanduser()
    try:
        with path.open("a", encoding="utf-8", newline="") as file:
            yield file
    finally:
        if path.is_file() and not path.stat().st_size:
            path.unlink()


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
            verbose=_is_watched(options),
        )


def _search(
    pipelines: dict[str, Pipeline], texts: Any, options: argparse.Namespace
) -> Iterator[ScoreTable]:
    """Yield the table of all rows, which are compared with the first."""
    of_queries = None
    if options.query_prompt is not None:
        of_queries = {
            row: clone(pipeline["encode"]).set_params(prompt=options.query_prompt)
            for row, pipeline in pipelines.items()
        }
    for row, pipeline in pipelines.items():
        first = of_queries[row] if of_queries else pipeline["encode"]
        if GroupErasure in map(type, _steps(pipeline)):
            pipelines[row] = _of_two_groups(pipeline, first, texts, options)
    yield evaluate_retrieval(
        pipelines,
        options.retrieval,
        queries_encoder=of_queries,
        split=options.split or "test",
        fit_on=checked_texts(texts, options.data_home),
        verbose=_is_watched(options),
    )


def _steps(pipeline: Pipeline) -> Iterator[Any]:
    for _, step in pipeline.steps:
        yield from _steps(step) if isinstance(step, Pipeline) else [step]


def _of_two_groups(
    pipeline: Pipeline, of_queries: Any, texts: Any, options: argparse.Namespace
) -> Pipeline:
    """Fit on documents and queries as two groups, as `calibrate` does with ``queries=``."""
    found = read_beir(options.retrieval, options.split or "test")
    texts = checked_texts(texts, options.data_home)
    encoder, calibrator = (clone(step) for _, step in pipeline.steps)
    sides = encoder.fit_transform(list(found.documents.values()) if texts is None else texts)
    sides = sides, clone(of_queries).fit_transform(list(found.queries.values()))
    groups = np.repeat(["document", "query"], list(map(len, sides)))
    fit_with_groups(calibrator, np.vstack(sides), groups, "skcalib evaluate")
    return Pipeline([("encode", encoder), ("calibrate", calibrator)])


def _is_watched(options: argparse.Namespace) -> bool:
    return not options.quiet and sys.stderr.isatty()
