"""Collections for search with queries, read from folders in BEIR's layout."""

import json
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from skcalib.utils.texts import lines_of

LARGEST = 10**9  # grade
HEADER = ["query-id", "corpus-id", "score"]


class Collection(NamedTuple):
    """Documents and queries by falling id, whatever the order of lines in files."""

    documents: dict[str, str]  # that have text
    queries: dict[str, str]  # that have a relevant document
    grades: list[dict[str, int]]  # of each query's relevant documents, empty ones as well
    n_empty: int
    n_left_out: int


def read_beir(folder: str | PathLike[str], split: str) -> Collection:
    """Read ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/{split}.tsv`` of a folder."""
    folder = Path(folder).expanduser()
    files = "corpus.jsonl", "queries.jsonl", f"qrels/{split}.tsv"
    if missing := [file for file in files if not (folder / file).is_file()]:
        found = ", ".join(sorted(p.stem for p in folder.glob("qrels/*.tsv"))) or "none"
        raise FileNotFoundError(
            f"There is no {missing[0]} in {str(folder)!r}. Give a folder in BEIR's layout: "
            f"{', '.join(files)}. Splits found: {found}; choose one of them."
        )
    corpus, queries = (_texts(folder / file) for file in files[:2])
    judged = _relevant(folder / files[2], queries, corpus)
    documents = {name: corpus[name] for name in sorted(corpus, reverse=True) if corpus[name]}
    names = sorted(judged, reverse=True)
    return Collection(
        documents,
        {name: queries[name] for name in names},
        [judged[name] for name in names],
        n_empty=len(corpus) - len(documents),
        n_left_out=len(queries) - len(names),
    )


def _texts(path: Path) -> dict[str, str]:
    """Return the texts of a file of JSON lines by id, each after its title."""
    texts: dict[str, str] = {}
    for place, line in lines_of(path):
        try:
            entry = json.loads(line)
            name, text = entry["_id"], " ".join([entry.get("title") or "", entry["text"]])
        except (KeyError, TypeError, ValueError, RecursionError):
            name = None
        if not isinstance(name, str | int) or str(name) in texts:
            raise ValueError(
                f"{place} is {line!r:.60}; it should be a JSON object with _id and text, and "
                "perhaps a title, each a str, and the _id that of no other line."
            )
        texts[str(name)] = text.strip()
    return texts


def _relevant(
    path: Path, queries: dict[str, str], corpus: dict[str, str]
) -> dict[str, dict[str, int]]:
    """Return the grades of relevant documents by id, of each query that has any."""
    lines = lines_of(path)
    _, header = next(lines, ("", ""))
    if header.split("\t") != HEADER:
        raise ValueError(
            f"{path} begins with {header!r:.60}; it should begin with the header "
            f"{', '.join(HEADER)}, separated by tabs."
        )
    judged: dict[tuple[str, str], int] = {}
    relevant: dict[str, dict[str, int]] = {}
    for place, line in lines:
        try:
            query, document, score = line.split("\t")
            grade = int(score.replace("_", "?"))  # as Python writes 10: 1_0
            judges = queries[query] or grade <= 0
            known = judges and document in corpus and abs(grade) <= LARGEST
        except (KeyError, ValueError):
            known = False
        if not known or judged.setdefault((query, document), grade) != grade:
            raise ValueError(
                f"{place} is {line!r:.60}; it should have {', '.join(HEADER)}, separated by "
                "tabs: the _id of a query with a text in queries.jsonl and of a document in "
                f"corpus.jsonl, and a whole number up to {LARGEST}, the only one for these two."
            )
        if grade > 0:
            relevant.setdefault(query, {})[document] = grade
    if not relevant:
        raise ValueError(
            f"{path} has no score above 0; at least one query needs a relevant document. "
            "Choose another split."
        )
    return relevant
