"""The command ``skcalib evaluate``."""

import argparse
import csv
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline

import skcalib
from skcalib import GroupErasure, NeighborSmoothing, Whitening
from skcalib.base import FloatTransformer, calibrator_tags
from skcalib.cli.options import add_column, add_encoding, encoder_of, layers, names, texts_in
from skcalib.compat import check_params
from skcalib.encoders.any_encoder import fit_with_groups
from skcalib.evaluation import ScoreTable, evaluate_retrieval, evaluate_sts
from skcalib.evaluation._beir import read_beir
from skcalib.evaluation._sts import BENCHMARKS, checked_texts
from skcalib.model_selection._encoders import folder_for

SETTINGS = ("model", "pooling", "layers", "calibrator", "fit_on", "aggregate")


class Calibrator(NamedTuple):
    """A calibrator that ``--calibrators`` names."""

    make: Callable[..., Any]
    options: tuple[str, ...] = ()  # its parameters, each a list to try
    needs: str = ""  # another option that it requires


def _of_skcalib() -> Iterator[tuple[str, Calibrator]]:
    """Yield the steps that calibrate, by the last word of their names, in lower case."""
    for kind in (getattr(skcalib, name) for name in skcalib.__all__):
        if not (isinstance(kind, type) and issubclass(kind, FloatTransformer)):
            continue
        step: Any = kind()
        if calibrator_tags(step).calibrates:
            seed = {"random_state": 0} if hasattr(step, "random_state") else {}
            name = re.findall("[A-Z][a-z]*", kind.__name__)[-1].lower()
            yield name, Calibrator(partial(kind, **seed))


CALIBRATORS = {
    "raw": Calibrator(lambda: "passthrough"),
    **dict(_of_skcalib()),
    "whitening": Calibrator(Whitening, ("n_components", "noise", "shrinkage")),
    "search": Calibrator(
        lambda: make_pipeline(GroupErasure(), Whitening(noise="auto")), needs="retrieval"
    ),
}


def named_calibrators(options: argparse.Namespace) -> dict[str, Any]:
    """Return the calibrators of the rows, by name; "passthrough" is that of "raw"."""
    named: dict[str, Any] = {}
    for kind in options.calibrators:
        if (how := CALIBRATORS.get(kind)) is None:
            known = ", ".join(CALIBRATORS)
            raise ValueError(f"--calibrators has {kind!r}; expected some of {known}.")
        if how.needs and not getattr(options, how.needs):
            raise ValueError(f"--calibrators {kind} needs --{how.needs} FOLDER.")
        for values in product(*(getattr(options, name) for name in how.options)):
            made = how.make(**dict(zip(how.options, values, strict=True)))
            if values:  # wrong ones show before hours of work
                check_params(made)
            named[str(made) if values else kind] = made
    if options.smoothing:
        for name, made in list(named.items()):
            named[f"{name}, smoothed"] = make_pipeline(made, NeighborSmoothing())
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
    known = f"some of {', '.join(CALIBRATORS)}; search erases documents against queries"
    add("--calibrators", type=names, default=kinds, help=f"{known}; default: {kinds}")
    kept = "dimensions that a whitening keeps, or all; several give a row each; default: all"
    add("--n-components", type=dimensions, default="all", help=kept)
    add("--noise", type=levels, default="auto", help="of a whitening, or auto; default: auto")
    add("--shrinkage", type=levels, default="0", help="of a whitening, or auto; default: 0")
    smoothed = "also try each calibrator followed by NeighborSmoothing"
    add("--smoothing", action="store_true", help=smoothed)
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
    add_column(add)
    hows = "of subsets; wmean is what BERT-flow's paper reports; default: all"
    add("--aggregate", choices=("all", "mean", "wmean"), default="all", help=hows)
    add("--data-home", help="folder of CSV files")
    add("--output", help="new CSV file; each row is written as soon as it is known")
    add("--force", action="store_true", help="replace the file of --output; keep it as FILE~")
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
    with new_file(options.output, options.force) as file, folder_for(options.memory) as memory:
        for row, (pooling, layer, name) in rows.items():
            encoder = encoder_of(options, pooling=pooling, layers=layers(layer), memory=memory)
            steps = [("encode", encoder), ("calibrate", calibrators[name])]
            pipelines[row] = Pipeline(steps)
        with warnings.catch_warnings():  # the rows repeat them
            warnings.simplefilter("ignore")
            for pipeline in pipelines.values():  # a bad layer shows before hours of work
                width = len(clone(pipeline["encode"]).fit([""]).get_feature_names_out())
                for name, value in pipeline.get_params().items():
                    if name.endswith("n_components") and isinstance(value, int):
                        _check_components(value, width)
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


def _check_components(n_components: int, width: int) -> None:
    if n_components > width:
        raise ValueError(
            f"--n-components {n_components} exceeds the {width} dimensions of the vectors. "
            f"Give numbers up to {width}, or all."
        )


@contextmanager
def new_file(path: str | None, force: bool) -> Iterator[TextIO]:
    """Open a new file, and remove it if nothing is written; or no file."""
    if path is None:
        yield StringIO()
        return
    output = Path(path).expanduser()
    kept = Path(f"{output}~")
    if force and output.is_file():
        if kept.exists():
            raise FileExistsError(
                f"--force keeps {path!r} as {str(kept)!r}, which exists. Move it away first."
            )
        output.replace(kept)  # it may be one that is read
    elif output.is_file() and not output.stat().st_size:
        output.unlink()  # of a process that was killed
    elif output.exists():
        raise FileExistsError(f"--output {path!r} exists. Choose another, or use --force.")
    file = output.open("x", encoding="utf-8", newline="")
    try:
        with file:
            yield file
    finally:
        if not output.stat().st_size:
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
    fit_on, split = checked_texts(texts, options.data_home), options.split or "test"
    collection = cache(lambda: read_beir(options.retrieval, split))  # if a row erases groups
    prompt = options.prompt if options.query_prompt is None else options.query_prompt
    encoders = {}
    for row, pipeline in pipelines.items():
        encoder = encoders[row] = clone(pipeline["encode"]).set_params(prompt=prompt)
        if any(isinstance(step, GroupErasure) for step in pipeline.get_params().values()):
            pipelines[row] = fitted = clone(pipeline)  # on both sides of the search
            documents = list(collection().documents.values()) if fit_on is None else fit_on
            of_queries = encoder.fit_transform(list(collection().queries.values()))
            sides = fitted["encode"].fit_transform(documents), of_queries
            groups = np.repeat(["document", "query"], list(map(len, sides)))
            fit_with_groups(fitted["calibrate"], np.vstack(sides), groups)
    yield evaluate_retrieval(
        pipelines,
        options.retrieval,
        query_encoder=encoders,
        split=split,
        fit_on=fit_on,
        verbose=options.verbose,
    )
