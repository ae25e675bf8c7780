"""ZeroShotClassifier: classes from their names, or from a few labels, and many texts."""

from dataclasses import KW_ONLY, dataclass
from itertools import chain
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from skcalib._base import VersionedState
from skcalib._calibrators import calibrated
from skcalib._classifier.inputs import in_order, known_labels, named_classes
from skcalib._classifier.refinement import best_cosines, best_of_others, class_vectors
from skcalib._encoder.any_encoder import encoded
from skcalib._labels import labels_of
from skcalib._neighbors.estimator import NeighborSmoothing
from skcalib._sklearn_compat import Interval, _fit_context
from skcalib._texts import TextInput, as_texts, distinct_sorted
from skcalib._vectors import unit_rows

# Of the softmax: cosines to two classes that differ by this much are e times as probable.
TEMPERATURE = 0.05


@dataclass(eq=False, repr=False)
class ZeroShotClassifier(TextInput, VersionedState, ClassifierMixin, BaseEstimator):
    """Classify texts by the names of the classes, or by a few labels, and many other texts.

    Texts without labels calibrate the vectors, and they pull each class from its name, or its
    few labelled texts, to where the texts lie that are most similar to it.

    Parameters
    ----------
    encoder : transformer of texts, or any encoder of texts
        Such as `BertEncoder`, or a model's folder, see `TextEncoder`. It is cloned and fitted;
        a ``FrozenEstimator`` keeps its fit. A ``Whitening(noise="auto")`` follows it, unless it
        is a pipeline with a `Whitening` or a `NormalizingFlow`.
    class_names : list of str, mapping, or None, default=None
        Names of the classes, which are also their labels; or a mapping from each label to one
        description or several. "_" and "-" count as spaces. None takes the classes from the
        labels given to `fit`.
    rejection_rate : float in (0, 1) or None, default=None
        Share of texts like the fitted ones that may get the label `other` because no class is
        similar to them. None assigns every text to a class.
    other : object, default="other"
        Label of texts that belong to no class.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    class_vectors_ : ndarray of shape (n_classes, 2 * d)
        Unit vectors. Their first half is compared with the calibrated vector of a text, and the
        second with the same smoothed; the cosine is the mean of both.
    encoder_ : Pipeline
        From texts to calibrated vectors of width d, fitted.
    smoothing_ : NeighborSmoothing
        Behind `encoder_`, fitted.
    threshold_ : float
        Cosine of the first half of the vectors to the nearest class, below which a text is
        `other`; minus infinity without a `rejection_rate`.

    See Also
    --------
    calibrate : Calibrates an encoder for other uses.

    Notes
    -----
    The mean of the names' vectors is moved to that of the texts'. A class begins as the mean of
    its name and its labelled texts. Three times it becomes the mean of these, each counted as
    ten texts, and of the texts without labels that are most similar to it. For the threshold
    for `other`, the fitted texts are judged in ten folds, each by classes made without it. A
    distinct text counts once, and no order matters. With more than eight labels a class, a
    logistic regression on the vectors of `encoder_` was better in our measurements.

    Examples
    --------
    >>> from skcalib import ZeroShotClassifier
    >>> from skcalib.datasets import load_toy_sts
    >>> texts = load_toy_sts().data.ravel()
    >>> model = ZeroShotClassifier("minilm", ["music", "animals", "cooking"]).fit(texts)
    >>> model.predict(["A man plays the flute.", "A dog runs.", "She slices an onion."])
    array(['music', 'animals', 'cooking'], dtype='<U7')
    """

    encoder: Any
    class_names: Any = None
    _: KW_ONLY
    rejection_rate: float | None = None
    other: Any = "other"

    _parameter_constraints = {
        "encoder": "no_validation",  # `as_encoder` says what it expects
        "class_names": "no_validation",  # so does `named_classes`
        "rejection_rate": [Interval(Real, 0, 1, closed="neither"), None],
        "other": "no_validation",
    }

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Learn the classes from texts, most of them without labels.

        Parameters
        ----------
        X : texts of shape (n_texts,)
            Texts of the domain, the more the better; two distinct ones at least.
        y : array-like of shape (n_texts,), default=None
            Labels of some of them: missing are None and NaN, and -1 if labels are integers.

        Returns
        -------
        self : ZeroShotClassifier

        Raises
        ------
        TypeError, ValueError
            If there are neither names nor labels, a label is none of the classes, or there are
            fewer than two distinct texts.
        """
        for attribute in ("classes_", "class_vectors_", "encoder_", "smoothing_", "threshold_"):
            self.__dict__.pop(attribute, None)  # an error below leaves nothing half-fitted
        given = as_texts(X, caller=type(self).__name__)
        known, labels = known_labels(y, len(given))
        described = self._described(labels)
        labels_of([self.other], "other", missing=True)
        if self.rejection_rate is not None and self.other in [*described]:
            raise ValueError(
                f"other={self.other!r} is also a class, so that rejected texts would be taken "
                "for texts of that class. Give other a label that is no class."
            )
        texts, place = distinct_sorted(given)
        with config_context(transform_output="default"):
            encoder, vectors = calibrated(self.encoder, texts, type(self).__name__)
            smoothing = NeighborSmoothing().fit(vectors)
            views = _side_by_side(vectors, smoothing)
            named = np.zeros((len(described), views.shape[1]))
            if names := [*chain(*described.values())]:
                of_names = encoded(encoder, names).astype(np.float64)
                if len(names) > 1:  # they are another kind of text, with a mean of their own
                    of_names += vectors.mean(axis=0) - of_names.mean(axis=0)
                owner = np.repeat(np.arange(len(named)), [*map(len, described.values())])
                np.add.at(named, owner, _side_by_side(of_names, smoothing))
        code = {label: i for i, label in enumerate(described)}
        pairs = {(place[i], code[label]) for i, label in zip(known, labels, strict=True)}
        named = unit_rows(named)[0]
        rows, codes = np.array(sorted(pairs), int).reshape(-1, 2).T
        threshold = -np.inf
        if self.rejection_rate is not None:
            best = best_of_others(views, named, rows, codes)
            threshold = float(np.quantile(best, self.rejection_rate))
        self.encoder_, self.smoothing_, self.threshold_ = encoder, smoothing, threshold
        self.class_vectors_ = class_vectors(views, named, rows, codes)
        classes = np.array([*described])
        is_exact = classes.tolist() == [*described]  # not so where large integers were rounded
        self.classes_ = classes if is_exact else np.array([*described], object)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Cosines of texts to classes.

        Parameters
        ----------
        X : texts of shape (n_texts,)

        Returns
        -------
        cosines : ndarray of shape (n_texts, n_classes), float64
        """
        return self._views(X) @ self.class_vectors_.T

    def predict(self, X: Any) -> np.ndarray:
        """Most similar class of each text, or `other`.

        Parameters
        ----------
        X : texts of shape (n_texts,)

        Returns
        -------
        labels : ndarray of shape (n_texts,)
            Of dtype object if `other` is not of the kind of the labels.
        """
        views = self._views(X)
        labels = self.classes_[(views @ self.class_vectors_.T).argmax(axis=1)]
        if self.threshold_ == -np.inf:
            return labels
        rejected = best_cosines(views, self.class_vectors_) < self.threshold_
        if np.asarray(self.other).dtype.kind != labels.dtype.kind:
            labels = labels.astype(object)
        return np.where(rejected, self.other, labels)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes: a softmax of the cosines over 0.05.

        They rank the classes, and are not calibrated: no label says how often one is right.

        Parameters
        ----------
        X : texts of shape (n_texts,)

        Returns
        -------
        probabilities : ndarray of shape (n_texts, n_classes), float64
        """
        return softmax(self.decision_function(X) / TEMPERATURE, axis=1)

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy on the texts that have a label.

        Parameters
        ----------
        X : texts of shape (n_texts,)
        y : array-like of shape (n_texts,)
            As in `fit`; texts without a label do not count.
        sample_weight : array-like of shape (n_texts,), default=None

        Returns
        -------
        accuracy : float
            NaN if no text has a label.
        """
        texts = as_texts(X, caller=type(self).__name__)
        known, labels = known_labels(y, len(texts))
        if not labels:
            return float("nan")
        weights = None if sample_weight is None else np.asarray(sample_weight)[known]
        found = self.predict([texts[i] for i in known]).tolist()
        # One by one: an array of one dtype would cut labels that no class has, or round them.
        right = [label == expected for label, expected in zip(found, labels, strict=True)]
        return float(np.average(right, weights=weights))

    def _described(self, labels: list[Any]) -> dict[Any, list[str]]:
        """Return the descriptions of each class, none if only labels tell of it."""
        if self.class_names is None:
            if not labels:
                raise ValueError(
                    f"{type(self).__name__} got neither class_names nor labels. Give the names "
                    "of the classes, or y with a label for some of the texts."
                )
            return {label: [] for label in in_order(set(labels))}
        described = named_classes(self.class_names)
        labels_of([*described, *labels], "y, beside class_names,")
        if strange := [label for label in labels if label not in described]:
            raise ValueError(
                f"y has the label {strange[0]!r}, which is none of the classes "
                f"{[*described]!r:.200}. Name it in class_names, or mark texts without a label "
                "by None."
            )
        return described

    def _views(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        texts = as_texts(X, caller=type(self).__name__)
        with config_context(transform_output="default"):
            return _side_by_side(encoded(self.encoder_, texts), self.smoothing_)


def _side_by_side(vectors: np.ndarray, smoothing: NeighborSmoothing) -> np.ndarray:
    """Return unit rows of twice the width, whose products are means of two cosines."""
    views = unit_rows(vectors)[0], smoothing.transform(vectors)
    return np.hstack(views) / np.sqrt(2)
