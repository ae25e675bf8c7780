"""Command line: ``python -m skcalib.evaluation --help``."""

from __future__ import annotations

import argparse
import csv
import re
import sys
from itertools import product
from pathlib import Path

import numpy as np
from sklearn.pipeline import Pipeline

from skcalib import BertEncoder, NormalizingFlow, Whitening
from skcalib.datasets import minilm_path
from skcalib.evaluation._sts import TASKS, ScoreTable, evaluate_sts

SETTINGS = ("model", "pooling", "layers", "calibrator", "fit_on", "aggregate")
WHITENING = re.compile(r"whitening(?:-(\d+))?(?:-s(auto|[\d.]+))?")


def calibrator(name):
    """Return the calibrator of a name; "passthrough" for "raw"."""
    if name == "raw":
        return "passthrough"
    if name == "flow":
        return NormalizingFlow(random_state=0)
    if match := WHITENING.fullmatch(name):
        k, shrinkage = match.groups(default="")
        try:
            s = shrinkage if shrinkage == "auto" else float(shrinkage or 0)
            return Whitening(int(k) if k else None, shrinkage=s)
        except ValueError:
            pass  # several points in a number
    raise ValueError(
        f"There is no calibrator {name!r}; it takes raw, flow, or whitening with, if any, -K "
        "for K dimensions and -sS for a shrinkage: whitening-256, whitening-s0.5, "
        "whitening-128-sauto."
    )


def layers(name):
    """Return the `layers` of `BertEncoder` for an int, a name, or ints joined by "+"."""
    try:
        indices = tuple(int(part) for part in name.split("+"))
    except ValueError:
        return name  # such as "first_last"; BertEncoder checks it
    return indices if len(indices) > 1 else indices[0]


def lines_of(file):
    """Return the lines of a text file that are not empty, as the texts to fit on."""
    path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(
            f"--fit-on {file}: it takes target, train, or a file with one sentence per line, "
            "and there is no such file."
        )
    with path.open(encoding="utf-8") as stream:
        return [text for line in stream if (text := line.strip())]


def parser():
    """Return the parser of the command line."""

    def names(value):
        return [name.strip() for name in value.split(",")]

    parser = argparse.ArgumentParser(
        prog="python -m skcalib.evaluation",
        description="Spearman's rho x 100 on the benchmarks of semantic textual similarity: "
        "a row for each combination of pooling, layers and calibrator.",
        epilog="Lists are separated by commas. A list that starts with a minus needs an equals "
        "sign: --layers=-1,first_last. Benchmarks are read from --data-home or SKCALIB_DATA, "
        "a folder of CSV files, or else from the hub.",
    )
    add = parser.add_argument
    add("--model", help="hub id or folder; default: the MiniLM of the demo extra")
    add("--tasks", type=names, default=list(TASKS), help="default: all seven; also toy")
    add(
        "--calibrators",
        type=names,
        default=["raw", "whitening"],
        help="raw, flow, whitening, whitening-256, whitening-s0.5 (shrinkage), "
        "whitening-256-sauto; default: raw,whitening",
    )
    add("--pooling", type=names, default=["mean"], help="default: mean")
    add(
        "--layers",
        type=names,
        default=["-1"],
        help="ints, names, or ints joined by + such as 0+3; default: -1",
    )
    add(
        "--layer-merge",
        default="mean",
        choices=["mean", "concat"],
        help="of 0+3; default: mean",
    )
    add(
        "--fit-on",
        default="target",
        help="target (each set's own sentences, transductive), train (STS-B's training "
        "split), or a file with one sentence per line; default: target",
    )
    add(
        "--aggregate",
        default="all",
        choices=["all", "mean", "wmean"],
        help="of subsets; BERT-flow and BERT-whitening report wmean; default: all",
    )
    add("--data-home", help="folder of CSV files")
    add("--memory", help="folder for vectors, so that each text is encoded once, ever")
    add("--output", help="CSV file, a line as soon as a row is known")
    add("--verbose", action="store_true", help="show progress")
    return parser


def main(arguments=None):
    """Evaluate, print a table, and write it to a file if asked."""
    options = parser().parse_args(arguments)
    fit_on = options.fit_on
    try:
        # Names are checked before anything is encoded.
        calibrators = {name: calibrator(name) for name in options.calibrators}
        texts = fit_on if fit_on in ("target", "train") else lines_of(fit_on)
        model = options.model or minilm_path()
        tables = []
        for pooling, layer, name in product(options.pooling, options.layers, calibrators):
            encoder = BertEncoder(
                model,
                pooling=pooling,
                layers=layers(layer),
                layer_merge=options.layer_merge,
                memory=options.memory,
            )
            pipeline = Pipeline([("encode", encoder), ("calibrate", calibrators[name])])
            row = f"{pooling} {layer} {name}"
            table = evaluate_sts(
                {row: pipeline},
                options.tasks,
                fit_on=texts,
                aggregate=options.aggregate,
                data_home=options.data_home,
                verbose=options.verbose,
            )
            tables.append(table)
            if options.output:
                settings = (
                    options.model or "all-MiniLM-L6-v2",
                    pooling,
                    layer,
                    name,
                    fit_on,
                    options.aggregate,
                )
                _append(options.output, table, settings, new=len(tables) == 1)
        rows = tuple(row for table in tables for row in table.rows)
        print(ScoreTable(rows, table.columns, np.vstack([t.scores for t in tables])))
    except (ImportError, OSError, TypeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _append(path, table, settings, *, new):
    with Path(path).open("w" if new else "a", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        if new:
            writer.writerow([*SETTINGS, *table.columns])
        writer.writerow([*settings, *(f"{score:.2f}" for score in table.scores[0])])


if __name__ == "__main__":
    sys.exit(main())
