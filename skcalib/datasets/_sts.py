"""Pairs of texts: a bundled toy set, the benchmarks of similarity, and labeled pairs."""

import os
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from skcalib.base import import_package
from skcalib.inputs.files import rows_of, text_of

# Repository of each benchmark on the hub, and the hub's names of the splits of "stsb"; the
# others have only the last split.
HUB = {
    "stsb": "mteb/stsbenchmark-sts",
    "sickr": "mteb/sickr-sts",
    **{f"sts{year}": f"mteb/sts{year}-sts" for year in range(12, 17)},
}
SPLITS = {"train": "train", "dev": "validation", "test": "test"}
COLUMNS = ("sentence1", "sentence2", "score")
# Columns of labeled pairs: the two texts, and the label with its values.
SIDES = (
    ("question", "sentence"),
    ("question1", "question2"),
    ("#1 String", "#2 String"),
    ("sentence1", "sentence2"),
)
DIGITS = {"0": 0, "1": 1}
WORDS = {"entailment": 1, "not_entailment": 0, "neutral": 0, "contradiction": 0}
LABELS = {
    **dict.fromkeys(("is_answer", "is_duplicate", "Quality"), DIGITS),
    **dict.fromkeys(("gold_label", "label"), WORDS),
}


def load_toy_sts(*, return_X_y: bool = False) -> Any:
    """Load 300 sentence pairs graded for similarity, written for this project.

    Five genres of 60 pairs each, graded by one annotator from 0 (unrelated) to 5 (the same
    meaning). They are too few for published results.

    Parameters
    ----------
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    toy : Bunch
        ``data``, object array of shape (300, 2), the pairs; ``target``, array of shape
        (300,), their grades; ``subset``, array of shape (300,), their genres.

    Examples
    --------
    >>> from skcalib.datasets import load_toy_sts
    >>> toy = load_toy_sts()
    >>> toy.data.shape, float(toy.target.min()), float(toy.target.max())
    ((300, 2), 0.0, 5.0)
    """
    return _bunch(bundled_rows("toy_sts.csv"), "toy_sts.csv", return_X_y)


def fetch_sts(
    task: str,
    split: str = "test",
    *,
    data_home: str | os.PathLike[str] | None = None,
    return_X_y: bool = False,
) -> Any:
    """Load a benchmark of semantic textual similarity.

    It is read from a folder of CSV files named ``{task}-{split}.csv`` with columns sentence1,
    sentence2, score and, optionally, subset. Without a folder it is loaded from the Hugging
    Face hub with the ``datasets`` package (extra ``data``).

    Parameters
    ----------
    task : {"stsb", "sickr", "sts12", "sts13", "sts14", "sts15", "sts16"}
        Name of the benchmark, also as in the papers, such as "STS-B".
    split : {"train", "dev", "test"}, default="test"
        "sts12" to "sts16" have only "test", and so has "sickr" on the hub.
    data_home : path-like or None, default=None
        Folder of CSV files; None is the one that the environment variable ``SKCALIB_DATA``
        names, if any.
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    sts : Bunch
        ``data``, object array of shape (n_pairs, 2), the pairs; ``target``, array of shape
        (n_pairs,), grades from 0 to 5; ``subset``, array of shape (n_pairs,), the part of
        the benchmark (the task itself if the source names none).

    Raises
    ------
    ValueError
        If there is no such task or split, or if a row lacks two sentences or a grade.
    FileNotFoundError
        If the folder does not hold the file.

    References
    ----------
    Cer et al. (2017), "SemEval-2017 Task 1", for stsb; Marelli et al. (2014) for sickr;
    Agirre et al. (2012 to 2016) for sts12 to sts16.

    Examples
    --------
    >>> from skcalib.datasets import fetch_sts
    >>> pairs, grades = fetch_sts("stsb", "dev", return_X_y=True)  # doctest: +SKIP
    """
    if (name := task_name(task)) not in HUB:
        raise ValueError(f"task={task!r} is unknown. Use one of {', '.join(HUB)}.")
    task, folder = name, data_home if data_home is not None else os.environ.get("SKCALIB_DATA")
    if split not in (splits := _splits(task)):
        raise ValueError(f"split={split!r} is unknown; {task} has {', '.join(splits)}.")
    if not folder and task == "sickr" and split != "test":
        raise FileNotFoundError("On the hub, sickr has only the split test. Set data_home.")
    if not folder:
        hub = import_package("datasets", "datasets")
        rows = hub.load_dataset(HUB[task], split=SPLITS[split]).to_list()
        return _bunch(rows, HUB[task], return_X_y, task)
    path = Path(folder).expanduser() / f"{task}-{split}.csv"
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no {path.name} in {str(path.parent)!r}, the folder given by data_home "
            "or SKCALIB_DATA. Put the file there, or unset both to load it from the hub."
        )
    rows = [row for _, row in rows_of(path, COLUMNS)]
    return _bunch(rows, str(path), return_X_y, task)


