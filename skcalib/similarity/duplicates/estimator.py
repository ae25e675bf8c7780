"""Duplicates: texts with the same meaning, at a given number of false pairs."""

from collections.abc import Iterator
from copy import copy
from dataclasses import KW_ONLY
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from skcalib.base import VersionedState, estimator, from_scratch
from skcalib.compat import HasMethods, Interval, _fit_context, check_params
from skcalib.cosines import nearest_in_order
from skcalib.inputs.containers import refuse_rows
from skcalib.inputs.texts import TextInput, as_texts, distinct_sorted
from skcalib.inputs.vectors import (
    checked_rows,
    refuse_similarities,
    unit_vectors,
    warn_of_silent,
)
from skcalib.similarity.duplicates.guard import guard_of_fit
from skcalib.similarity.duplicates.pairs import (
    distinct_rows,
    nearest_representatives,
    representatives,
    similar_pairs,
)
from skcalib.similarity.duplicates.threshold import threshold_of
from skcalib.similarity.space import TextSpace

EXTRA = 10  # candidates that are compared exactly, since the search rounds
NOTHING = int(np.iinfo(np.intp).min)  # key of new texts without content


@estimator
class Duplicates(TextInput, VersionedState, BaseEstimator):
    """Find duplicate texts, by a number of false pairs instead of a threshold.

    Parameters
    ----------
    encoder : transformer of texts, any encoder of texts, or None, default=None
        With an encoder, such as `BertEncoder` or a model's folder (see `TextEncoder`), `fit`
        accepts texts. The encoder is cloned and fitted; a ``FrozenEstimator`` keeps its fit. A
        ``Whitening(power="auto")`` follows it, unless it is a pipeline with a `Whitening` or a
        `NormalizingFlow`. With None, `fit` accepts vectors, as the last step of a pipeline.
    false_pairs : float, default=20
        Expected number of unrelated pairs that are listed, among all pairs of distinct texts.
        It replaces a ``threshold``, see Notes. `at` changes it after a fit.
    guard : DetailGuard or None, default=None
        Details in which duplicates must agree, such as numbers; any object whose method
        ``details(text)`` returns something hashable. It reads texts, so it needs an `encoder`.

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
    There is no ``threshold``, since the meaning of a cosine depends on the encoder and on the
    number of texts; `threshold_` is the cosine that `false_pairs` leads to. For a cosine c of
    your own, cluster the vectors, ``encoder_.transform(texts)``, with scikit-learn.
    ``DBSCAN(1 - c, min_samples=2, metric="cosine")`` joins chains;
    ``AgglomerativeClustering(None, linkage="complete", distance_threshold=1 - c)`` with
    ``metric="cosine"`` does not.

    Groups are not chains: each text reaches the threshold with its representative, the most
    similar one, and no two representatives reach it. The text with the most duplicates becomes
    a representative first. Ties go to the larger sum of cosines, then to the first row. Most
    texts are alone, so this is no clusterer of scikit-learn, although it has `fit_predict`.

    The threshold comes from the pairs of up to 4,473 distinct texts, by a straight line of
    Fisher's z of cosines in the logarithm of larger rates. If duplicates bend the line, it is
    fitted without pairs of texts that are nearest to each other and lead all others by three
    times as much as unrelated texts do, or without groups found by a stricter line. With fewer
    than 448 distinct texts the pairs are counted, and at most `false_pairs` are listed. Such a
    number is an interval: of new texts of 18 sets, related ones among them, one to ten times as
    many pairs were listed as 20 allowed, and one to 2.2 times as many as 200; of random vectors
    a fifth to a half, and a half to three quarters. `fit` warns below one of a million pairs,
    the smallest rate that was compared with counts. The time is quadratic in the number of
    texts, the memory is not.

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

    Two of three new vectors are copies of fitted ones:

    >>> new = np.vstack([X[7:9] + 0.01, -X[:1]])
    >>> cosines, rows = model.kneighbors(new)
    >>> rows[model.predict(new) >= 0].ravel().tolist()
    [7, 8]
    """

    encoder: Any = None
    _: KW_ONLY
    false_pairs: float = 20
    guard: Any = None

    _parameter_constraints = {
        "encoder": "no_validation",  # `as_encoder` checks it
        "false_pairs": [Interval(Real, 0, None, closed="neither")],
        "guard": [HasMethods("details"), None],
    }
    _state_version = 5

    @from_scratch
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the duplicates.

        Parameters
        ----------
        X : texts of shape (n_samples,), or vectors of shape (n_samples, n_features)
            Texts with an `encoder`, vectors without.
        y : None
            Ignored. Texts and vectors are refused.

        Returns
        -------
        self : Duplicates

        Raises
        ------
        TypeError, ValueError
            If there are too few distinct texts to estimate the threshold, if their pairs give
            none, or if there is a `guard` without an `encoder`.

        Warns
        -----
        UserWarning
            If there are too few distinct texts, so that pairs are counted; more than a million
            pairs for each of `false_pairs`; so many similar texts that duplicates may be
            missed; or similar ones, perhaps series, that are listed beyond `false_pairs`.
        """
        refuse_rows(self, y, "Join two lists in X, or match them by Matcher.")
        self._guard = guard_of_fit(self)
        self.encoder_ = None
        vectors, keys = self._vectors_and_keys(X, reset=True)
        self._rows, self._inverse, drawn = distinct_rows(vectors, keys)
        self._vectors, self._keys = vectors[self._rows], keys[self._rows]
        self._drawn = drawn[self._keys[drawn] >= 0]
        threshold = threshold_of(self._vectors, self._drawn, self.false_pairs)
        pairs = similar_pairs(self._vectors, self._keys, threshold)
        return self._group(threshold, *pairs)

    def fit_predict(self, X: Any, y: Any = None) -> np.ndarray:
        """Find the duplicates, and return the group of each text.

        Parameters
        ----------
        X, y
            As for `fit`.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            The attribute `labels_`.
        """
        return self.fit(X, y).labels_

    def at(self, false_pairs: float) -> Self:
        """Return the groups at another number of false pairs, without a new fit.

        Parameters
        ----------
        false_pairs : float
            As the parameter. A smaller number than that of the fit keeps some of the pairs. For
            a larger one all vectors are compared again, but no text is encoded.

        Returns
        -------
        other : Duplicates
            The same as a fit with this number, on the same texts. This one does not change.

        Examples
        --------
        >>> import numpy as np
        >>> from skcalib import Duplicates
        >>> X = np.random.default_rng(0).normal(size=(1000, 16))
        >>> model = Duplicates(false_pairs=100).fit(X)
        >>> few = model.at(10)
        >>> len(few.pairs_) < len(model.pairs_)
        True
        """
        check_is_fitted(self)
        other = copy(self).set_params(false_pairs=false_pairs)
        check_params(other)
        threshold = threshold_of(self._vectors, self._drawn, false_pairs)
        if threshold < self.threshold_:
            pairs, cosines = similar_pairs(self._vectors, self._keys, threshold)
        else:
            place = np.full(len(self.labels_), -1)
            place[self._rows] = np.arange(len(self._rows))
            pairs = place[self.pairs_]
            kept = (pairs >= 0).all(axis=1) & (self.cosine_ >= threshold)
            pairs, cosines = pairs[kept].T, self.cosine_[kept]
        return other._group(threshold, pairs, cosines)

    def _group(self, threshold: float, pairs: np.ndarray, cosines: np.ndarray) -> Self:
        """Keep pairs of distinct texts, of shape (2, n_pairs), and the groups they make."""
        copies, n = np.bincount(self._inverse), len(self._inverse)
        cosines = np.minimum(cosines, 1.0)
        order = np.lexsort((*pairs[::-1], -cosines))  # so that sums do not depend on blocks
        pairs, cosines = pairs[:, order], cosines[order]
        chosen = representatives(pairs, cosines, copies)
        nearest = self._rows[nearest_representatives(pairs, cosines, chosen)]
        first = self._rows[self._inverse]
        is_copy = first != np.arange(n)
        equal = np.array([first[is_copy], np.flatnonzero(is_copy)])
        pairs = np.hstack([equal, self._rows[pairs]]).T
        cosines = np.concatenate([np.ones(len(equal.T)), cosines])
        order = np.lexsort((*pairs.T[::-1], -cosines))
        self.pairs_, self.cosine_, self.threshold_ = pairs[order], cosines[order], threshold
        self.representatives_, self.labels_ = np.unique(
            nearest[self._inverse], return_inverse=True
        )
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the group of each text, for instance of a test set.

        Parameters
        ----------
        X : texts of shape (n_samples,), or vectors of shape (n_samples, n_features)
            As for `fit`.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Group of the most similar fitted text; -1 if none reaches the threshold. A fitted
            text gets its own group. Among n fitted texts, about ``2 * k * false_pairs / n`` of
            k unrelated texts get one.
        """
        cosines, rows = self.kneighbors(X)
        are_near = cosines[:, 0] >= self.threshold_
        return np.where(are_near, self.labels_[rows[:, 0]], -1)

    def kneighbors(self, X: Any, n_neighbors: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Nearest fitted texts, whatever their cosine.

        Parameters
        ----------
        X : texts of shape (n_samples,), or vectors of shape (n_samples, n_features)
            As for `fit`.
        n_neighbors : int, default=1
            Largest number of texts to return for each.

        Returns
        -------
        cosines : ndarray of shape (n_samples, n_neighbors), float64
            In decreasing order: similarities, where scikit-learn's estimators have distances. A
            text is a duplicate if its cosine is at least `threshold_`.
        rows : ndarray of shape (n_samples, n_neighbors), int
            Rows of the fitted texts, of equal ones only the first. Where there are too few
            texts with the same details, the row is -1, and the cosine is -1.
        """
        check_is_fitted(self)
        check_scalar(n_neighbors, "n_neighbors", Integral, min_val=1)
        vectors, keys = self._vectors_and_keys(X, reset=False)
        shape = len(vectors), min(n_neighbors, len(self._vectors))
        cosines, rows = np.full(shape, -1.0), np.full(shape, -1)
        for key, asked, stored in _with_equal_keys(keys, self._keys):
            if key < 0:  # the same text without content
                cosines[asked, 0], rows[asked, 0] = 1.0, self._rows[stored]
                continue
            every = len(stored) == len(self._vectors)
            among = self._vectors if every else self._vectors[stored]
            k = min(shape[1], len(stored))
            exact, near = nearest_in_order(vectors[asked], among, min(k + EXTRA, len(stored)))
            cosines[asked, :k] = np.minimum(exact[:, :k], 1.0)
            rows[asked, :k] = self._rows[stored[near[:, :k]]]
        return cosines, rows

    def _vectors_and_keys(self, X: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return unit vectors, and a key for the details of each; fit with ``reset``.

        Only texts with the same key may be similar. A text without content has a zero vector
        and a negative key, different from that of other texts.
        """
        if (self.encoder if reset else self.encoder_) is None:
            X = checked_rows(self, X, reset=reset)
            if reset:
                refuse_similarities(X)
            unit = unit_vectors(X)
            silent = ~unit.any(axis=1)
            keys = np.where(silent, -1 - np.arange(len(unit)) if reset else NOTHING, 0)
            if reset:
                warn_of_silent(silent)
            return unit, keys
        texts, index = distinct_sorted(as_texts(X))
        if reset:
            self._space = TextSpace(self.encoder)
            vectors = self._space.whiten(self._space.fit_vectors(texts), allow_constant=True)
            self.encoder_ = self._space.pipeline
        else:
            vectors = self._space.vectors(texts)
        details = [self._guard.details(text) if self._guard else "" for text in texts]
        unit = unit_vectors(vectors)
        blank = np.flatnonzero(~unit.any(axis=1)).tolist()
        if reset:
            self._details = list(dict.fromkeys(details))  # a list, which skops can keep
            self._silent = {texts[i]: -1 - i for i in blank}
        codes = {detail: code for code, detail in enumerate(self._details)}
        keys = np.array([codes.get(detail, len(codes)) for detail in details])
        keys[blank] = [self._silent.get(texts[i], NOTHING) for i in blank]
        return unit[index], keys[index]


def _with_equal_keys(
    keys: np.ndarray, others: np.ndarray
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield each key that is in both arrays, and its places in either, ascending."""
    of_keys, of_others = (np.argsort(a, kind="stable") for a in (keys, others))
    unique, first = np.unique(keys[of_keys], return_index=True)
    starts, stops = (np.searchsorted(others[of_others], unique, s) for s in ("left", "right"))
    parts = zip(unique.tolist(), np.split(of_keys, first[1:]), starts, stops, strict=True)
    for key, places, start, stop in parts:
        if start < stop:
            yield key, places, of_others[start:stop]
