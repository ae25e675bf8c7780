"""Score encoders on search with queries, by judgments of relevance."""

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.metrics.pairwise import check_pairwise_arrays
from sklearn.pipeline import make_pipeline

from skcalib.base import is_fitted, progress, warn
from skcalib.calibration.step import flat
from skcalib.cosines import blocks, sparse_products
from skcalib.encoders.pipelines import (
    after_query_encoder,
    encoded,
    first_of_queries,
    fitted_on,
    ignores_sides,
    of_side,
)
from skcalib.evaluation._beir import read_beir
from skcalib.evaluation._score_table import ScoreTable, checked_encoders
from skcalib.inputs.texts import as_texts
from skcalib.inputs.vectors import comparable, unit_rows
from skcalib.model_selection.views import near_duplicates
from skcalib.statistics.bootstrap import interval

COLUMNS = ("nDCG@10", "recall@10", "recall@100", "MRR@10")
FIRST, DEPTH = 10, 100  # documents that the measures count


@dataclass(frozen=True, eq=False)
class RetrievalTable(ScoreTable):
    """A `ScoreTable` of a search, with the differences to its first row.

    Parameters
    ----------
    rows : tuple of str
        Names of the encoders.
    columns : tuple of str
        Names of the measures.
    scores : ndarray of shape (n_rows, n_columns)
        Scores times 100.
    differences : ndarray of shape (n_rows, n_columns)
        Scores minus those of the first row.
    intervals : ndarray of shape (n_rows, n_columns, 2)
        Ends of the 95 % intervals of the differences, by a paired bootstrap over queries. They
        need queries whose score differs: with 20 to 50 of these they miss up to 1.4 times as
        often as promised, with 5 to 10 about twice.
    n_queries, n_left_out : int
        Queries with a relevant document, which were used, and others.
    n_documents, n_empty : int
        Documents with text, which were searched, and others.
    n_groups : int
        Groups of queries that share most of their words, which the bootstrap draws; with fewer
        than 20 the intervals are no evidence. 0 if unknown.
    n_own, n_missing : int
        Queries that are documents themselves, which do not find themselves; and relevant
        documents that the corpus lacks, which count as not found.

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib.evaluation import RetrievalTable
    >>> scores, differences = np.array([[38.1], [39.5]]), np.array([[0.0], [1.4]])
    >>> intervals = np.array([[[0.0, 0.0]], [[0.2, 2.5]]])
    >>> rows, columns = ("raw", "calibrated"), ("nDCG@10",)
    >>> print(RetrievalTable(rows, columns, scores, differences, intervals, 225, 0, 1398, 2))
    |            |                   nDCG@10 |
    |------------|--------------------------:|
    | raw        |                      38.1 |
    | calibrated | 39.5 (+1.4, +0.2 to +2.5) |
    <BLANKLINE>
    225 queries and 1398 documents; 0 queries without a relevant one and 2 empty documents are
    left out. In brackets: the difference to the first row, and its 95 % interval.
    """

    differences: np.ndarray
    intervals: np.ndarray
    n_queries: int
    n_left_out: int
    n_documents: int
    n_empty: int
    n_groups: int = 0
    n_own: int = 0
    n_missing: int = 0

    def __str__(self) -> str:
        note = (
            f"{self.n_queries} queries and {self.n_documents} documents; {self.n_left_out} "
            f"queries without a relevant one and {self.n_empty} empty documents are\nleft out."
        )
        if self.n_own:
            note += f" {self.n_own} queries are documents and do not find themselves."
        if self.n_missing:
            note += f" {self.n_missing} relevant documents are missing, and count as not found."
        if len(self.rows) > 1:
            note += " In brackets: the difference to the first row, and its 95 % interval."
            if 0 < 2 * self.n_groups <= self.n_queries:
                note += (
                    "\nThe intervals count queries that share most of their words as one: "
                    f"{self.n_groups} groups."
                )
        return f"{super().__str__()}\n\n{note}"

    def _cells(self) -> list[list[str]]:
        cells = super()._cells()
        for i, row in enumerate(cells[1:], 1):
            for j, difference in enumerate(self.differences[i]):
                low, high = self.intervals[i, j]
                row[1 + j] += f" ({difference:+.1f}, {low:+.1f} to {high:+.1f})"
        return cells


