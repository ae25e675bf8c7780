"""Score encoders on search with queries, by judgments of relevance."""

from os import PathLike
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator
from sklearn.metrics.pairwise import check_pairwise_arrays

from skcalib.base import is_fitted, warn
from skcalib.cosines import blocks
from skcalib.encoders.pipelines import (
    after_query_encoder,
    as_encoder,
    encoded,
    first_of_queries,
    fitted_on,
    ignores_sides,
    of_side,
)
from skcalib.evaluation._beir import read_beir
from skcalib.evaluation._score_table import ScoreTable, named_encoders
from skcalib.inputs.texts import as_texts
from skcalib.inputs.vectors import comparable, unit_rows
from skcalib.model_selection.views import near_duplicates
from skcalib.similarity.n_grams import sparse_products
from skcalib.statistics.bootstrap import interval

COLUMNS = ("nDCG@10", "recall@10", "recall@100", "MRR@10")
FIRST, DEPTH = 10, 100  # documents that the measures count


def evaluate_retrieval(
    encoder: Any,
    folder: str | PathLike[str],
    *,
    split: str = "test",
    fit_on: Any = None,
    random_state: int = 0,
) -> ScoreTable:
    r"""Score encoders on a search for documents with queries, ranked by cosine.

    Parameters
    ----------
    encoder : estimator, any encoder of texts, or mapping of str to them
        As in `evaluate_sts`; all are compared with the first. Each side has the prompt that its
        model declares; a fitted encoder stays as it is, with a warning. What has
        ``encode_query`` and ``encode_document``, such as a `SearchEncoder`, encodes both sides
        by them; fit it with a sample of queries before, other than these.
    folder : path-like
        In BEIR's layout [1]_: ``corpus.jsonl`` and ``queries.jsonl`` have a JSON object with
        "_id", "text" and perhaps a "title" in each line, and ``qrels`` has a file of each
        split, with the columns query-id, corpus-id and score, a number above 0 for relevant
        documents.
    split : str, default="test"
        Name of the file in ``qrels``, without ".tsv".
    fit_on : texts or None, default=None
        Texts to fit on; None uses the documents that are searched.
    random_state : int, default=0
        Seed of the bootstrap.

    Returns
    -------
    table : ScoreTable
        A row per encoder, times 100, means over the queries with a relevant document, with the
        95 % intervals of the differences to the first row. The measures are those of trec_eval
        [2]_: "ndcg_cut_10", "recall_10", "recall_100", and "recip_rank" of the first ten.

    Notes
    -----
    As in trec_eval, among equal cosines the document with the greater id comes first. Cosines
    are computed in float64 and compared as multiples of 2**-24.

    Empty documents are neither fitted nor found; relevant ones count as not found, and so do
    those that the corpus lacks. As in BEIR, a query that is a document itself, of the same id
    and text, does not find that one; ids alone may be equal by chance.

    The intervals are by a paired bootstrap over queries, which draws queries that share most of
    their words together. They need queries whose score differs: with 20 to 50 of these they
    miss up to 1.4 times as often as promised, with 5 to 10 about twice.

    References
    ----------
    .. [1] Thakur et al. (2021), "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of
           Information Retrieval Models", NeurIPS Datasets and Benchmarks, arXiv:2104.08663.
    .. [2] https://github.com/usnistgov/trec_eval

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from skcalib import BertEncoder
    >>> from skcalib.datasets import minilm_path
    >>> from skcalib.evaluation import evaluate_retrieval
    >>> folder = Path(mkdtemp())
    >>> (folder / "qrels").mkdir()
    >>> files = {
    ...     "corpus.jsonl": '{"_id": "a", "text": "Bake the dough for an hour."}\n'
    ...                     '{"_id": "b", "text": "Planes fly above clouds."}',
    ...     "queries.jsonl": '{"_id": "q", "text": "How long is bread baked?"}',
    ...     "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq\ta\t2",
    ... }
    >>> for name, content in files.items():
    ...     _ = (folder / name).write_text(content)
    >>> table = evaluate_retrieval({"raw": BertEncoder(minilm_path())}, folder)
    >>> table.columns, table.scores.tolist()
    (('nDCG@10', 'recall@10', 'recall@100', 'MRR@10'), [[100.0, 100.0, 100.0, 100.0]])
    """
    encoders = named_encoders(encoder, lambda e: e if _has_sides(e) else as_encoder(e))
    named, queries, grades, itself, note = read_beir(folder, split)
    documents, row_of = [*named.values()], {name: row for row, name in enumerate(named)}
    fit_on = documents if fit_on is None else as_texts(fit_on, "fit_on")
    scores = np.empty((len(encoders), len(COLUMNS), len(queries)))
    for i, candidate in enumerate(encoders.values()):
        of_documents, of_queries = _fitted_sides(candidate, fit_on)
        ranked = _ranked(
            _encoded(of_queries, queries, "query"),
            _encoded(of_documents, documents, "document"),
            itself,
        )
        scores[i] = _measures(ranked, row_of, grades).T
    alike = near_duplicates(queries)
    if 2 * len({*alike}) <= len(queries):
        note += (
            "\nThe intervals count queries that share most of their words as one: "
            f"{len({*alike})} groups."
        )
    differences = (scores - scores[0]).reshape(-1, len(queries))
    ends = interval(differences, alike, random_state).reshape(2, len(encoders), -1)
    intervals = np.moveaxis(100 * ends, 0, -1)
    intervals[0] = 0.0  # of the first to itself
    return ScoreTable(tuple(encoders), COLUMNS, 100 * scores.mean(axis=-1), intervals, note)