def task_name(task: Any) -> str:
    """Return the name of a benchmark in `HUB`, such as "stsb" for "STS-B"."""
    return str(task).lower().replace("-", "")


def _splits(task: str) -> list[str]:
    return list(SPLITS) if task in ("stsb", "sickr") else ["test"]


def sentences_of(task: str, data_home: str | os.PathLike[str] | None) -> np.ndarray:
    """Return the sentences of a benchmark, of all splits that are at hand."""
    if task == "toy":
        return load_toy_sts().data.ravel()
    parts = []
    for split in _splits(task_name(task)):
        with suppress(FileNotFoundError):
            parts.append(fetch_sts(task, split, data_home=data_home).data.ravel())
    return np.concatenate(parts)


def load_pairs(path: str | os.PathLike[str]) -> tuple[np.ndarray, np.ndarray]:
    """Load pairs of texts with labels 0 and 1, from a file of QNLI, MRPC, QQP, SNLI or MNLI.

    Parameters
    ----------
    path : path-like
        A file of GLUE, or another with the same columns, in CSV, JSON or Parquet: the texts in
        question and sentence, question1 and question2, #1 String and #2 String, or sentence1
        and sentence2; the label as 0 or 1 in is_answer, is_duplicate or Quality, or as a word
        in gold_label or label, such as "entailment".

    Returns
    -------
    pairs : ndarray of shape (n_pairs, 2), object
        Rows without a label are left out. ``pairs.ravel()`` are the sentences, as of NLI to fit
        on.
    labels : ndarray of shape (n_pairs,), int
        1 for an answer, a duplicate, a paraphrase or entailment, otherwise 0.

    Examples
    --------
    >>> from skcalib.datasets import load_pairs
    >>> pairs, labels = load_pairs("QNLI/dev.tsv")  # doctest: +SKIP
    """
    path = Path(path).expanduser()
    if path.suffix in (".tsv", ".txt"):  # GLUE's have quotes that are part of a text
        header, *lines = (line.split("\t") for line in text_of(path).split("\n"))
        rows = [dict(zip(header, cells, strict=False)) for cells in lines]
    else:
        rows = [row for _, row in rows_of(path)]
    known = {*rows[0]} if rows else set()
    sides = next((pair for pair in SIDES if known >= {*pair}), None)
    column = next((name for name in LABELS if name in known), None)
    if sides is None or column is None:
        raise ValueError(f"{path} has the columns {sorted(known)}; load_pairs needs others.")
    values = {"": None, "-": None, "None": None, **LABELS[column]}
    labels = [str(row.get(column, "")).strip() for row in rows]
    if unknown := {*labels} - {*values}:
        raise ValueError(f"{path} has the {column} {unknown}; expected {[*LABELS[column]]}.")
    kept = [(row, values[label]) for row, label in zip(rows, labels, strict=True)]
    kept = [(row, value) for row, value in kept if value is not None]
    pairs = [[row.get(side) for side in sides] for row, _ in kept]
    return np.array(pairs, dtype=object), np.array([value for _, value in kept])


def bundled_rows(name: str) -> list[dict[str, Any]]:
    """Read a CSV file of this package."""
    with resources.as_file(resources.files("skcalib.datasets") / "data" / name) as path:
        return [row for _, row in rows_of(path)]


def _bunch(
    rows: list[dict[str, Any]], source: str, return_X_y: bool, task: str | None = None
) -> Bunch | tuple[np.ndarray, np.ndarray]:
    data = np.empty((len(rows), 2), dtype=object)
    target = np.full(len(rows), np.nan)
    for i, row in enumerate(rows):
        with suppress(KeyError, TypeError, ValueError):
            data[i] = row["sentence1"], row["sentence2"]
            target[i] = float(row["score"])
        is_grade = 0 <= target[i] <= 5
        if not (is_grade and all(isinstance(t, str) and t.strip() for t in data[i])):
            raise ValueError(
                f"{source} has a row without two sentences and a score from 0 to 5: row {i}, "
                f"{row!r:.120}. Each row needs the columns {', '.join(COLUMNS)}."
            )
    if return_X_y:
        return data, target
    subset = np.array([row.get("subset") or task for row in rows])
    return Bunch(data=data, target=target, subset=subset)
