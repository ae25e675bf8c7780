"""Collections for search with queries, read from folders in BEIR's layout."""

from __future__ import annotations

import json
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Collection", "read_beir"]

HEADER = ["query-id", "corpus-id", "score"]


class Collection(NamedTuple):
    """Documents and queries by falling id, so that the order of lines in files plays no part.

    ``documents`` are those with text, ``queries`` those with a relevant document. ``grades``
    has the grades of each query's relevant documents by id, of the empty ones too.
    """

    documents: dict[str, str]
    queries: dict[str, str]
    grades: list[dict[str, int]]
    n_empty: int
    n_left_out: int


def read_beir(folder: str | PathLike[str], split: str) -> Collection:
    """Read ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/{split}.tsv`` of a folder.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If a line is not what the layout has there, an id is given twice or unknown, a query is
        empty, no document has text, or none is relevant.
    """
    folder = Path(folder).expanduser()
    files = folder / "corpus.jsonl", folder / "queries.jsonl", folder / "qrels" / f"{split}.tsv"
    for path in files:
        if not path.is_file():
            found = ", ".join(sorted(p.stem for p in folder.glob("qrels/*.tsv")))
            raise FileNotFoundError(
                f"There is no {path.relative_to(folder).as_posix()} in {str(folder)!r}; it "
                "takes a folder in BEIR's layout: corpus.jsonl, queries.jsonl and "
                f"qrels/{split}.tsv."
                + (f" Its splits are {found}; choose one with split=." if found else "")
            )
    corpus, queries = _texts(files[0]), _texts(files[1])
    judged = _relevant(files[2], queries, corpus)
    documents = {name: corpus[name] for name in sorted(corpus, reverse=True) if corpus[name]}
    if not documents:
        raise ValueError(f"{files[0]} has no document with text; give at least one.")
    names = sorted(judged, reverse=True)
    for name in names:
        if not queries[name]:
            raise ValueError(
                f"{files[1]}: the query {name!r} is empty; it takes queries with text. Leave "
                "it out there and in the qrels."
            )
    return Collection(
        documents,
        {name: queries[name] for name in names},
        [judged[name] for name in names],
        n_empty=len(corpus) - len(documents),
        n_left_out=len(queries) - len(names),
    )


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each line that is not blank behind its place, which messages begin with."""
    with path.open("rb") as file:  # text mode would not tell the line of a wrong byte
        for number, line in enumerate(file, 1):
            place = f"{path}, line {number}"
            try:
                content = line.decode("utf-8-sig").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise ValueError(f"{place} is not UTF-8: {error}. Convert the file.") from None
            if content.strip():
                yield place, content


def _texts(path: Path) -> dict[str, str]:
    """Return the texts of a file of JSON lines by id, behind their titles."""
    texts: dict[str, str] = {}
    for place, line in _lines(path):
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise ValueError(
                f"{place} is no JSON: {error}. It takes an object with _id and text in each "
                "line."
            ) from None
        name, text = _checked(entry, place)
        if name in texts:
            raise ValueError(f"{place} has the _id {name!r} again. Give each _id once.")
        texts[name] = text
    if not texts:
        raise ValueError(f"{path} is empty; it takes an object with _id and text in each line.")
    return texts


def _checked(entry: Any, place: str) -> tuple[str, str]:
    """Return id and text of an entry."""
    if not isinstance(entry, dict) or not {"_id", "text"} <= entry.keys():
        got = f"the keys {list(entry)}" if isinstance(entry, dict) else repr(entry)[:60]
        raise ValueError(f"{place} has {got}; it takes an object with _id and text.")
    name, title, text = entry["_id"], entry.get("title") or "", entry["text"]
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise ValueError(f"{place} has the _id {name!r}; it takes a str.")
    if not (isinstance(title, str) and isinstance(text, str)):
        wrong = text if isinstance(title, str) else title
        raise ValueError(
            f"{place} has {wrong!r:.60} for a title or text; it takes a str, maybe empty."
        )
    return str(name), f"{title} {text}".strip()


def _relevant(
    path: Path, queries: dict[str, str], corpus: dict[str, str]
) -> dict[str, dict[str, int]]:
    """Return the grades of relevant documents by id, of each query that has any."""
    lines = _lines(path)
    _, first = next(lines, ("", ""))
    if first.split("\t") != HEADER:
        raise ValueError(
            f"{path} begins with {first!r:.60}; it takes a header, "
            f"{', '.join(HEADER)}, separated by tabs."
        )
    judged: dict[tuple[str, str], int] = {}
    for place, line in lines:
        fields = line.split("\t")
        try:
            query, document, grade = *fields[:2], int(fields[2])
            if len(fields) > len(HEADER):
                raise ValueError
        except (IndexError, ValueError):
            raise ValueError(
                f"{place} is {line!r:.60}; it takes {', '.join(HEADER)}, separated by tabs, "
                "the score a whole number."
            ) from None
        for name, known, source in ((query, queries, "queries"), (document, corpus, "corpus")):
            if name not in known:
                raise ValueError(
                    f"{place} names {name!r}, which {source}.jsonl does not have. Add it "
                    "there, or leave the line out."
                )
        if judged.setdefault((query, document), grade) != grade:
            raise ValueError(
                f"{place} gives {document!r} the score {grade} for the query {query!r}, and "
                f"one before gives {judged[query, document]}. Give each pair one score."
            )
    relevant: dict[str, dict[str, int]] = {}
    for (query, document), grade in judged.items():
        if grade > 0:
            relevant.setdefault(query, {})[document] = grade
    if not relevant:
        raise ValueError(
            f"{path} has {len(judged)} scores and none above 0; a query needs a relevant "
            "document. Choose another split with split=."
        )
    return relevant