def _fitted_sides(encoder: Any, fit_on: Any) -> tuple[Any, Any]:
    """Return fitted encoders of documents and of queries, the same unless these differ."""
    of_queries = None
    if _has_sides(encoder):
        pass
    elif not is_fitted(encoder):
        of_queries = first_of_queries(encoder)
        encoder = of_side(encoder, "document")
    elif ignores_sides(encoder):
        warn(
            "The model of a fitted encoder declares prompts or methods for queries and for "
            "documents, but it was fitted without these, so it encodes both alike. Pass it "
            "unfitted to use them, or in a FrozenEstimator to keep it as it is."
        )
    fitted = fitted_on(encoder, fit_on)
    if of_queries is None:
        return fitted, fitted
    return fitted, after_query_encoder(fitted_on(of_queries, fit_on), fitted)


def _has_sides(encoder: Any) -> bool:
    """Whether an estimator has a method for each side, as `SearchEncoder` does."""
    has_both = hasattr(encoder, "encode_query") and hasattr(encoder, "encode_document")
    return has_both and isinstance(encoder, BaseEstimator)  # a model is read by `TextEncoder`


def _encoded(encoder: Any, texts: list[str], side: str) -> Any:
    """Return vectors of unit length, by ``encode_query`` or ``encode_document``, if any.

    These may also return dense and sparse vectors, whose inner products are added.
    """
    if not _has_sides(encoder):
        return unit_rows(encoded(encoder, texts))[0]
    vectors = getattr(encoder, f"encode_{side}")(texts)
    return vectors if isinstance(vectors, tuple) else unit_rows(vectors)[0]


def _ranked(queries: Any, documents: Any, itself: np.ndarray) -> np.ndarray:
    """Return the rows of the documents nearest to each query; ties are in the order of rows.

    ``itself`` has the row of the document that a query is, or -1. If a query finds fewer
    documents than there are places, the rest is -1.
    """
    sparse = None
    if isinstance(queries, tuple):
        (queries, sparse), (documents, words) = queries, documents
        queries, by_term = queries.astype(np.float64), csr_array(words.T)
    queries, documents = check_pairwise_arrays(queries, documents)
    k = min(DEPTH, len(documents))
    ranked = np.empty((len(queries), k), np.intp)
    for block, _, cosines in blocks(queries, documents):
        if sparse is not None:
            cosines += sparse_products(sparse[block], by_term)
        cosines = comparable(cosines)
        at = np.flatnonzero(itself[block] >= 0)
        cosines[at, itself[block][at]] = -np.inf
        for i, row in enumerate(cosines, block.start):
            near = np.flatnonzero(row >= np.partition(row, -k)[-k])
            ranked[i] = near[np.argsort(-row[near], kind="stable")[:k]]
    ranked[ranked == itself[:, None]] = -1
    return ranked


def _measures(
    ranked: np.ndarray, row_of: dict[str, int], grades: list[dict[str, float]]
) -> np.ndarray:
    """Measures of each query, of shape (n_queries, 4)."""
    gains = np.zeros((len(ranked), DEPTH))
    best = np.zeros((len(ranked), FIRST))
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
