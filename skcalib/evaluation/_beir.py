"""Collections for search with queries, read from folders in BEIR's layout."""

import json
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from skcalib._texts import lines_of

LARGEST = 10**9  # grade
HEADER = ["query-id", "corpus-id", "score"]


class Collection(NamedTuple):
    """Documents and queries by falling id, whatever the order of lines in files.

    ``documents`` have text, and ``queries`` have a relevant document. ``grades`` has the grades
    of each query's relevant documents by id, including empty documents.
    """

    documents: dict[str, str]
    queries: dict[str, str]
    grades: list[dict[str, int]]
    n_empty: int
    n_left_out: int


def read_beir(folder: str | PathLike[str], split: str) -> Collection:
    """Read ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/{split}.tsv`` of a folder."""
    folder = Path(folder).expanduser()
    files = folder / "corpus.jsonl", folder / "queries.jsonl", folder / "qrels" / f"{split}.tsv"
    for path in files:
        if not path.is_file():
            found = ", ".join(sorted(p.stem for p in folder.glob("qrels/*.tsv"))) or "none"
            raise FileNotFoundError(
                f"There is no {path.relative_to(folder).as_posix()} in {str(folder)!r}. Give a "
                "folder in BEIR's layout: corpus.jsonl, queries.jsonl and "
                f"qrels/{split}.tsv. Splits found: {found}; choose one with split=."
            )
    corpus, queries = _texts(files[0]), _texts(files[1])
    judged = _relevant(files[2], queries, corpus)
    documents = {name: corpus[name] for name in sorted(corpus, reverse=True) if corpus[name]}
    if not documents:
        raise ValueError(f"{files[0]} has no document with a text.")
    names = sorted(judged, reverse=True)
    if empty := [name for name in names if not queries[name]]:
        raise ValueError(
            f"{files[1]}: the query {empty[0]!r} is empty. Leave it out there and in the qrels."
        )
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
            name, title, text = entry["_id"], entry.get("title") or "", entry["text"]
        except (KeyError, TypeError, ValueError, RecursionError):
            name = title = text = None
        if not (
            isinstance(name, str | int) and isinstance(title, str) and isinstance(text, str)
        ):
            raise ValueError(
                f"{place} is {line!r:.60}; it should be a JSON object with _id and text, and "
                "perhaps a title, each a str."
            )
        if str(name) in texts:
            raise ValueError(f"{place} has the _id {name!r} again. Give each _id once.")
        texts[str(name)] = f"{title} {text}".strip()
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
            if abs(grade) > LARGEST:
                raise ValueError
        except ValueError:
            raise ValueError(
                f"{place} is {line!r:.60}; it should have {', '.join(HEADER)}, separated by "
                f"tabs, where the score is a whole number up to {LARGEST}."
            ) from None
        if query not in queries or document not in corpus:
            raise ValueError(
                f"{place} is {line!r:.60}; it should have the _id of a query in queries.jsonl "
                "and of a document in corpus.jsonl. Add it there, or delete this line."
            )
        if judged.setdefault((query, document), grade) != grade:
            raise ValueError(
                f"{place} gives {document!r} the score {grade} for the query {query!r}, but an "
                f"earlier line gives {judged[query, document]}. Give each pair one score."
            )
        if grade > 0:
            relevant.setdefault(query, {})[document] = grade
    if not relevant:
        raise ValueError(
            f"{path} has no score above 0; at least one query needs a relevant document. "
            "Choose another split with split=."
        )
    return relevant
