"""Two sides of a search, documents and queries, as unit vectors whose cosine is the score."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.preprocessing import Normalizer
from sklearn.utils import gen_batches

from skcalib.cosines import rows_in_memory
from skcalib.inputs.vectors import unit_rows
from skcalib.similarity.details import mild_whitening
from skcalib.similarity.hubs import bank_of, n_neighbors_of, repeatability
from skcalib.similarity.search.steps import HubColumns, QueryColumns, ShiftAndScale

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
        sides = (documents, means[0]), (queries, means[1])
        mean, gap = means[0], means[1] - means[0]
        shifts = CENTERING * mean, CENTERING * (mean + gap_weight(queries, gap) * gap)
        return cls._learned(sides, bank_of(queries), shifts, power, n_neighbors, hub_weight)

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
        sides = ((documents, documents.mean(axis=0, dtype=np.float64)),)
        zero = np.zeros(documents.shape[1])
        return cls._learned(sides, windows, (zero, zero), power, n_neighbors, hub_weight)

    @classmethod
    def _learned(
        cls,
        sides: tuple[tuple[np.ndarray, np.ndarray], ...],
        queries: np.ndarray,
        shifts: tuple[np.ndarray, np.ndarray],
        power: float,
        n_neighbors: float,
        hub_weight: float,
    ) -> Self:
        """Weigh details, and hubs also by how much of them another bank would repeat.

        ``sides`` are documents, and queries if they are no windows, with the mean of each.
        """
        documents = sides[0][0]
        n = len(queries) or len(documents)  # vectors alone have no bank
        k = n_neighbors_of(n_neighbors, n)
        share = unanswered_share(k, n, len(documents))
        projection = mild_whitening(share * power, *sides)
        bank = mapped(queries, shifts[1], projection)
        repeated = repeatability(mapped(documents, shifts[0], projection), bank, n_neighbors)
        k = min(k, len(bank))
        return cls(*shifts, projection, bank, k, share * repeated * hub_weight)

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
    and they are near it for that reason. With few documents they are all of the nearest: each
    document is a topic, from which neither hubs nor details may take anything.
    """
    return max(1 - n_queries / (n_documents * k), 0.0)


def mapped(unit: np.ndarray, shift: np.ndarray, projection: np.ndarray) -> np.ndarray:
    """Map unit vectors, and scale to unit length again; zero vectors stay zero."""
    out = np.empty((len(unit), projection.shape[1]), np.float32)
    W, step = projection.astype(np.float32), rows_in_memory(16 * unit.shape[1])
    for rows in gen_batches(len(unit), step) if len(unit) else ():
        part = unit[rows]
        centered = np.where(part.any(axis=1)[:, None], part - shift, 0.0)
        out[rows] = unit_rows(centered.astype(np.float32) @ W)[0]
    return out
