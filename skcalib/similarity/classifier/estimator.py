"""ZeroShotClassifier: classes from their names, or from a few labels, and many texts."""

import warnings
from dataclasses import KW_ONLY
from itertools import chain
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from skcalib.base import VersionedState, estimator, from_scratch, warn
from skcalib.compat import Interval, _fit_context
from skcalib.cosines import EQUAL, nearness
from skcalib.inputs.labels import labels_of
from skcalib.inputs.texts import TextInput, as_texts, distinct_sorted
from skcalib.similarity.classifier.inputs import (
    in_order,
    known_labels,
    labeled_rows,
    named_classes,
)
from skcalib.similarity.classifier.refinement import Pool, class_means, side_by_side
from skcalib.similarity.classifier.rejection import (
    best_cosines,
    cosines_of_others,
    limit,
    near_copies,
    raw_means,
)
from skcalib.similarity.classifier.temperature import temperature
from skcalib.similarity.space import TextSpace
from skcalib.statistics.conformal import confidence_for, n_above

# The power of the whitening is n / (n + 4) with n examples of a class.
EXAMPLES_OF_HALF_POWER = 4
# Of the texts without labels, where some may belong to no class: most of a log do belong.
NEAREST_SHARE = 0.5
ENCODED = (
    " StackingClassifier and VotingClassifier encode labels as 0 to k - 1, in their order: "
    "inside them give class_names as a mapping from these, such as {0: 'animals', 1: 'music'}."
)


