"""Duplicates: texts with the same meaning, at a given number of false pairs."""

from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from skcalib.encoders.calibrated import calibrated, content_vectors
from skcalib.similarity.duplicates.pairs import (
    distinct_rows,
    nearest_representatives,
    representatives,
    similar,
    similar_pairs,
)
from skcalib.similarity.duplicates.threshold import threshold_of
from skcalib.similarity.scale.estimator import SimilarityScale
from skcalib.utils.base import VersionedState, from_scratch
from skcalib.utils.sklearn_compat import HasMethods, Interval, _fit_context
from skcalib.utils.texts import TextInput, as_texts, distinct_sorted
from skcalib.utils.threads import rows_within
from skcalib.utils.vectors import checked_rows, first_text, unit_rows, warn_of_silent

# Vectors that are scaled to unit length at a time.
SCALED_BYTES = 64 * 2**20
NOTHING = int(np.iinfo(np.intp).min)  # key of new texts without content


@dataclass(eq=False, repr=False)
class Duplicates(TextInput, VersionedState, ClusterMixin, BaseEstimator):
    """Find duplicate texts, by a number of false pairs instead of a threshold.

    Parameters
    ----------
    encoder : transformer of texts, any encoder of texts, or None, default=None
        With an encoder, such as `BertEncoder` or a model's folder (see `TextEncoder`), `fit`
        accepts texts. The encoder is cloned and fitted; a ``FrozenEstimator`` keeps its fit. A
        ``Whitening(noise="auto")`` follows it, unless it is a pipeline with a `Whitening` or a
        `NormalizingFlow`. With None, `fit` accepts vectors, as the last step of a pipeline.
    false_pairs : float, default=20
        Expected number of unrelated pairs that are listed, among all pairs of distinct texts.
    guard : DetailGuard or None, default=None
        Details in which duplicates must agree, such as numbers; any object whose method
        ``details(text)`` returns something hashable. It reads texts, so it needs an `encoder`.
    scale : SimilarityScale or None, default=None
        Fitted on vectors of texts of the same kind without duplicates. None estimates the
        threshold from the texts that are searched.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Group of each text, from 0. A text without duplicates is a group of its own.
    representatives_ : ndarray of shape (n_groups,)
        Row of the text that represents each group, ascending.
    pairs_ : ndarray of shape (n_pairs, 2)
        Rows of two texts that reach the threshold, the most similar first. Of equal texts only
        the first is paired with other texts; each of the others is in one pair, with it.
    cosine_ : ndarray of shape (n_pairs,)
        Cosine of each pair, at most 1.
    threshold_ : float
        Least cosine of a pair.
    encoder_ : Pipeline or None
        From texts to calibrated vectors, fitted.
    n_features_in_, feature_names_in_
        Number of features seen during fit, and their names when all are strings; without an
        `encoder`.

    Notes
    -----
    Groups are not chains: each text reaches the threshold with its representative, the most
    similar one, and no two representatives reach it. The text with the most duplicates becomes
    a representative first. Ties go to the larger sum of cosines, then to the first row.

    The threshold comes from the pairs of up to 4,473 distinct texts, by the straight line of
    `SimilarityScale` with ``extrapolate=True``. If duplicates bend the line, it is fitted
    without pairs of texts that are nearest to each other and lead all others by three times as
    much as unrelated texts do, or without groups found by a stricter line. With fewer than 448
    distinct texts the pairs are counted, and at most `false_pairs` are listed. The time is
    quadratic in the number of texts, the memory is not.

    A text without content for the encoder (blank, only unknown tokens, or a zero vector) is
    similar to no other, and `fit` warns of it; copies of one such text are a group. `predict`
    uses the guard and the encoder of the fit.

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib import Duplicates
    >>> X = np.random.default_rng(0).normal(size=(1000, 64))
    >>> model = Duplicates(false_pairs=1).fit(np.vstack([X, X[:5] + 0.01]))
    >>> model.pairs_[np.argsort(model.pairs_[:, 0])][:5].tolist()
    [[0, 1000], [1, 1001], [2, 1002], [3, 1003], [4, 1004]]
    >>> model.predict(X[7:9] + 0.01).tolist()
    [7, 8]
    """

    encoder: Any = None
    _: KW_ONLY
    false_pairs: float = 20
    guard: Any = None
    scale: SimilarityScale | None = None

    _parameter_constraints = {
        "encoder": "no_validation",  # `as_encoder` checks it
        "false_pairs": [Interval(Real, 0, None, closed="neither")],
        "guard": [HasMethods("details"), None],
        "scale": [SimilarityScale, None],
    }
    _state_version = 2

    @_fit_context(prefer_skip_nested_validation=True)
    @from_scratch
    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the duplicates.

        Parameters
        ----------
        X : texts of shape (n_samples,), or vectors of shape (n_samples, n_features)
            Texts with an `encoder`, vectors without.
        y : None
            Ignored.

        Returns
        -------
        self : Duplicates

        Raises
        ------
        ValueError
            If there are too few distinct texts to estimate the threshold, if their pairs give
            none, or if there is a `guard` without an `encoder`.
        """
        if self.guard is not None and self.encoder is None:
            raise ValueError(
                "Duplicates got a guard, which reads texts, but no encoder; expected both. Set "
                "the encoder, as in Duplicates(encoder, guard=...), and pass texts."
            )
        self.encoder_ = None
        vectors, keys = self._vectors_and_keys(X, reset=True)
        first, inverse = distinct_rows(vectors, keys)
        vectors, keys = vectors[first], keys[first]
        threshold = threshold_of(vectors[keys >= 0], self.false_pairs, self.scale)
        pairs, cosines = similar_pairs(vectors, keys, threshold)
        chosen = representatives(pairs, cosines, np.bincount(inverse), first)
        of = first[nearest_representatives(pairs, cosines, chosen, first)]
        is_copy = first[inverse] != np.arange(len(inverse))
        equal = np.array([first[inverse[is_copy]], np.flatnonzero(is_copy)])
        pairs = np.sort(np.hstack([equal, first[pairs]]), axis=0).T
        cosines = np.concatenate([np.ones(len(equal.T)), np.minimum(cosines, 1.0)])
        order = np.lexsort((*pairs.T[::-1], -cosines))
        self.pairs_, self.cosine_, self.threshold_ = pairs[order], cosines[order], threshold
        self._vectors, self._keys, self._rows = vectors, keys, first
        self.representatives_, self.labels_ = np.unique(of[inverse], return_inverse=True)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the most similar fitted text of each text, for instance of a test set.

        Parameters
        ----------
        X : texts of shape (n_samples,), or vectors of shape (n_samples, n_features)
            As for `fit`.

        Returns
        -------
        rows : ndarray of shape (n_samples,)
            Row of the fitted text, the first of equal ones; -1 if none reaches the threshold.
            Among n fitted texts, about ``2 * k * false_pairs / n`` of k unrelated texts have a
            match.
        """
        check_is_fitted(self)
        vectors, keys = self._vectors_and_keys(X, reset=False)
        best = np.full(len(vectors), -1.0)
        own = dict(zip(self._keys.tolist(), self._rows.tolist(), strict=True))
        rows = np.array([own.get(key, -1) if key < 0 else -1 for key in keys.tolist()])
        blocks = similar(vectors, self._vectors, self.threshold_, (keys, self._keys))
        for i, j, cosines in blocks:
            found = self._rows[j]
            order = np.lexsort((-found, cosines))  # the last assignment stays
            i, found, cosines = i[order], found[order], cosines[order]
            better = (cosines > best[i]) | ((cosines == best[i]) & (found < rows[i]))
            best[i[better]], rows[i[better]] = cosines[better], found[better]
        return rows

    def _vectors_and_keys(self, X: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return unit vectors, and a key for the details of each; fit with ``reset``.

        Only texts with the same key may be similar. A text without content has a zero vector
        and a negative key, different from that of other texts.
        """
        if (self.encoder if reset else self.encoder_) is None:
            if first_text(X) is not None:
                raise TypeError(
                    "X has texts; without an encoder, Duplicates expects vectors. Set "
                    "encoder=BertEncoder(), or pass vectors."
                )
            unit = _unit(checked_rows(self, X, reset=reset))
            silent = ~unit.any(axis=1)
            keys = np.where(silent, -1 - np.arange(len(unit)) if reset else NOTHING, 0)
            if reset:
                warn_of_silent(silent)
            return unit, keys
        texts, index = distinct_sorted(as_texts(X))
        if reset:
            is_own = isinstance(self.guard, BaseEstimator)  # whose parameters may be set later
            self._guard = clone(self.guard) if is_own else self.guard
            self.encoder_, vectors = calibrated(self.encoder, texts, alone=True)
        else:
            vectors = content_vectors(self.encoder_, texts)
        details = [self._guard.details(text) if self._guard else "" for text in texts]
        unit = _unit(vectors)
        blank = np.flatnonzero(~unit.any(axis=1)).tolist()
        if reset:
            self._codes = {found: code for code, found in enumerate(dict.fromkeys(details))}
            self._silent = {texts[i]: -1 - i for i in blank}
        keys = np.array([self._codes.get(found, len(self._codes)) for found in details])
        keys[blank] = [self._silent.get(texts[i], NOTHING) for i in blank]
        return unit[index], keys[index]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "labels_")


def _unit(vectors: np.ndarray) -> np.ndarray:
    unit = np.empty(vectors.shape, np.float32)
    for rows in gen_batches(len(unit), rows_within(SCALED_BYTES, vectors.shape[1])):
        unit[rows] = unit_rows(vectors[rows])[0] + 0.0  # no negative zeros
    return unit