def evaluate_retrieval(
    encoder: Any,
    folder: str | PathLike[str],
    *,
    query_encoder: Any = None,
    split: str = "test",
    fit_on: Any = None,
    random_state: int = 0,
    verbose: bool = False,
) -> RetrievalTable:
    r"""Score encoders on a search for documents with queries, ranked by cosine.

    Parameters
    ----------
    encoder : estimator, any encoder of texts, or mapping of str to them
        As in `evaluate_sts`; all are compared with the first. Each side has the prompt that its
        model declares; a fitted encoder stays as it is, with a warning. What has
        ``encode_query`` and ``encode_document``, such as a `SearchEncoder`, also at the end of
        a pipeline, encodes both sides by them; fit it with a sample of queries before, other
        than these.
    folder : path-like
        In BEIR's layout [1]_: ``corpus.jsonl`` and ``queries.jsonl`` have a JSON object with
        "_id", "text" and perhaps a "title" in each line, and ``qrels`` has a file of each
        split, with the columns query-id, corpus-id and score, a whole number that is above 0
        for relevant documents.
    query_encoder : None, encoder, or mapping of str to them, default=None
        Encoder of queries, for all rows or by the name of some; None uses `encoder`. One that
        is not a pipeline, such as a `BertEncoder` with the prompt of queries, replaces the
        first step of a pipeline. A pipeline is used as a whole and must be fitted.
    split : str, default="test"
        Name of the file in ``qrels``, without ".tsv".
    fit_on : texts or None, default=None
        Texts to fit on; None uses the documents that are searched.
    random_state : int, default=0
        Seed of the bootstrap.
    verbose : bool, default=False
        Show a progress bar over the encoders.

    Returns
    -------
    table : RetrievalTable
        A row per encoder, times 100, means over the queries with a relevant document:

        - "nDCG@10": the sum of the grades of the first ten documents, each over ``log2(1 +
          rank)``, as a share of the sum in the best order;
        - "recall@10", "recall@100": share of the relevant documents among the first;
        - "MRR@10": one over the rank of the first relevant document, 0 if it is not among the
          first ten.

    Raises
    ------
    TypeError
        If an encoder is of another type.
    ValueError
        If a line does not fit the layout, no document is relevant, or vectors are not finite
        or of different widths.
    FileNotFoundError
        If the folder lacks a file.

    Notes
    -----
    The measures are those of trec_eval [2]_: "ndcg_cut_10", "recall_10", "recall_100", and
    "recip_rank" of the first ten. As there, among equal cosines the document with the greater
    id comes first. Cosines are computed in float64 and compared as multiples of 2**-24.

    Empty documents are neither fitted nor found; relevant ones count as not found, and so do
    those that the corpus lacks. As in BEIR, a query that is a document itself, of the same id
    and text, does not find that one; ids alone may be equal by chance.

    References
    ----------
    .. [1] Thakur et al. (2021), "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of
           Information Retrieval Models", NeurIPS Datasets and Benchmarks, arXiv:2104.08663.
    .. [2] https://github.com/usnistgov/trec_eval

    Examples
    --------
    >>> import json
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from skcalib import BertEncoder
    >>> from skcalib.datasets import minilm_path
    >>> from skcalib.evaluation import evaluate_retrieval
    >>> def lines(texts):
    ...     return "\n".join(json.dumps({"_id": i, "text": t}) for i, t in texts.items())
    >>> folder = Path(mkdtemp())
    >>> documents = {"d1": "Bake the dough for an hour.", "d2": "Planes fly above clouds."}
    >>> _ = (folder / "corpus.jsonl").write_text(lines(documents))
    >>> _ = (folder / "queries.jsonl").write_text(lines({"q1": "How long is bread baked?"}))
    >>> (folder / "qrels").mkdir()
    >>> qrels = "query-id\tcorpus-id\tscore\nq1\td1\t2\n"
    >>> _ = (folder / "qrels" / "test.tsv").write_text(qrels)
    >>> table = evaluate_retrieval({"raw": BertEncoder(minilm_path())}, folder)
    >>> table.columns, table.scores.tolist()
    (('nDCG@10', 'recall@10', 'recall@100', 'MRR@10'), [[100.0, 100.0, 100.0, 100.0]])
    """
    encoders = checked_encoders(encoder)
    of_queries = _checked_query_encoders(query_encoder, encoders)
    collection = read_beir(folder, split)
    documents, queries, grades, own, *_ = collection
    texts = list(documents.values())
    place: dict[str | None, int] = {name: i for i, name in enumerate(documents)}
    own_rows = np.array([place.get(name, -1) for name in own])
    fit_on = texts if fit_on is None else as_texts(fit_on, "fit_on")
    scores = np.empty((len(encoders), len(queries), len(COLUMNS)))
    with progress(len(encoders), unit="encoder", desc="evaluate", verbose=verbose) as advance:
        for number, (name, candidate) in enumerate(encoders.items()):
            fitted, asking = _fitted_sides(candidate, of_queries.get(name), fit_on)
            asked = _encoded(asking, list(queries.values()), "query")
            ranked = _ranked(asked, _encoded(fitted, texts, "document"), own_rows)
            scores[number] = 100 * _measures(ranked, list(documents), grades)
            advance(1, name)
    differences = scores - scores[0]
    alike = near_duplicates([*queries.values()])
    by_query = np.moveaxis(differences, 1, -1)
    ends = 100 * interval(by_query.reshape(-1, len(queries)) / 100, alike, random_state)
    intervals = np.moveaxis(ends.reshape(2, *by_query.shape[:2]), 0, -1)
    intervals[0] = 0.0  # of the first to itself
    return RetrievalTable(
        tuple(encoders),
        COLUMNS,
        scores.mean(axis=1),
        differences.mean(axis=1),
        intervals,
        n_queries=len(queries),
        n_left_out=collection.n_left_out,
        n_documents=len(documents),
        n_empty=collection.n_empty,
        n_groups=int(alike.max()) + 1,
        n_own=int((own_rows >= 0).sum()),
        n_missing=collection.n_missing,
    )


