"""Matcher: pairs of records of two lists that are the same thing, and few false ones."""

from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from skcalib.base import VersionedState, from_scratch, warn
from skcalib.compat import HasMethods, Interval, _fit_context
from skcalib.inputs.texts import TextInput, as_texts
from skcalib.inputs.vectors import first_of_equal
from skcalib.similarity.details import mild_whitening
from skcalib.similarity.duplicates.guard import guard_of_fit
from skcalib.similarity.hubs import bank_of
from skcalib.similarity.inputs import Side
from skcalib.similarity.matcher.discoveries import (
    NEAREST,
    mutual_pairs,
    q_values,
    scores_of,
)
from skcalib.similarity.matcher.sides import best_scores, searched
from skcalib.similarity.space import unit_vectors

FEWEST = 4  # different records with content of a side
FEW = 20  # records, below which a rate of 5 % can hardly be checked
# A mild whitening brings out details, which tell a record from others on its topic.
POWER = 0.25
SLACK = 1e-5


@dataclass(eq=False, repr=False)
class Matcher(TextInput, VersionedState, BaseEstimator):
    """Match the records of two lists that are the same thing, each with one partner or none.

    For translations, records of two catalogs, questions and references. It needs no labels and
    no threshold, but a share of false pairs that you accept.

    Parameters
    ----------
    encoder : transformer of texts, any encoder of texts, or None, default=None
        Such as `BertEncoder`, or a model's folder, see `TextEncoder`. It is cloned and fitted
        on both lists; a ``FrozenEstimator`` keeps its fit. With None, the records are vectors.
    false_discovery_rate : float in (0, 1), default=0.05
        Largest expected share of false pairs among those listed, see Notes.
    guard : DetailGuard or None, default=None
        Check that both records have the same numbers and codes. It needs an `encoder`.
    neighbors : transformer or None, default=None
        scikit-learn's ``KNeighborsTransformer``, or a similar one (of pynndescent or faiss), by
        cosine or Euclidean distance, to find the nearest records of a long list. It is cloned
        for each list, and its ``n_neighbors`` is set. None compares all records of one list
        with all of the other, twice.

    Attributes
    ----------
    pairs_ : ndarray of shape (n_pairs, 2)
        Rows of the first and of the second list, the best pair first.
    scores_ : ndarray of shape (n_pairs,)
        Their scores.
    q_values_ : ndarray of shape (n_pairs,)
        Least `false_discovery_rate` that lists the pair.
    threshold_ : float
        Score of the last pair listed; infinite if there is none.
    n_mutual_ : int
        Number of pairs of mutual nearest neighbors, from which those listed were chosen.
    neighbors_ : transformer or None
        The clone that is fitted on the second list.
    n_features_in_, feature_names_in_
        Of vectors: number of features seen during fit, and their names when all are strings.

    See Also
    --------
    Duplicates : The same in one list, where a text may have many duplicates.
    SearchEncoder : Documents that answer a query, which may be many.

    Notes
    -----
    Each list has its own mean, which is subtracted, and a mild regularized whitening of both
    brings out details. With unit vectors a and b of two records, their similarity is ::

        s = a . b - (r(a) + r(b)) / 2

    where r is the mean cosine with the nearest tenth of the other list, of which 2,000 at most
    are compared; it is large for records that are near everything [1]_. Two records are
    candidates if each is the most similar one of the other. Their score is ``s + (s - t) / 2``,
    where t is the second largest similarity of either record.

    Most records without a partner are also in such a pair. How large their scores are is
    estimated from the leads of the fourth to the eighth nearest over the next, whose expected
    ratio to the first lead is that of normal order statistics [2]_. This gives the false
    discovery rate [3]_ of each score. The rate is an estimate, see the table on the page of
    matches. **If few records of both lists have a partner, it lists little or nothing**. The
    same holds if records have near copies, since nothing then distinguishes a true pair. Equal
    records of a list count once; the first one is listed.

    References
    ----------
    .. [1] Conneau et al. (2018), "Word Translation Without Parallel Data", ICLR,
           arXiv:1710.04087.
    .. [2] Blom (1958), "Statistical Estimates and Transformed Beta-Variables", Wiley.
    .. [3] Storey (2002), "A Direct Approach to False Discovery Rates", JRSS B 64(3).

    Examples
    --------
    >>> from skcalib import Matcher
    >>> from skcalib.datasets import load_docstrings
    >>> texts = load_docstrings().data[::7]
    >>> shop, other = texts[:177], [text.lower().rstrip(".") for text in texts[44:]]
    >>> matcher = Matcher("minilm").fit(shop, other)
    >>> matcher.pairs_.shape  # of 133 records that are in both lists
    (133, 2)
    >>> bool((matcher.pairs_[:, 0] - matcher.pairs_[:, 1] == 44).all())
    True
    >>> matcher.predict(["A question about something else"])
    array([-1])
    """

    encoder: Any = None
    _: KW_ONLY
    false_discovery_rate: float = 0.05
    guard: Any = None
    neighbors: BaseEstimator | None = None

    _parameter_constraints = {
        "encoder": "no_validation",  # `as_encoder` checks it
        "false_discovery_rate": [Interval(Real, 0, 1, closed="neither")],
        "guard": [HasMethods("details"), None],
        "neighbors": [HasMethods(["fit", "transform"]), None],
    }

    _state_version = 2
    __metadata_request__fit = {"A": UNUSED, "B": UNUSED}  # data of the fit

    @_fit_context(prefer_skip_nested_validation=False)
    @from_scratch
    def fit(self, A: Any, B: Any) -> Self:
        """Match two lists.

        Parameters
        ----------
        A, B : texts of shape (n_records,), or vectors of shape (n_records, n_features)
            Records of each list: texts with an `encoder`, vectors without.

        Returns
        -------
        self : Matcher

        Raises
        ------
        ValueError
            If a list has fewer than four different records with content, if their vectors have
            different widths, or if there is a `guard` without an `encoder`.

        Warns
        -----
        UserWarning
            If no pair is listed, if a list has fewer than 20 records, or if both lists are the
            same.
        """
        if self.guard is not None and self.encoder is None:
            raise ValueError(
                "Matcher got a guard, which reads texts, but no encoder; expected both. Set "
                "the encoder, as in Matcher(encoder, guard=...), and pass texts."
            )
        texts = None
        if self.encoder is None:
            self._side, first = Side.fitted(self, A)
            second = self._side.unit(self, B, "B")
        else:
            texts = as_texts(A, "A"), as_texts(B, "B")
            self._side, both = Side.fitted(self, [*texts[0], *texts[1]])
            first, second = both[: len(texts[0])], both[len(texts[0]) :]
        rows = [_different(unit) for unit in (first, second)]
        for name, unit, kept in zip("AB", (first, second), rows, strict=True):
            if len(kept) < FEWEST:
                raise ValueError(
                    f"{name} has n_samples={len(unit)} records, {len(kept)} of them different "
                    f"and with content; expected {FEWEST} or more, better a hundred. The rate "
                    "of false pairs is estimated from all records of both lists."
                )
        first, second = first[rows[0]], second[rows[1]]
        if np.array_equal(first, second):
            warn(
                "A and B are the same records, so each is its own partner. To find duplicates "
                "within one list, use Duplicates."
            )
        self._means = np.array([first.mean(axis=0), second.mean(axis=0)], dtype=np.float64)
        self._projection = mild_whitening(
            POWER, (first, self._means[0]), (second, self._means[1])
        )
        a, b = self._calibrated(first, 0), self._calibrated(second, 1)
        self._bank, bank = bank_of(b), bank_of(a)
        a, b = searched(a, self._bank), searched(b, bank)
        self.neighbors_ = self._index(b)
        ways = (a, b, self.neighbors_), (b, a, self._index(a))
        nearest = [best_scores(x, y, min(NEAREST, len(y)), index) for x, y, index in ways]
        i, j, scores, decoys = mutual_pairs(*nearest)
        self._searched, self._rows, self._best = b, rows[1], nearest[1][0][:, :2]
        self._guard = guard_of_fit(self.guard)
        self._details: list[Any] = []  # of the second list, for the guard
        if texts is not None and self._guard is not None:
            self._details = [self._guard.details(texts[1][row]) for row in rows[1]]
            own = (self._guard.details(texts[0][row]) for row in rows[0][i])
            agree = [d == self._details[k] for d, k in zip(own, j, strict=True)]
            i, j, scores = i[agree], j[agree], scores[agree]
        q = q_values(scores, decoys)
        listed = np.flatnonzero(q <= self.false_discovery_rate)
        listed = listed[np.argsort(-scores[listed], kind="stable")]
        self.pairs_ = np.column_stack([rows[0][i[listed]], rows[1][j[listed]]])
        self.scores_, self.q_values_ = scores[listed], q[listed]
        self.threshold_ = float(self.scores_[-1]) if len(listed) else np.inf
        self.n_mutual_ = len(i)
        if not len(listed):
            warn(
                f"No pair is listed: the {len(i)} pairs of mutual nearest neighbors do not "
                "stand out from those that records without a partner would make. Few records "
                "have a partner, or the lists are too short; try a larger "
                f"false_discovery_rate than {self.false_discovery_rate:g}, or another encoder."
            )
        elif (fewest := min(len(first), len(second))) < FEW:
            warn(
                f"A list has {fewest} different records. The rate of false pairs can hardly be "
                f"estimated from fewer than {FEW}: check the pairs."
            )
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Row of the second list that is the partner of each record, or -1.

        Parameters
        ----------
        X : texts of shape (n_records,), or vectors of shape (n_records, n_features)
            Records like those of the first list: new ones, or some of the fit.

        Returns
        -------
        rows : ndarray of shape (n_records,), int
            Rows of `B`. It is -1 if the best score is below `threshold_`, if a fitted record
            of the first list is nearer to that row, or if the `guard` finds other details.
        """
        check_is_fitted(self)
        texts = as_texts(X) if self._details else None
        unit = self._side.unit(self, X)
        partner = np.full(len(unit), -1)
        content = np.flatnonzero(unit.any(axis=1))
        if not len(content):
            return partner
        asked = searched(self._calibrated(unit[content], 0), self._bank)
        nearest, columns = best_scores(asked, self._searched, 2, self.neighbors_)
        column, best_of_fit = columns[:, 0], self._best[columns[:, 0]]
        # As equal vectors may score a little differently in another product of matrices.
        is_new = nearest[:, 0] > best_of_fit[:, 0] + SLACK
        other = np.where(is_new, best_of_fit[:, 0], best_of_fit[:, 1])
        scores = scores_of(nearest[:, 0], np.maximum(nearest[:, 1], other))
        accepted = (scores >= self.threshold_ - SLACK) & (columns >= 0).all(axis=1)
        accepted &= nearest[:, 0] >= best_of_fit[:, 0] - SLACK
        if texts is not None:
            own = (self._guard.details(texts[row]) for row in content)
            accepted &= [d == self._details[k] for d, k in zip(own, column, strict=True)]
        partner[content[accepted]] = self._rows[column[accepted]]
        return partner

    def _index(self, among: np.ndarray) -> Any:
        """Return a clone of `neighbors` that is fitted on a list, if there is one."""
        if self.neighbors is None or len(among) <= NEAREST + 1:
            return None
        return clone(self.neighbors).set_params(n_neighbors=NEAREST).fit(among)

    def _calibrated(self, unit: np.ndarray, side: int) -> np.ndarray:
        """Return unit vectors minus the mean of their side, whitened, float32."""
        return unit_vectors((unit - self._means[side]) @ self._projection)


def _different(unit: np.ndarray) -> np.ndarray:
    """Rows with content, of equal ones the first."""
    rows = np.flatnonzero(unit.any(axis=1))
    return rows[first_of_equal(unit[rows])]
