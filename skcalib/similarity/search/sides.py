"""Two sides of a search, documents and queries, as unit vectors whose cosine is the score."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.preprocessing import Normalizer
from sklearn.utils import gen_batches

from skcalib.similarity.details import mild_whitening
from skcalib.similarity.hubs import bank_of, n_neighbors_of, repeatability
from skcalib.similarity.search.steps import HubColumns, QueryColumns, ShiftAndScale
from skcalib.utils.cosines import rows_in_memory
from skcalib.utils.vectors import unit_rows

# Share of a mean that is subtracted, as `Whitening(noise="auto")` does: in a skewed collection
# the mean lies in the largest group, which would lose its direction with all of it.
CENTERING = 0.8


@dataclass(frozen=True, eq=False)
class TwoSides:
    """The linear maps of documents and queries, and the bank of queries that shows hubs.

    With ``d' = unit((d - document_shift) projection)``, ``q' = unit((q - query_shift)
    projection)`` and the mean r(d) of the k largest ``b' . d'`` over the bank, the score of a
    query and a document is ``(q' . d' - hub_weight r(d)) / 2``.
    """

    document_shift: np.ndarray  # (d,), float64
    query_shift: np.ndarray  # (d,), float64
    projection: np.ndarray  # (d, m), float64
    bank: np.ndarray  # (n_bank, m), float32: b'
    n_neighbors: int  # k
    hub_weight: float

    @classmethod
    def of_queries(
        cls,
        documents: np.ndarray,
        queries: np.ndarray,
        *,
        power: float,
        n_neighbors: float,
        hub_weight: float,
    ) -> Self:
        """Estimate the maps and the hubs from unit vectors, of distinct queries."""
        means = [side.mean(axis=0, dtype=np.float64) for side in (documents, queries)]
        projection = mild_whitening(power, (documents, means[0]), (queries, means[1]))
        mean, gap = means[0], means[1] - means[0]
        shifts = CENTERING * mean, CENTERING * (mean + gap_weight(queries, gap) * gap)
        bank = bank_of(queries)
        return cls._with_hubs(documents, bank, *shifts, projection, n_neighbors, hub_weight)

    @classmethod
    def of_windows(
        cls,
        documents: np.ndarray,
        windows: np.ndarray,
        *,
        power: float,
        n_neighbors: float,
        hub_weight: float,
    ) -> Self:
        """Estimate the hubs from pieces of documents, which do not show the mean of queries."""
        mean, zero = documents.mean(axis=0, dtype=np.float64), np.zeros(documents.shape[1])
        projection = mild_whitening(power, (documents, mean))
        if not len(windows):
            return cls(zero, zero, projection, np.empty((0, projection.shape[1])), 0, 0.0)
        return cls._with_hubs(
            documents, windows, zero, zero, projection, n_neighbors, hub_weight
        )

    @classmethod
    def _with_hubs(
        cls,
        documents: np.ndarray,
        queries: np.ndarray,
        document_shift: np.ndarray,
        query_shift: np.ndarray,
        projection: np.ndarray,
        n_neighbors: float,
        hub_weight: float,
    ) -> Self:
        """Weigh the hubs by how much of them another bank would repeat, and is no answer."""
        bank = mapped(queries, query_shift, projection)
        share = repeatability(mapped(documents, document_shift, projection), bank, n_neighbors)
        k = n_neighbors_of(n_neighbors, len(bank))
        share *= unanswered_share(k, len(bank), len(documents))
        return cls(document_shift, query_shift, projection, bank, k, share * hub_weight)

    def documents(self, unit: np.ndarray) -> np.ndarray:
        """Return ``(d', -w r, sqrt(1 - w² r²)) / sqrt(2)`` of unit vectors, (n, m + 2).

        A zero vector, of no content, becomes one that is far from all queries.
        """
        out = self.hubs.transform(mapped(unit, self.document_shift, self.projection))
        out[~unit.any(axis=1)] = -np.eye(1, out.shape[1], out.shape[1] - 2)
        return out

    def queries(self, unit: np.ndarray) -> np.ndarray:
        """Return ``(q', 1, 0) / sqrt(2)`` of unit vectors, (n, m + 2); zero for no content."""
        columns = QueryColumns(self.projection.shape[1])
        out = columns.transform(mapped(unit, self.query_shift, self.projection))
        out[~unit.any(axis=1)] = 0
        return out

    @property
    def hubs(self) -> HubColumns:
        """The last step of documents."""
        return HubColumns(self.bank, self.n_neighbors, self.hub_weight)

    def document_steps(self) -> list[Any]:
        """Return the steps from vectors of documents to those of the search, for exports."""
        linear = ShiftAndScale(self.document_shift, self.projection)
        return [Normalizer(), linear, Normalizer(), self.hubs]

    def query_steps(self) -> list[Any]:
        """Return the same of queries."""
        linear = ShiftAndScale(self.query_shift, self.projection)
        return [Normalizer(), linear, Normalizer(), QueryColumns(self.projection.shape[1])]


def gap_weight(queries: np.ndarray, gap: np.ndarray) -> float:
    """Return how much of the gap between two means is more than chance, from 0 to 1.

    The positive part of the estimator of James and Stein (1961): the mean of n queries is off
    by a squared distance of V = (their variance) / n. So of a squared gap of G to the mean of
    the documents, ``1 - V / G`` is more than chance.
    """
    n = len(queries)
    squares = float(gap @ gap)
    if n < 2 or squares <= 0:
        return 0.0
    mean = queries.mean(axis=0, dtype=np.float64)
    # Of unit vectors; those without content are left out.
    chance = max(1 - float(mean @ mean), 0.0) / (n - 1)
    return max(1 - chance / squares, 0.0)


def unanswered_share(k: int, n_queries: int, n_documents: int) -> float:
    """Return the expected share of a document's ``k`` nearest queries that it does not answer.

    If each query has one answer, a document answers ``n_queries / n_documents`` on average,
    and these are near it rightly. With few documents they are all of the nearest.
    """
    return max(1 - n_queries / (n_documents * k), 0.0)


def mapped(unit: np.ndarray, shift: np.ndarray, projection: np.ndarray) -> np.ndarray:
    """Map unit vectors, and scale to unit length again; zero vectors stay zero."""
    out = np.empty((len(unit), projection.shape[1]), np.float32)
    for rows in gen_batches(len(unit), rows_in_memory(16 * unit.shape[1])):
        part = unit[rows]
        centered = np.where(part.any(axis=1)[:, None], part - shift, 0.0)
        out[rows] = unit_rows(centered @ projection)[0]
    return out
