"""Make a file of docs/results: the answer to one question, measured with one encoder.

    SKCALIB_DATA=data/sts python experiments/run.py search --encoder e5 --models models

Each experiment is a module beside this one, with ``rows(encode, options)``; its docstring says
what it measures. ``docs/results/NAME-ENCODER.csv`` has the rows, and ``docs/results/made.csv``
the command, the commit and the versions by which each file was made. Those that compare
encoders take no ``--encoder``. Afterwards ``python docs/tables.py`` writes the tables of the
pages.
"""

import argparse
import shlex
import subprocess
import sys
import time
import warnings
from datetime import date
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pandas as pd
from data import ENCODERS, Encoder

HERE = Path(__file__).parent
RESULTS = HERE.parent / "docs" / "results"
PARTS = {"run", "data", "contenders", "measures", "classes"}
NAMES = sorted(file.stem for file in HERE.glob("*.py") if file.stem not in PARTS)
VERSIONS = "numpy", "scikit-learn", "torch", "transformers"


def merged(path, rows):
    """Return the rows of a file, with new ones in the place of those with their first cells."""
    new = pd.DataFrame(rows, dtype=object)
    if not path.exists():
        return new
    old, first = pd.read_csv(path, dtype=str, keep_default_na=False), new.columns[0]
    return pd.concat([old[~old[first].isin(new[first])], new])


def write(path, table):
    table.to_csv(path, index=False, lineterminator="\n")


def git(*words):
    return subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True).stdout


def remember(path, command, seconds):
    """Write how a file was made into the list of all."""
    changed = git("status", "--porcelain", "--", "../skcalib", ".").strip()
    python = ".".join(map(str, sys.version_info[:2]))
    row = {
        "file": path.name,
        "command": command,
        "commit": git("rev-parse", "--short", "HEAD").strip() + "+" * bool(changed),
        "date": date.today().isoformat(),
        "seconds": f"{seconds:.0f}",
        "versions": " ".join([f"python {python}", *(f"{p} {version(p)}" for p in VERSIONS)]),
    }
    made = path.with_name("made.csv")
    write(made, merged(made, [row]).sort_values("file"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--encoder", choices=ENCODERS)
    parser.add_argument("--models", type=Path, help="folder of models; default: from the hub")
    parser.add_argument("--memory", type=Path, default="vectors", help="folder for vectors")
    parser.add_argument("--most", type=int, help="texts of each set, for a quick look")
    parser.add_argument("--only", nargs="+", help="names of sets or jobs; rows of others stay")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of few texts and of long ones
    experiment = import_module(options.name)
    encode = Encoder(options.encoder or "minilm", options.memory, options.models)
    start, rows = time.perf_counter(), []
    for row in experiment.rows(encode, options):
        rows.append(row)
        print(*row.values(), sep=" | ", flush=True)
    parts = filter(None, [options.name.replace("_", "-"), options.encoder])
    path = options.results / f"{'-'.join(parts)}.csv"
    write(path, merged(path, rows) if options.only else pd.DataFrame(rows, dtype=object))
    words = [options.name]
    for name in ("encoder", "most", "only"):
        if given := getattr(options, name):
            words += [f"--{name}", *(given if name == "only" else [str(given)])]
    command = f"python experiments/run.py {shlex.join(words)}"
    remember(path, command, time.perf_counter() - start)


if __name__ == "__main__":
    main()
