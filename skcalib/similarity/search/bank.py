"""The bank: distinct queries with content, and the side that encodes queries."""

from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from skcalib.base import warn
from skcalib.encoders.pipelines import as_encoder, first_of_queries
from skcalib.inputs.texts import as_texts, distinct
from skcalib.inputs.vectors import distinct_vectors
from skcalib.similarity.search.words import sample_of
from skcalib.similarity.space import Side


class Bank(NamedTuple):
    """Unit vectors of distinct queries, (n, d), and their texts, if they are texts."""

    unit: np.ndarray
    texts: list[str]


def fit_queries(
    search: Any, documents: Side, stored: np.ndarray, X: list[str] | None, queries: Any
) -> tuple[Side, Bank | None]:
    """Fit the side of queries, and return it with the bank, if there is one.

    ``stored`` and ``X`` are the unit vectors of documents and, if they are texts, these.
    """
    side, unit, texts = _encoded(search, documents, X, queries)
    if unit is None:
        return side, None
    if X is None:
        asked = {row.tobytes() for row in unit if row.any()}
        equal = len({key for row in stored if (key := row.tobytes()) in asked})
    else:
        equal = len({*texts} & {*X})
    if 2 * equal > len(unit):
        warn(
            f"{equal:,} of {len(unit):,} distinct queries are documents. The bank should show "
            "how queries differ from documents: pass real queries, or leave out `queries`."
        )
    has_content = np.any(unit, axis=1)
    if has_content.sum() < 2:
        raise ValueError(
            f"queries has {has_content.sum()} distinct queries with content; expected two or "
            "more, better some hundred. Add queries, or leave out `queries`."
        )
    return side, Bank(unit[has_content], [*compress(texts, has_content)])


def _encoded(
    search: Any, side: Side, X: list[str] | None, queries: Any
) -> tuple[Side, np.ndarray | None, list[str]]:
    """Fit the encoder of queries, on a sample of documents if there are none."""
    if X is None:
        if queries is not None:
            return side, distinct_vectors(side.checked(search, queries, "queries")[0]), []
        warn(
            "Vectors of documents alone show neither the mean of queries nor the hubs, so "
            "scores are half the cosines after a mild whitening. Pass `queries`, or texts and "
            "an encoder."
        )
        return side, None, []
    texts = [] if queries is None else distinct(as_texts(queries, "queries"))[0]
    encoder = search.query_encoder
    if encoder is None:
        encoder = first_of_queries(clone(as_encoder(search.encoder)))
    if encoder is not None:
        some = texts or distinct([X[row] for row in sample_of(len(X))])[0]
        side, unit = side.fit_query_side(encoder, some)
        return side, unit if texts else None, texts
    return side, side.checked(search, texts, "queries")[0] if texts else None, texts
