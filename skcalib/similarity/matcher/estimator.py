"""Matcher: pairs of records of two lists that are the same thing, and few false ones."""

from dataclasses import KW_ONLY
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from skcalib.base import VersionedState, estimator, from_scratch, warn
from skcalib.compat import HasMethods, Interval, _fit_context
from skcalib.cosines import SLACK
from skcalib.inputs.pipelines import refuse_untransformed
from skcalib.inputs.texts import TextInput, as_texts, distinct_sorted
from skcalib.inputs.vectors import (
    check_vectors,
    checked_rows,
    first_of_equal,
    unit_vectors,
    warn_of_silent,
)
from skcalib.similarity.details import mild_whitening
from skcalib.similarity.duplicates.guard import guard_of_fit
from skcalib.similarity.matcher.discoveries import Decoys, q_values
from skcalib.similarity.matcher.pairs import (
    NEAREST,
    PairScores,
    Records,
    candidates,
    mutual_pairs,
)
from skcalib.similarity.matcher.spelling import Spelling
from skcalib.similarity.space import Side, TextSpace

FEWEST = 4  # different records with content of a side
FEW = 20  # records, below which a rate of 5 % can hardly be checked
# A mild whitening brings out details, which distinguish a record from others on its topic.
POWER = 0.25


@estimator
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
    mutual_pairs_ : ndarray of shape (n_mutual, 2)
        All pairs of mutual nearest records, for a review: those of `pairs_`, then the others,
        with growing doubt.
    mutual_q_values_ : ndarray of shape (n_mutual,)
        Their q-values, at most 1.
    threshold_ : float
        Score of the last pair listed; infinite if there is none.
    spelling_weight_ : float
        Weight of n-grams of characters, from 0 to 1; 0 for vectors.
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
    brings out details. The score of two records is how far Fisher's z of their cosine stands
    out among the cosines of either record with the other list, in standard deviations, on
    average of both [1]_. With texts, n-grams of characters (3 to 5, within words) are compared,
    too. They count by how far they stand out in the pairs that are nearest by meaning: hardly
    between two languages, in full between two shops.

    Candidates are pairs in which each record is the best of the other. The same pairs *within*
    each list are false, since a list has each thing once; they show how similar different
    things are, also variants of one product. This gives the false discovery rate [2]_ of each
    score. Where lists differ in style, records are more similar to those of their own. The
    next pairs, which are mutual nearest ones without the first, show by how much, and the
    scores within the lists are scaled. Of real lists, on average over draws, at most 1.1 % of
    the pairs were false at a promise of 1 %, the least that was measured, 6 % at 5 %, 10 % at
    10 %, and 22 % at 20 %. Of simulated ones whose partners hardly stand out, up to 2 %, 8 %,
    15 % and 22 % were. **It cannot be known from the lists** if each has one variant of a
    product, and these differ; use a `guard`. Near copies in a list count as different things:
    remove them first, with `Duplicates`. Equal records of a list count once; the first one is
    listed.

    References
    ----------
    .. [1] Kenny (2010), "Bayesian Speaker Verification with Heavy-Tailed Priors", Odyssey.
    .. [2] Elias & Gygi (2007), "Target-Decoy Search Strategy for Increased Confidence in
           Large-Scale Protein Identifications by Mass Spectrometry", Nature Methods 4.

    Examples
    --------
    >>> from skcalib import Matcher
    >>> from skcalib.datasets import load_docstrings
    >>> texts = load_docstrings().data[::7]
    >>> shop, other = texts[:177], [text.lower().rstrip(".") for text in texts[44:]]
    >>> matcher = Matcher("minilm").fit(shop, other)
    >>> right = matcher.pairs_[:, 0] - matcher.pairs_[:, 1] == 44
    >>> int(right.sum())  # of 133 records that are in both lists
    133
    >>> bool(right.mean() > 0.95)
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

    _state_version = 4
    __metadata_request__fit = {"A": UNUSED, "B": UNUSED}  # data of the fit

    @from_scratch
    @_fit_context(prefer_skip_nested_validation=False)
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
        refuse_untransformed(self, B, "B")
        self._guard, self._details = guard_of_fit(self), list[Any]()
        self._space: TextSpace | None = None
        self._spelling: Spelling | None = None
        self._width: int | None = None
        texts: list[list[str]] | list[None] = [None, None]
        if self.encoder is None:
            # scikit-learn's check, which learns the names of features, calls its input X.
            self._width = check_vectors(A, name="A", ensure_min_samples=0).shape[1]
            checked_rows(self, A, reset=True, ensure_min_samples=0)
        else:
            texts = [as_texts(A, "A"), as_texts(B, "B")]
            self._space = TextSpace(self.encoder)
            # Sorted, so that the order of the lists does not matter to an encoder that learns.
            self._space.fit_vectors(distinct_sorted([*texts[0], *texts[1]])[0])
            self._spelling = Spelling().fit(*texts)
        units = [self._unit(own, name) for own, name in zip((A, B), "AB", strict=True)]
        kept = [_different(unit) for unit in units]
        for name, unit, rows in zip("AB", units, kept, strict=True):
            if len(rows) < FEWEST:
                raise ValueError(
                    f"{name} has n_samples={len(unit)} records, {len(rows)} of them different "
                    f"and with content; expected {FEWEST} or more, better a hundred. The rate "
                    "of false pairs is estimated from all records of both lists."
                )
        if self._space is None:
            warn_of_silent(np.concatenate([~unit.any(axis=1) for unit in units]))
        units = [unit[rows] for unit, rows in zip(units, kept, strict=True)]
        if np.array_equal(units[0], units[1]):
            warn(
                "A and B are the same records, so each is its own partner. To find duplicates "
                "within one list, use Duplicates."
            )
        self._means = [unit.mean(axis=0, dtype=np.float64) for unit in units]
        self._projection = mild_whitening(POWER, *zip(units, self._means, strict=True))
        lists = [
            self._records(unit, side, [own[row] for row in rows] if own else None, learns=True)
            for side, (unit, rows, own) in enumerate(zip(units, kept, texts, strict=True))
        ]
        return self._match(lists, kept)

    def _match(self, lists: list[Records], kept: list[np.ndarray]) -> Self:
        """List the pairs of different records; ``kept`` are their rows in the input."""
        first, second = lists
        self.neighbors_ = self._index(second.vectors)
        indexes = [self._index(first.vectors), self.neighbors_]
        across = [candidates(first, second, indexes[1]), candidates(second, first, indexes[0])]
        rows, columns = np.hstack([across[0], across[1][::-1]])
        self._scores = PairScores.fitted(first, second)
        self.spelling_weight_ = self._scores.weight
        i, j, scores = self._scores.best(first, second, rows, columns)
        self._second, self._rows = second, kept[1]
        self._best = np.full(len(second.vectors), -np.inf)
        np.maximum.at(self._best, j, scores)
        nearest, others = mutual_pairs(i, j, scores)
        nearest = nearest[np.argsort(-scores[nearest], kind="stable")]
        decoys = [self._decoys(*of_list) for of_list in zip(lists, indexes, strict=True)]
        q = q_values(scores[nearest], scores[others], decoys)
        self.mutual_pairs_ = np.column_stack([kept[0][i[nearest]], kept[1][j[nearest]]])
        self.mutual_q_values_ = q
        n = np.count_nonzero(q <= self.false_discovery_rate)
        self.pairs_, self.q_values_ = self.mutual_pairs_[:n], q[:n]
        self.scores_ = scores[nearest[:n]]
        self.threshold_ = float(self.scores_[-1]) if n else np.inf
        self._warn_of_few(min(own.size for own in decoys))
        return self

    def _decoys(self, own: Records, index: Any) -> Decoys:
        """Return the scores of pairs of a list, which are false."""
        of_list = PairScores.fitted(own, own, like=self._scores)
        i, j, scores = of_list.best(own, own, *candidates(own, own, index, same=True))
        nearest, others = (
            scores[pairs[i[pairs] < j[pairs]]] for pairs in mutual_pairs(i, j, scores)
        )
        return Decoys(nearest, others, len(own.vectors))

    def _warn_of_few(self, size: int) -> None:
        """Warn of no pair, or of a list of a few different records."""
        q = self.mutual_q_values_
        if not len(self.pairs_):
            least = f"at least {q.min():.2g}" if len(q) else "unknown"
            other = "another encoder, or no guard" if self.guard else "another encoder"
            warn(
                f"No pair is listed: the share of false pairs is {least}, and "
                f"{self.false_discovery_rate:g} is allowed. Records of one list are as similar "
                "as those of both, or few have a partner. Check mutual_pairs_, set a larger "
                f"false_discovery_rate, or try {other}."
            )
        elif size < FEW:
            warn(
                f"A list has {size} different records. The rate of false pairs can "
                f"hardly be estimated from fewer than {FEW}: check the pairs."
            )

    def predict(self, X: Any) -> np.ndarray:
        """Row of the second list that is the partner of each record, or -1.

        Parameters
        ----------
        X : texts of shape (n_records,), or vectors of shape (n_records, n_features)
            Records like those of the first list: new ones, or some of the fit.

        Returns
        -------
        rows : ndarray of shape (n_records,), int
            Rows of `B`, by the rule of the fit: each at most once. It is -1 if the best score
            is below `threshold_`, if another record of `X`, or a fitted one of the first list,
            is nearer to that row, or if the `guard` finds other details.
        """
        check_is_fitted(self)
        texts = None if self._space is None else as_texts(X)
        unit = self._unit(X, "X")
        partner = np.full(len(unit), -1)
        content = np.flatnonzero(unit.any(axis=1))
        if not len(content):
            return partner
        asked = None if texts is None else [texts[row] for row in content]
        new = self._records(unit[content], 0, asked)
        pairs = candidates(new, self._second, self.neighbors_)
        i, j, scores = self._scores.of_new(new, self._second).best(new, self._second, *pairs)
        nearest, _ = mutual_pairs(i, j, scores)
        i, j, scores = i[nearest], j[nearest], scores[nearest]
        accepted = (scores >= self.threshold_ - SLACK) & (scores >= self._best[j] - SLACK)
        partner[content[i[accepted]]] = self._rows[j[accepted]]
        return partner

    def _index(self, among: np.ndarray) -> Any:
        """Return a clone of `neighbors` that is fitted on a list, if there is one."""
        if self.neighbors is None or len(among) <= NEAREST + 2:
            return None
        return clone(self.neighbors).set_params(n_neighbors=NEAREST + 1).fit(among)

    def _unit(self, X: Any, name: str) -> np.ndarray:
        """Return unit vectors of input that an error calls by ``name``."""
        return Side(self._space, self._width or 0).checked(self, X, name, fitted="A")[0]

    def _records(
        self, unit: np.ndarray, side: int, texts: list[str] | None, *, learns: bool = False
    ) -> Records:
        """Return calibrated unit vectors, n-grams, and a key for the details of each."""
        vectors = unit_vectors((unit - self._means[side]) @ self._projection)
        keys = np.zeros(len(unit), int)
        if texts is None or self._spelling is None:
            return Records(vectors, None, keys)
        if self._guard is not None:
            numbers = {details: number for number, details in enumerate(self._details)}
            found = map(self._guard.details, texts)
            keys = np.array([numbers.setdefault(details, len(numbers)) for details in found])
            if learns:
                self._details = list(numbers)
        return Records(vectors, self._spelling.vectors(texts), keys)


def _different(unit: np.ndarray) -> np.ndarray:
    """Rows with content, of equal ones the first."""
    rows = np.flatnonzero(unit.any(axis=1))
    return rows[first_of_equal(unit[rows])]
