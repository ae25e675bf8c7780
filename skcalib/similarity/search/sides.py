"""Two sides of a search, documents and queries, as unit vectors whose cosine is the score."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.preprocessing import Normalizer, normalize
from sklearn.utils import gen_batches

from skcalib.calibration import LinearMap
from skcalib.cosines import nearest
from skcalib.inputs.vectors import SCALED, unit_rows
from skcalib.similarity.details import mild_whitening
from skcalib.similarity.search.hubs import bank_of, gate, n_nearest, repeatability
from skcalib.similarity.search.steps import HALF, Affine, HubColumns, two_columns

# Share of a mean that is subtracted, as `Whitening(noise="auto")` does: in a skewed collection
# the mean lies in the largest group, which would lose its direction with all of it.
CENTERING = 0.8


@dataclass(frozen=True, eq=False)
class TwoSides:
    """The linear maps of documents and queries, and the bank of queries that shows hubs.

    With ``d' = unit((d - document_shift) projection)``, ``q' = unit((q - query_shift)
    projection)`` and the mean r(d) of the largest ``b' . d'`` over the bank, the score of a
    query and a document is ``(q' . d' - hub_weight r(d)) / 2``.
    """

    document_shift: np.ndarray  # (d,), float64
    query_shift: np.ndarray  # (d,), float64
    projection: np.ndarray  # (d, m), float64
    bank: np.ndarray  # (n_bank, m), float32: b'
    hub_weight: float

    @classmethod
    def learned(
        cls,
        unit: np.ndarray,
        queries: np.ndarray | None,
        *,
        power: float,
        hub_weight: float,
        codes: np.ndarray | None = None,
    ) -> tuple[Self, np.ndarray]:
        """Estimate the maps and the hubs from documents and distinct queries, unit vectors.

        Documents may be zero, queries not. Without queries there is only the whitening. Details
        count less, and hubs, too, if a document probably answers its nearest queries; hubs also
        by how much of them another bank would repeat, and by `gate`. Return also the vectors of
        the documents, in groups with ``codes``, see `documents`.
        """
        has_content = unit.any(axis=1)
        rows = slice(None) if has_content.all() else has_content  # a slice copies nothing
        documents = unit[rows]
        bank = documents[:0] if queries is None else bank_of(queries)
        n = len(bank) or len(documents)
        share = unanswered_share(n_nearest(n), n, len(documents))
        mean = documents.mean(axis=0, dtype=np.float64)
        samples, shifts = [(documents, mean)], (np.zeros_like(mean),) * 2
        if queries is not None:
            of_queries = queries.mean(axis=0, dtype=np.float64)
            samples.append((queries, of_queries))
            gap = of_queries - mean
            shifts = CENTERING * mean, CENTERING * (mean + gap_weight(queries, gap) * gap)
        projection = mild_whitening(share * power, *samples)
        bank = mapped(bank, shifts[1], projection)
        vectors = in_groups(mapped(unit, shifts[0], projection), codes)
        weight = 0.0
        if len(bank):
            stored = vectors[rows]
            first = nearest(bank, stored, 1)[1][:, 0]
            repeated = repeatability(stored, bank)
            weight = share * repeated * hub_weight * gate(first, len(stored))
        sides = cls(*shifts, projection, bank, weight)
        return sides, sides._with_hubs(vectors, unit)

    def documents(self, unit: np.ndarray, codes: np.ndarray | None = None) -> np.ndarray:
        """Return ``(d', -w r, sqrt(1 - w² r²)) / sqrt(2)`` of unit vectors, (n, m + 2).

        With the ``codes`` of groups, each d' is first moved halfway to the mean of its group. A
        zero vector, of no content, becomes one that is far from all queries.
        """
        vectors = mapped(unit, self.document_shift, self.projection)
        return self._with_hubs(in_groups(vectors, codes), unit)

    def _with_hubs(self, vectors: np.ndarray, unit: np.ndarray) -> np.ndarray:
        out = self.hubs.transform(vectors)
        out[~unit.any(axis=1)] = -np.eye(1, out.shape[1], out.shape[1] - 2)
        return out

    def queries(self, unit: np.ndarray) -> np.ndarray:
        """Return ``(q', 1, 0) / sqrt(2)`` of unit vectors, (n, m + 2); zero for no content."""
        out = np.zeros((len(unit), self.projection.shape[1] + 2), np.float32)
        out[:, :-2] = HALF * mapped(unit, self.query_shift, self.projection)
        out[unit.any(axis=1), -2] = HALF
        return out

    @property
    def hubs(self) -> HubColumns:
        """The last step of documents."""
        return HubColumns(self.bank, self.hub_weight)

    def document_steps(self) -> list[Any]:
        """Return the steps from vectors of documents to those of the search, for exports."""
        bias = np.zeros(self.projection.shape[1])
        linear = Affine(LinearMap(self.document_shift, self.projection, bias))
        return [Normalizer(), linear, Normalizer(), self.hubs]

    def query_steps(self) -> list[Any]:
        """Return the same of queries."""
        bias = np.zeros(self.projection.shape[1])
        linear = Affine(LinearMap(self.query_shift, self.projection, bias))
        columns = Affine(two_columns(self.projection.shape[1], 0))
        return [Normalizer(), linear, Normalizer(), columns]


def in_groups(X: Any, codes: np.ndarray | None) -> Any:
    """Return ``unit(x + mean of the rows of its group)``, of dense or sparse rows.

    ``codes`` are the groups, from 0; None leaves the rows as they are, as it does the only row
    of a group.
    """
    if codes is None:
        return X
    shares = 1 / np.bincount(codes)[codes]
    mean = csr_matrix((shares, (codes, np.arange(len(codes))))) @ X
    return normalize(X + mean[codes]).astype(np.float32)


def gap_weight(queries: np.ndarray, gap: np.ndarray) -> float:
    """Return how much of the gap between two means is more than chance, from 0 to 1.

    It is the positive part of the estimator of James and Stein (1961): the mean of n queries is
    off by a squared distance of their variance over n.
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

    If each query has one answer, a document answers ``n_queries / n_documents`` on average.
    """
    return max(1 - n_queries / (n_documents * k), 0.0)


def mapped(unit: np.ndarray, shift: np.ndarray, projection: np.ndarray) -> np.ndarray:
    """Map unit vectors, and scale to unit length again; zero vectors stay zero."""
    out = np.empty((len(unit), projection.shape[1]), np.float32)
    W = projection.astype(np.float32)
    for rows in gen_batches(len(unit), SCALED) if len(unit) else ():
        part = unit[rows]
        centered = np.where(part.any(axis=1)[:, None], part - shift, 0.0)
        out[rows] = unit_rows(centered.astype(np.float32) @ W)[0]
    return out