def _checked_query_encoders(encoder: Any, encoders: dict[str, Any]) -> dict[str, Any]:
    """Return the encoders of queries by row, if they differ from those of the documents."""
    if encoder is None:
        return {}
    if not isinstance(encoder, Mapping):
        encoder = dict.fromkeys(encoders, encoder)
    named = checked_encoders(encoder, "query_encoder")
    for name, encoder in named.items():
        if name not in encoders:
            raise ValueError(
                f"query_encoder has the name {name!r}; expected names of `encoder`, "
                f"{list(encoders)}."
            )
        after_query_encoder(encoder, None)  # refuses what is not fitted, before hours of work
    return named


def _fitted_sides(encoder: Any, of_queries: Any, fit_on: Any) -> tuple[Any, Any]:
    """Return fitted encoders of documents and of queries, the same unless these differ."""
    if of_queries is None and not is_fitted(encoder):
        of_queries = first_of_queries(encoder)
    elif of_queries is None and ignores_sides(encoder):
        warn(
            "The model of a fitted encoder declares prompts or methods for queries and for "
            "documents, but it was fitted without these, so it encodes both alike. Pass it "
            "unfitted to use them, or in a FrozenEstimator to keep it as it is."
        )
    fitted = fitted_on(of_side(encoder, "document"), fit_on)
    if of_queries is None:
        return fitted, fitted
    return fitted, after_query_encoder(fitted_on(of_queries, fit_on), fitted)


def _encoded(encoder: Any, texts: list[str], side: str) -> Any:
    """Return vectors of unit length, by ``encode_query`` or ``encode_document``, if any.

    These may also return dense and sparse vectors, whose inner products are added.
    """
    *steps, last = flat(encoder)
    if not (hasattr(last, "encode_query") and hasattr(last, "encode_document")):
        return unit_rows(encoded(encoder, texts))[0]
    given = make_pipeline(*steps).transform(texts) if steps else texts
    found = getattr(last, f"encode_{side}")(given)
    return found if isinstance(found, tuple) else unit_rows(found)[0]


def _ranked(queries: Any, documents: Any, own: np.ndarray) -> np.ndarray:
    """Return the rows of the documents nearest to each query; ties are in the order of rows.

    ``own`` has the row of the document that a query is, or -1. If a query finds fewer documents
    than there are places, the rest is -1.
    """
    sparse = None
    if isinstance(queries, tuple):
        (queries, sparse), (documents, words) = queries, documents
        queries, by_term = queries.astype(np.float64), csr_matrix(words.T)
    queries, documents = check_pairwise_arrays(queries, documents)
    k = min(DEPTH, len(documents))
    ranked = np.empty((len(queries), k), np.intp)
    for block, _, cosines in blocks(queries, documents, whole=True):
        if sparse is not None:
            cosines += sparse_products(sparse[block], by_term)
        cosines = comparable(cosines)
        is_own = np.flatnonzero(own[block] >= 0)
        cosines[is_own, own[block][is_own]] = -np.inf
        for i, row in enumerate(cosines, block.start):
            near = np.flatnonzero(row >= np.partition(row, -k)[-k])
            ranked[i] = near[np.argsort(-row[near], kind="stable")[:k]]
    ranked[ranked == own[:, None]] = -1
    return ranked


def _measures(
    ranked: np.ndarray, documents: list[str], grades: list[dict[str, int]]
) -> np.ndarray:
    """Measures of each query, of shape (n_queries, 4)."""
    gains = np.zeros((len(ranked), DEPTH))
    best = np.zeros((len(ranked), FIRST))
    row_of = {name: row for row, name in enumerate(documents)}
    for i, (rows, grade) in enumerate(zip(ranked, grades, strict=True)):
        judged = np.array([row_of.get(name, -2) for name in grade])  # -1 is no document
        gains[i, : len(rows)] = (rows[:, None] == judged) @ np.array([*grade.values()])
        top = sorted(grade.values(), reverse=True)[:FIRST]
        best[i, : len(top)] = top
    discounts = 1 / np.log2(np.arange(2, FIRST + 2))
    is_relevant, n_relevant = gains > 0, np.array([len(grade) for grade in grades])
    first = is_relevant[:, :FIRST]
    return np.column_stack(
        [
            (gains[:, :FIRST] @ discounts) / (best @ discounts),
            first.sum(axis=1) / n_relevant,
            is_relevant.sum(axis=1) / n_relevant,
            first.any(axis=1) / (1 + first.argmax(axis=1)),
        ]
    )