@estimator
class ZeroShotClassifier(TextInput, VersionedState, ClassifierMixin, BaseEstimator):
    """Classify texts by the names of classes or a few labels, helped by unlabeled texts.

    Texts without labels calibrate the vectors, and they pull each class from its name, or its
    few labeled texts, toward the texts that are most similar to it.

    Parameters
    ----------
    encoder : transformer of texts, or any encoder of texts
        Such as `BertEncoder`, or a model's folder, see `TextEncoder`. It is cloned and fitted;
        a ``FrozenEstimator`` keeps its fit. A ``Whitening(power="auto")`` follows it, whose
        power depends on the number of labels, see Notes, unless it is a pipeline with a
        `Whitening` or a `NormalizingFlow`.
    class_names : list of str, mapping, or None, default=None
        Names of the classes, which are also their labels; or a mapping from each label to one
        description or several. "_" and "-" count as spaces. None takes the classes from the
        labels given to `fit`.
    rejection_rate : float in (0, 1) or None, default=None
        Share of texts *like all fitted ones* that may get the label `other` because no class is
        similar to them. If a fifth of the fitted texts belong to no class, as in a log, it is
        that fifth and what you accept of the others: 0.25 for one in twenty. None assigns every
        text to a class. With any rate, classes are learned from the nearest half of the texts
        only, see Notes, which also changes the classes of texts that are kept: from names
        alone, accuracy changes by -3.7 to +15.0 points in ten cells of the page on classes.
    other : object, default="other"
        Label of texts that belong to no class.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    class_means_ : ndarray of shape (n_classes, 2 * d)
        Means of vectors of unit length. Their first half is compared with the calibrated vector
        of a text, and the second with the same smoothed. The score is the mean of both halves'
        ``x·μ - |μ|²/2``, which is greatest where the distance of x to μ is least.
    encoder_ : Pipeline
        From texts to calibrated vectors of width d, fitted.
    smoothing_ : NeighborSmoothing
        The step after `encoder_`, fitted.
    temperature_ : float
        Divides the scores in `predict_proba`.
    threshold_ : float
        Similarity to the nearest class below which a text is `other`, see Notes; minus infinity
        without a `rejection_rate`.

    See Also
    --------
    CalibrationSearch : Calibrates an encoder for other uses.

    Notes
    -----
    The whitening is stronger where a class has more examples: its power is n / (n + 4), where n
    counts the name and the labeled texts of a class, on average. Along weak directions, a
    single text or name has more noise than signal, but the mean of many texts has little noise;
    linear discriminant analysis would use them in full, as a power of 1 does.

    The mean of the names' vectors is moved to that of the texts'. A class begins as the mean of
    its name and its labeled texts. It is updated three times, to the mean of its name and its
    labeled texts, each counted as ten texts, and of the texts without labels that are nearest
    to it. A name counts less if labeled texts, each left out, are classified worse with it or
    by names alone than by labels alone, and more if names alone are better. The more texts
    change their class meanwhile, the less this counts: `class_means_` lie between the first
    means and the last. With n texts and k classes, this counts n / (n + 100 k), and the
    smoothing n / (n + 10 k).

    Whether a text is `other` depends on two cosines, with the mean of the nearest class: one of
    calibrated vectors, and one of vectors before the calibration, since that removes what
    distinguishes another domain. Each is standardized over the fitted texts, and their mean
    counts. The fitted texts are judged in ten folds, each by classes made without it, and the
    threshold is a rank of their values. With 100 texts or more, and as many as this needs (230
    for 1 %), the rate holds for this fit with a confidence of 0.9, with fewer on average over
    fits. That is so for new values that are drawn like these; judging in folds comes near to
    that, and simulations keep it. Texts of another kind, such as those of users after a fit on
    a curated list, may be rejected twice as often. With a rate, only the half of the texts
    nearest to names and labels makes the classes. A distinct text counts once, and no order
    matters. Near-copies, whose cosine is 0.9 or more after the mean is subtracted, are judged
    together and count as one. If texts come in groups that are less similar, more may be
    rejected. With many labels, a logistic regression on the vectors of `encoder_` is better.

    A text without content for the encoder (blank, only unknown tokens, or a zero vector) is
    left out of the fit, with a warning, and is similar to no class: `other` with a
    `rejection_rate`, without one the class with the shortest mean.

    ``StackingClassifier`` and ``VotingClassifier`` encode labels as 0 to k - 1, in their order:
    inside them `class_names` maps these numbers, ``{0: "animals", 1: "music"}``.

    Examples
    --------
    >>> from skcalib import ZeroShotClassifier
    >>> from skcalib.datasets import load_toy_sts
    >>> texts = load_toy_sts().data.ravel()[:200]
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
        "encoder": "no_validation",  # `as_encoder` checks it
        "class_names": "no_validation",  # `named_classes` checks it
        "rejection_rate": [Interval(Real, 0, 1, closed="neither"), None],
        "other": "no_validation",
    }

    _state_version = 8

    @from_scratch
    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Learn the classes from texts, most of them without labels.

        Parameters
        ----------
        X : texts of shape (n_texts,)
            Texts of the domain, the more the better; two distinct ones at least.
        y : array-like of shape (n_texts,), default=None
            Labels of some of them: missing are None, NaN and blank strings, and -1 if labels
            are integers and -1 is no key of `class_names`. Where -1 may be a class, as of -1, 0
            and 1, it is refused.

        Returns
        -------
        self : ZeroShotClassifier

        Raises
        ------
        TypeError, ValueError
            If there are neither names nor labels, a label is none of the classes, labels are -1
            and one other, the encoder gives two classes' names one vector, or there are fewer
            than two distinct texts, or fewer than `rejection_rate` needs.

        Warns
        -----
        UserWarning
            If there is one class and no `rejection_rate`, so that every text is of this class.
        """
        every_text = as_texts(X)
        described = {} if self.class_names is None else named_classes(self.class_names)
        known, labels = known_labels(y, len(every_text), [*described])
        described = self._described(described, labels)
        labels_of([self.other], "other", missing=True)
        if self.rejection_rate is not None and self.other in [*described]:
            raise ValueError(
                f"other={self.other!r} is also a class; expected a label that is no class, so "
                "that rejected texts can be distinguished. Set another label."
            )
        texts, place = distinct_sorted(every_text)
        self._rank(len(texts))  # too few are refused before they are encoded

        space = TextSpace(self.encoder)
        vectors = space.fit_vectors(texts)
        raw = vectors if self.rejection_rate is None else space.raw(texts, vectors)
        labeled = np.intersect1d(place[known], np.flatnonzero(vectors.any(axis=1)))
        n_examples = len(labeled) / len(described) + any(described.values())
        power = n_examples / (n_examples + EXAMPLES_OF_HALF_POWER)
        vectors = space.whiten(vectors, power=power)
        content = vectors.any(axis=1)
        vectors, raw = vectors[content], raw[content]
        row = np.where(content, np.cumsum(content) - 1, -1)
        groups = None if self.rejection_rate is None else near_copies(vectors)
        rank = 0 if groups is None else self._rank(groups.max() + 1, ", near-copies once")
        names = _vectors_of_names(space, described)
        pool = Pool.fitted(vectors, names, len(described), space.is_frozen)
        lines = row[place[known]]
        rows, codes = labeled_rows(lines, labels, [*described], named=names is not None)
        share = 1.0 if groups is None else NEAREST_SHARE
        self.class_means_ = class_means(pool.texts, pool.of_names, rows, codes, share)
        self.threshold_, self._standard, self._other = -np.inf, None, self.other
        if groups is not None:
            cosines = cosines_of_others(groups, pool.without, raw, rows, codes, share)
            self._standard, self.threshold_ = limit(cosines, groups, rank)
            self._raw_means = raw_means(raw, pool.texts, self.class_means_)
        self.temperature_ = temperature(len(vectors), pool.without, rows, codes, share)
        self._space, self.encoder_, self.smoothing_ = space, space.pipeline, pool.smoothing
        classes = np.array([*described])
        is_exact = classes.tolist() == [*described]  # not so where large integers were rounded
        self.classes_ = classes if is_exact else np.array([*described], object)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of texts for classes.

        Parameters
        ----------
        X : texts of shape (n_texts,)

        Returns
        -------
        scores : ndarray of shape (n_texts, n_classes) or (n_texts,), float64
            See `class_means_`. For two classes, the score of the second minus that of the
            first, as scikit-learn expects: it is positive where the second is predicted.
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Nearest class of each text, or `other`.

        Parameters
        ----------
        X : texts of shape (n_texts,)

        Returns
        -------
        labels : ndarray of shape (n_texts,)
            Of dtype object if `other` is not of the kind of the labels.
        """
        check_is_fitted(self)
        texts, standard = as_texts(X), self._standard
        if standard is None:
            vectors = self._space.vectors(texts)
        else:
            raw, vectors = self._space.both(texts)
        views = side_by_side(vectors, self.smoothing_)
        labels = self.classes_[nearness(views, self.class_means_).argmax(axis=1)]
        if standard is None:
            return labels
        cosines = best_cosines(views, raw, self.class_means_, self._raw_means)
        rejected = standard(cosines) < self.threshold_
        rejected |= ~views.any(axis=1)  # similar to no class
        if np.asarray(self._other).dtype.kind != labels.dtype.kind:
            labels = labels.astype(object)
        return np.where(rejected, self._other, labels)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes: softmax of the scores over `temperature_`.

        The temperature makes labeled texts most probable, each scored by classes that were made
        without it [1]_; a prior keeps it near 0.05, within a factor of two, if there are few.
        Without two labels of some class it is 0.05, and the result is a score between 0 and 1
        rather than a probability: names do not show how often they mislead. In any case it
        holds for texts that belong to one of the classes, as often as among the labeled ones.

        Parameters
        ----------
        X : texts of shape (n_texts,)

        Returns
        -------
        probabilities : ndarray of shape (n_texts, n_classes), float64
            The class of `predict` has the greatest one, except for `other`.

        References
        ----------
        .. [1] Guo et al. (2017), "On Calibration of Modern Neural Networks", arXiv:1706.04599.
        """
        return softmax(self._scores(X) / self.temperature_, axis=1)

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
        check_is_fitted(self)
        texts = as_texts(X)
        known, labels = known_labels(y, len(texts), self.classes_.tolist())
        if not labels:
            return float("nan")
        weights = None if sample_weight is None else np.asarray(sample_weight)[known]
        predicted = self.predict([texts[i] for i in known]).tolist()
        # One by one: an array of one dtype would cut labels that no class has, or round them.
        right = [label == expected for label, expected in zip(predicted, labels, strict=True)]
        return float(np.average(right, weights=weights))

    def _described(
        self, described: dict[Any, list[str]], labels: list[Any]
    ) -> dict[Any, list[str]]:
        """Return the descriptions of each class, none if only labels name it."""
        if self.class_names is None:
            if not labels:
                raise ValueError(
                    f"{type(self).__name__} got neither class_names nor labels. Give the names "
                    "of the classes, or y with a label for some of the texts."
                )
            described = {label: [] for label in in_order(set(labels))}
        if len(described) == 1 and self.rejection_rate is None:
            [label] = described
            warn(
                f"There is only one class, {label!r:.60}, so every text gets it. Give another "
                "class, or set a rejection_rate."
            )
        labels_of([*described, *labels], "y, beside class_names,")
        if unknown := [label for label in labels if label not in described]:
            raise ValueError(
                f"y has the label {unknown[0]!r}, which is none of the classes "
                f"{[*described]!r:.200}. Name it in class_names, or mark texts without a label "
                f"by None.{ENCODED if isinstance(unknown[0], int) else ''}"
            )
        return described

    def _rank(self, n: int, counted: str = "") -> int:
        """Return the rank of the score of n texts below which a text is rejected."""
        if self.rejection_rate is None:
            return 0
        rate, kind = self.rejection_rate, f"distinct texts{counted}"
        confidence = confidence_for(n, rate)
        return 1 + n_above(n, rate, kind, name="rejection_rate", confidence=confidence)

    def _scores(self, X: Any) -> np.ndarray:
        """Return the scores of all classes, also of two."""
        check_is_fitted(self)
        views = side_by_side(self._space.vectors(as_texts(X)), self.smoothing_)
        return nearness(views, self.class_means_) / 2


