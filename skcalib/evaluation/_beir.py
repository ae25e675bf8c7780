"""Collections for search with queries, read from folders in BEIR's layout."""

from os import PathLike
from pathlib import Path
from typing import NamedTuple

from skcalib.inputs.files import rows_of

HEADER = ["query-id", "corpus-id", "score"]


class Collection(NamedTuple):
    """Documents and queries by decreasing id, whatever the order of lines in files."""

    documents: dict[str, str]  # that have text
    queries: dict[str, str]  # that have a relevant document
    grades: list[dict[str, int]]  # of each query's relevant documents, even missing ones
    itself: list[str | None]  # the document that a query is, by its id and text
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
    documents = {
        name: " ".join(filter(None, corpus[name]))
        for name in sorted(corpus, reverse=True)
        if any(corpus[name])
    }
    names = sorted(relevant, reverse=True)
    itself = [name if _is_same(queries[name], corpus.get(name)) else None for name in names]
    note = (
        f"{len(names)} queries and {len(documents)} documents; {len(queries) - len(names)} "
        f"queries without a relevant one and {len(corpus) - len(documents)} empty documents "
        "are\nleft out."
    )
    if n_itself := sum(name in documents for name in itself):
        note += f" {n_itself} queries are documents and do not find themselves."
    if n_missing := len(wanted - corpus.keys()):
        note += f" {n_missing} relevant documents are missing, and count as not found."
    texts = {name: " ".join(filter(None, queries[name])) for name in names}
    return Collection(documents, texts, [relevant[name] for name in names], itself, note)


def _is_same(query: tuple[str, str], document: tuple[str, str] | None) -> bool:
    """Whether a query has the text of a document, with its title or without."""
    if document is None:
        return False
    title, text = (" ".join(part.split()) for part in document)
    return " ".join(" ".join(query).split()) in (text, f"{title} {text}".strip())


def _texts(path: Path) -> dict[str, tuple[str, str]]:
    """Return titles and texts of a file of JSON lines by id."""
    texts: dict[str, tuple[str, str]] = {}
    for place, entry in rows_of(path):
        name, title, text = entry.get("_id"), entry.get("title") or "", entry.get("text")
        is_named = isinstance(name, str | int) and str(name) not in texts
        if not (is_named and isinstance(title, str) and isinstance(text, str)):
            raise ValueError(
                f"{place} is {entry!r:.60}; expected an object with _id, text and perhaps "
                "title, each a str, and with an _id that no other line has."
            )
        texts[str(name)] = title.strip(), text.strip()
    return texts


def _relevant(path: Path, queries: dict[str, tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Return the grades of relevant documents by id, of each query that has any.

    As in trec_eval, a document that the corpus lacks counts as not found.
    """
    judged: dict[tuple[str, str], int] = {}
    relevant: dict[str, dict[str, int]] = {}
    for place, row in rows_of(path, HEADER):
        query, document, score = (row[name] for name in HEADER)
        try:
            grade = int(float(score))  # some files have 1.0
            if grade != float(score):
                raise ValueError("a fraction")
        except (ValueError, OverflowError) as error:
            raise ValueError(
                f"{place} has the score {score!r:.60}; expected a whole number."
            ) from error
        problem = ""
        if query not in queries:
            problem = f"queries.jsonl has no query with the _id {query!r:.60}"
        elif grade > 0 and not any(queries[query]):
            problem = f"the query {query!r:.60} has no text in queries.jsonl"
        elif judged.setdefault((query, document), grade) != grade:
            problem = "another line has a different score for this pair"
        if problem:
            raise ValueError(f"{place} is {query!r:.60}, {document!r:.60}, {score}; {problem}.")
        if grade > 0:
            relevant.setdefault(query, {})[document] = grade
    if not relevant:
        raise ValueError(
            f"{path} has no score above 0; at least one query needs a relevant document. "
            "Choose another split."
        )
    return relevant
