"""Collections for search with queries, read from folders in BEIR's layout."""

from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np

from skcalib.inputs.files import rows_of

HEADER = ["query-id", "corpus-id", "score"]


class Collection(NamedTuple):
    """Documents and queries by decreasing id, whatever the order of lines in files."""

    documents: dict[str, str]  # that have text
    queries: list[str]  # that have a relevant document
    grades: list[dict[str, float]]  # of each query's relevant documents, even missing ones
    itself: np.ndarray  # row of the document that a query is, by its id and text, or -1
    note: str  # what was counted and what was left out


def read_beir(folder: str | PathLike[str], split: str) -> Collection:
    """Read ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/{split}.tsv`` of a folder."""
    folder = Path(folder).expanduser()
    files = "corpus.jsonl", "queries.jsonl", f"qrels/{split}.tsv"
    if missing := [file for file in files if not (folder / file).is_file()]:
        splits = ", ".join(sorted(p.stem for p in folder.glob("qrels/*.tsv"))) or "none"
        raise FileNotFoundError(
            f"There is no {missing[0]} in {str(folder)!r}. Give a folder in BEIR's layout: "
            f"{', '.join(files)}. Splits found: {splits}; choose one of them."
        )
    corpus, queries = (_texts(folder / file) for file in files[:2])
    relevant = _relevant(folder / files[2], queries)
    wanted = {name for grades in relevant.values() for name in grades}
    if not wanted & corpus.keys():
        raise ValueError(
            f"corpus.jsonl has none of the {len(wanted)} relevant documents of {files[2]}, "
            f"such as the _id {min(wanted)!r:.60}. Check that both belong together."
        )
    documents = {name: corpus[name] for name in sorted(corpus, reverse=True) if corpus[name]}
    names, rows = sorted(relevant, reverse=True), {name: i for i, name in enumerate(documents)}
    # A document may have a title that the query lacks.
    itself = [
        rows[name] if name in rows and _ends_with(documents[name], queries[name]) else -1
        for name in names
    ]
    note = (
        f"{len(names)} queries and {len(documents)} documents; {len(queries) - len(names)} "
        f"queries without a relevant one and {len(corpus) - len(documents)} empty documents "
        "are\nleft out."
    )
    if n_itself := np.sum(np.array(itself) >= 0):
        note += f" {n_itself} queries are documents and do not find themselves."
    if n_missing := len(wanted - corpus.keys()):
        note += f" {n_missing} relevant documents are missing, and count as not found."
    texts, grades = zip(*((queries[name], relevant[name]) for name in names), strict=True)
    return Collection(documents, [*texts], [*grades], np.array(itself), note)


def _ends_with(document: str, query: str) -> bool:
    return " ".join(document.split()).endswith(" ".join(query.split()))


def _texts(path: Path) -> dict[str, str]:
    """Return titles and texts, joined, of a file of JSON lines by id."""
    texts = {}
    for place, entry in rows_of(path, ["_id", "text"]):
        parts = entry.get("title") or "", entry["text"]
        if not all(isinstance(part, str) for part in parts):
            raise ValueError(f"{place} is {entry!r:.60}; expected text and title as str.")
        texts[str(entry["_id"])] = " ".join(filter(None, map(str.strip, parts)))
    return texts


def _relevant(path: Path, queries: dict[str, str]) -> dict[str, dict[str, float]]:
    """Return the grades of relevant documents by id, of each query that has any.

    As in trec_eval, a document that the corpus lacks counts as not found.
    """
    relevant: dict[str, dict[str, float]] = {}
    for place, row in rows_of(path, HEADER):
        query, document, score = (row[name] for name in HEADER)
        try:
            grade = float(score)
        except ValueError as error:
            raise ValueError(
                f"{place} has the score {score!r:.60}; expected a number."
            ) from error
        if query not in queries:
            raise ValueError(f"{place} is of the query {query!r:.60}; queries.jsonl lacks it.")
        if grade > 0:
            relevant.setdefault(query, {})[document] = grade
    if not relevant:
        raise ValueError(f"{path} has no score above 0. Choose another split.")
    return relevant