def _vectors_of_names(space: TextSpace, described: dict[Any, list[str]]) -> np.ndarray | None:
    """Return the mean vector of each class's descriptions, or None if there are none."""
    texts = [*chain(*described.values())]
    if not texts:
        return None
    owner = np.repeat(np.arange(len(described)), [*map(len, described.values())])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        vectors = space.vectors(texts)
    for warning in caught:
        warn(f"Of the names of the classes: {warning.message}", warning.category)
    if not (content := vectors.any(axis=1)).all():
        i = int(content.argmin())
        raise ValueError(
            f"The name {texts[i]!r:.60} of the class {[*described][owner[i]]!r:.60} has no "
            "content for the encoder. Describe it by other words in class_names."
        )
    means = np.stack([vectors[owner == i].mean(axis=0) for i in range(len(described))])
    labels, lengths = [*described], (means**2).sum(axis=1)
    for i, (mean, length) in enumerate(zip(means, lengths, strict=True)):
        same = ((means[:i] - mean) ** 2).sum(axis=1) <= 2 * (1 - EQUAL) * length
        if same.any():
            raise ValueError(
                f"The encoder gives the names of the classes {labels[same.argmax()]!r:.60} and "
                f"{labels[i]!r:.60} the same vector, so no text can be nearer to one of them. "
                "Describe them by other words in class_names."
            )
    return means
