"""Texts, labels, pairs and encoders of all experiments: one loader, one split, one seed.

``SKCALIB_DATA`` names the folder of the STS sets; the other folders stand beside it, as
``README.md`` says. Maps are fitted on training texts, without their labels, and scored on test
texts.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from skcalib import BertEncoder, VectorStore
from skcalib.datasets import fetch_sts

DATA = Path(os.environ.get("SKCALIB_DATA", "data/sts")).parent
CRANFIELD = DATA / "retrieval" / "cranfield"
SETS = {
    "Banking77": "tasks/banking77",
    "biomedical": "topics/biomedical",
    "news": "coarse/news",
    "intents": "narrow/intents",
    "spam": "narrow/spam",
    "emotions": "narrow/emotions",
}
SIDES = DATA / "sides"
MATCHES = "translations", "catalogues", "questions-code", "passages"
STS = "sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"
FITTED = 4000  # texts of a fit, at most
# The model, and what comes before its queries (or single texts) and its documents.
ENCODERS = {
    "minilm": ("minilm", "", ""),
    "e5": ("intfloat/multilingual-e5-small", "query: ", "passage: "),
    "mpnet": ("sentence-transformers/all-mpnet-base-v2", "", ""),
    "smollm2": ("smollm2", "", ""),  # a folder, see README.md
}


@dataclass(frozen=True)
class Encoder:
    """A model by name, with its prompts; calls return vectors as its authors make them."""

    name: str
    memory: Path  # folder for vectors
    models: Path | None = None  # folder of models; None asks the hub

    def bert(self, documents: bool = False, **params: Any) -> BertEncoder:
        """Return an encoder, by default of the mean of the last layer."""
        model, *prompts = ENCODERS[self.name]
        if self.models is not None and model != "minilm":
            model = str(self.models / model.split("/")[-1])
        kept = {"layers": (-1,), "pooling": "mean"}
        defaults = {"prompt": prompts[documents], "pooling": "mean"}
        params = {"memory": VectorStore(self.memory, **kept)} | defaults | params
        return BertEncoder(model, **params)

    def __call__(self, texts: Any, documents: bool = False, **params: Any) -> np.ndarray:
        return self.bert(documents, **params).fit_transform(list(texts))

    def named(self, name: str) -> "Encoder":
        return replace(self, name=name)


def labeled(name: str, half: str, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Texts and labels of a half of a set: all in their order, or some in a random one."""
    frame = pd.read_csv(DATA / f"{SETS[name]}-{half}.csv", keep_default_na=False)
    if most is not None:
        frame = frame.iloc[np.random.default_rng(0).permutation(len(frame))[:most]]
    return frame.iloc[:, 0].to_numpy(), frame.iloc[:, 1].astype(str).to_numpy()


def texts_of(name: str, n_fitted: int = 500, n_scored: int = 500) -> tuple:
    """Texts to fit on, texts to score, and the groups of these, each of two or more."""
    if name == "assistants":
        known = side(name)
        return known["fit"], known["texts"], np.unique(known["labels"], return_inverse=True)[1]
    texts, labels = labeled(name, "test", n_scored)
    kept = pd.Series(labels).duplicated(keep=False).to_numpy()
    codes = np.unique(labels[kept], return_inverse=True)[1]
    return labeled(name, "train", n_fitted)[0], texts[kept], codes


def sentences(most: int | None = FITTED) -> np.ndarray:
    """Sentences of STS-B's training pairs, in random order."""
    train = np.unique(fetch_sts("stsb", "train").data)
    return np.random.default_rng(0).permutation(train)[:most]


def pairs(task: str, split: str = "test") -> tuple[np.ndarray, np.ndarray]:
    """Pairs of texts and their grades; "stsb-de" is STS-B in German."""
    if "-" not in task:
        return fetch_sts(task, split, return_X_y=True)
    frame = pd.read_csv(DATA / "languages" / f"{task}-{split}.csv")
    return frame[["sentence1", "sentence2"]].to_numpy(), frame.iloc[:, -1].to_numpy()


def drawn_pairs(task: str, most: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of a set and their grades: all, or of a set but STS-B some at random."""
    both, grades = pairs(task)
    order = np.random.default_rng(0).permutation(len(both))
    order = order if task == "stsb" else order[:most]
    return both[order], grades[order]


def distinct(both: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Distinct texts of pairs, and their rows on both sides, (2, n_pairs)."""
    texts, places = np.unique(both, return_inverse=True)
    return texts.tolist(), places.reshape(np.shape(both)).T


def lookup(texts: Any, vectors: np.ndarray) -> Callable:
    """Return a function that returns the vectors of some of the texts."""
    row = {text: i for i, text in enumerate(texts)}
    return lambda some: vectors[[row[text] for text in some]]


def drawn(labels: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Rows of n labeled texts of each class."""
    order = np.random.default_rng(seed).permutation(len(labels))
    return np.concatenate([order[labels[order] == c][:n] for c in np.unique(labels)])


class Collection(NamedTuple):
    """Documents, queries, and grades of shape (n_queries, n_documents)."""

    documents: list[str]
    queries: list[str]
    grades: np.ndarray


@cache
def cranfield() -> Collection:
    """Documents with text and queries with a relevant one, by falling id."""
    texts = {}
    for part in ("corpus", "queries"):
        frame = pd.read_json(CRANFIELD / f"{part}.jsonl", lines=True, dtype=str).fillna("")
        both = (frame.get("title", "") + " " + frame["text"]).str.strip().set_axis(frame["_id"])
        texts[part] = both[both != ""].sort_index(ascending=False)
    documents, queries = texts["corpus"], texts["queries"]
    judged = pd.read_csv(CRANFIELD / "qrels" / "test.tsv", sep="\t", dtype={0: str, 1: str})
    grades = judged.pivot_table("score", "query-id", "corpus-id").clip(0)
    grades = grades.reindex(index=queries.index, columns=documents.index).fillna(0)
    grades = grades[grades.any(axis=1)]
    return Collection(documents.tolist(), queries[grades.index].tolist(), grades.to_numpy())


class Match(NamedTuple):
    """Two lists of texts, which of one belong to which of the other, and more if there are."""

    sides: tuple[list[str], list[str]]
    belong: np.ndarray  # (n_first, n_second), bool
    fit: tuple[list[str], list[str]]


@cache
def side(name: str) -> dict[str, Any]:
    """Content of a file of two sides."""
    return json.loads((SIDES / f"{name}.json").read_text("utf-8"))


def match(name: str) -> Match:
    """Two lists: translations, records of two databases, questions and what answers them."""
    found = side(name)
    first, second = ("q", "d") if "q" in found else ("a", "b")
    belong = np.zeros((len(found[first]), len(found[second])), bool)
    if name == "translations":
        np.fill_diagonal(belong, True)
    elif first == "a":
        belong[tuple(np.transpose(found["rel"]))] = True
    else:
        for row, columns in enumerate(found["rel"]):
            belong[row, columns] = True
    fit = found.get(f"fit_{first}", []), found.get(f"fit_{second}", [])
    return Match((found[first], found[second]), belong, fit)
