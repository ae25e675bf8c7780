"""ZeroShotClassifier: classes from their names, or from a few labels, and many texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import KFold
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from skcalib.base import VersionedState, warn
from skcalib.calibration.neighbors import NeighborSmoothing, smoothed
from skcalib.callbacks import fit_task
from skcalib.compat import Interval
from skcalib.cosines import EQUAL, above, nearest, nearness
from skcalib.inputs.labels import labels_of, plain
from skcalib.inputs.texts import TextInput, as_texts, distinct_sorted
from skcalib.inputs.vectors import unit_rows, unit_vectors
from skcalib.similarity.class_means import (
    class_means,
    evidence,
    nearest_class,
    nearest_share,
    sums_of,
)
from skcalib.similarity.space import TextSpace
from skcalib.statistics.conformal import confidence_for, n_above

# The power of the whitening is n / (n + 4) with n examples of a class.
EXAMPLES_OF_HALF_POWER = 4
NEIGHBORS = 10  # whose mean smooths a text, at most
# Of the texts without labels, where some may belong to no class: most of a log do belong.
NEAREST_SHARE = 0.5
# Texts without labels that may belong to no class, as a multiple of those that are rejected:
# the nearest ones to classes of either kind are not told apart.
DOUBTFUL = 2
FOLDS = 10  # of texts that are judged by classes made without them
NEAR = 0.9  # cosine of near-copies, after the mean of all texts is subtracted
# Without labels; the best temperatures, of several sets and encoders, are about this.
TEMPERATURE = 0.05
FACTOR = 2.0  # within this: a standard deviation of the temperature's logarithm, for the prior
LABEL_FOLDS = 5


class ZeroShotClassifier(TextInput, VersionedState, ClassifierMixin, BaseEstimator):
    """Classify texts by the names of classes or a few labels, helped by unlabeled texts.

    Texts without labels calibrate the vectors, and pull each class from its name, or its few
    labeled texts, toward the texts that are most similar to it.

    Parameters
    ----------
    encoder : transformer of texts, or any encoder of texts
        Such as `BertEncoder`, or a model's folder, see `TextEncoder`. It is cloned and fitted;
        a ``FrozenEstimator`` keeps its fit. A whitening follows it, see Notes, unless it is a
        pipeline with a `Whitening` or a `NormalizingFlow`.
    class_names : list of str, mapping, or None, default=None
        Names of the classes, which are also their labels; or a mapping from each label to one
        description or several. "_" and "-" count as spaces. None takes the classes from the
        labels given to `fit`.
    rejection_rate : float in (0, 1) or None, default=None
        Share of texts *like all fitted ones* that may get the label `other` because no class is
        similar to them. If a fifth of the fitted texts belong to no class, as in a log, it is
        that fifth and what you accept of the others: 0.25 for one in twenty. None assigns every
        text to a class. With a rate, classes are learned from the nearest half of the texts,
        which also changes the classes of texts that are kept.
    other : object, default="other"
        Label of texts that belong to no class.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    class_means_ : ndarray of shape (n_classes, 2 * d)
        Means of unit vectors. Their first half is compared with the calibrated vector of a
        text, and the second with the same smoothed. The score is the mean of both halves'
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
    **Classes.** The power of the whitening is n / (n + 4), where n counts the name and the
    labeled texts of a class, on average. The mean of the names is moved to that of the texts. A
    class begins as the mean of its name and its labeled texts. It is updated three times, to
    the mean of these, each counted as ten texts, and of the texts without labels that are
    nearest to it. The more texts change their class meanwhile, the less this counts; with n
    texts and k classes n / (n + 100 k), and the smoothing n / (n + 10 k). A name counts as many
    labeled texts as the odds that labeled texts are nearest to the name of their class exceed
    those that they are nearest to one other text of it. So names that contradict the labels do
    not count. A distinct text counts once, and no order matters. With many labels, a logistic
    regression on the vectors of `encoder_` is better.

    **None of these.** Whether a text is `other` depends on two cosines before the calibration,
    which removes what distinguishes another domain: with the mean of the nearest class, and
    with the nearest text. Of the texts without labels, those that are least similar to classes,
    twice the rate or half of all, are not compared, since they may belong to none. Each cosine
    is standardized over the fitted texts, and their mean counts. The fitted texts are judged in
    ten folds, each by classes made without it, and the threshold is a rank of their values.
    With 100 texts or more, and as many as this needs (230 for 1 %), the rate holds for this fit
    with a confidence of 0.9, with fewer on average over fits; simulations keep it. Near-copies
    (a cosine of 0.9 or more after the mean is subtracted) count as one. Texts of a curated list
    are more similar to each other than new ones are to them: in simulated lists of two groups
    of similar texts for each class, 6 to 35 % of new texts were rejected for 5 %. Add texts of
    users, without labels, to the fit: with 200 of them it was 2 to 9 %.

    **No content.** A text without content for the encoder (blank, only unknown tokens, or a
    zero vector) is left out of the fit, with a warning, and is similar to no class: `other`
    with a `rejection_rate`, without one the class with the shortest mean.

    **Inside other classifiers.** ``StackingClassifier`` and ``VotingClassifier`` encode labels
    as 0 to k - 1, in their order: there `class_names` maps these numbers, ``{0: "animals", 1:
    "music"}``.

    Examples
    --------
    >>> from skcalib import ZeroShotClassifier
    >>> from skcalib.datasets import load_toy_sts
    >>> texts = load_toy_sts().data.ravel()[:200]
    >>> model = ZeroShotClassifier("minilm", ["music", "animals", "cooking"]).fit(texts)
    >>> model.predict(["A man plays the flute.", "A dog runs.", "She slices an onion."])
    array(['music', 'animals', 'cooking'], dtype='<U7')
    """

    _parameter_constraints = {
        "encoder": "no_validation",  # `as_encoder` checks it
        "class_names": "no_validation",  # `_described` checks it
        "rejection_rate": [Interval(Real, 0, 1, closed="neither"), None],
        "other": "no_validation",
    }

    _state_version = 10

    _scope: "_Scope | None"

    def __init__(
        self,
        encoder: Any,
        class_names: Any = None,
        *,
        rejection_rate: float | None = None,
        other: Any = "other",
    ):
        self.encoder = encoder
        self.class_names = class_names
        self.rejection_rate = rejection_rate
        self.other = other

    @fit_task(prefer_skip_nested_validation=False, n_subtasks=1)
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
        ValueError
            If there are neither names nor labels, a label is none of the classes, the encoder
            gives two classes' names one vector, or there are too few texts.
        """
        space, every_text = TextSpace(self.encoder), as_texts(X)
        described = {} if self.class_names is None else _described(self.class_names)
        known, labels = _known_labels(y, len(every_text), [*described])
        described = self._checked_classes(described, labels)
        texts, place = distinct_sorted(every_text)
        self._rank(len(texts))  # too few are refused before they are encoded

        vectors = space.fit_vectors(texts)
        raw = vectors if self.rejection_rate is None else space.raw(texts, vectors)
        labeled = np.intersect1d(place[known], np.flatnonzero(vectors.any(axis=1)))
        n_examples = len(labeled) / len(described) + any(described.values())
        power = n_examples / (n_examples + EXAMPLES_OF_HALF_POWER)
        vectors = space.whiten(vectors, power=power)
        names = _vectors_of_names(space, described)

        content = vectors.any(axis=1)
        row = np.where(content, np.cumsum(content) - 1, -1)
        rows, codes = _labeled_rows(row[place[known]], labels, [*described], names is None)
        pool = _Pool.fit(vectors[content], names, len(described), space.is_frozen)
        share = 1.0 if self.rejection_rate is None else NEAREST_SHARE
        self.class_means_ = class_means(pool.texts, pool.names, rows, codes, share)
        self.temperature_ = _temperature(pool, rows, codes, share)
        self.threshold_, self._other, self._scope = -np.inf, self.other, None
        if self.rejection_rate is not None:
            self._fit_threshold(pool, raw[content], rows, codes)
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
        texts = as_texts(X)
        if self._scope is None:
            return self.classes_[self._scores(texts).argmax(axis=1)]
        raw, vectors = self._space.both(texts)
        views = _side_by_side(vectors, self.smoothing_)
        labels = self.classes_[nearest_class(views, self.class_means_)]
        cosines = self._scope.cosines(raw)
        rejected = _standardized(cosines, *self._cosine_scale) < self.threshold_
        rejected |= ~views.any(axis=1)  # similar to no class
        if np.asarray(self._other).dtype.kind != labels.dtype.kind:
            labels = labels.astype(object)
        return np.where(rejected, self._other, labels)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes: softmax of the scores over `temperature_`.

        The temperature makes labeled texts most probable, each scored by classes that were made
        without it [1]_; a prior keeps it near 0.05 if there are few. Without two labels of some
        class it is 0.05, and the result is no probability: names do not show how often they
        mislead. It holds for texts that belong to one of the classes, as often as among the
        labeled ones.

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

    def score(self, X: Any, y: ArrayLike) -> float:
        """Accuracy on the texts that have a label.

        Parameters
        ----------
        X : texts of shape (n_texts,)
        y : array-like of shape (n_texts,)
            As in `fit`; texts without a label do not count.

        Returns
        -------
        accuracy : float
            NaN if no text has a label.
        """
        check_is_fitted(self)
        texts = as_texts(X)
        known, labels = _known_labels(y, len(texts), self.classes_.tolist())
        if not labels:
            return float("nan")
        predicted = self.predict([texts[i] for i in known]).tolist()
        # One by one: an array of one dtype would cut labels that no class has, or round them.
        right = [label == expected for label, expected in zip(predicted, labels, strict=True)]
        return float(np.mean(right))

    def _checked_classes(
        self, described: dict[Any, list[str]], labels: list[Any]
    ) -> dict[Any, list[str]]:
        """Return the descriptions of each class, none if only labels name it."""
        if self.class_names is None:
            if not labels:
                raise ValueError(
                    f"{type(self).__name__} got neither class_names nor labels. Give the names "
                    "of the classes, or y with a label for some of the texts."
                )
            described = {label: [] for label in _in_order(set(labels))}
        if len(described) == 1 and self.rejection_rate is None:
            [label] = described
            warn(
                f"There is only one class, {label!r:.60}, so every text gets it. Give another "
                "class, or set a rejection_rate."
            )
        if unknown := [label for label in labels if label not in described]:
            raise ValueError(
                f"y has the label {unknown[0]!r}, which is none of the classes "
                f"{[*described]!r:.200}. Name it in class_names, or mark texts without a label "
                "by None. Inside a StackingClassifier or VotingClassifier, class_names maps 0 "
                "to k - 1."
            )
        if self.rejection_rate is not None and self.other in [*described]:
            raise ValueError(
                f"other={self.other!r} is also a class; expected a label that is no class, so "
                "that rejected texts can be distinguished. Set another label."
            )
        return described

    def _fit_threshold(
        self, pool: "_Pool", raw: np.ndarray, rows: np.ndarray, codes: np.ndarray
    ) -> None:
        """Judge the texts by classes made without them, and find the threshold."""
        groups = _near_copies(pool.vectors)
        rank = self._rank(groups.max() + 1, ", near-copies once")
        share = max(NEAREST_SHARE, 1 - DOUBTFUL * (self.rejection_rate or 0))
        cosines = _cosines_left_out(pool, raw, groups, rows, codes, share)
        cosines = cosines[np.unique(groups, return_index=True)[1]]  # a text of each group
        known = cosines[np.isfinite(cosines[:, 0])]  # which have a class to compare with
        deviation = known.std(axis=0)
        self._cosine_scale = known.mean(axis=0), np.where(deviation > 0, deviation, 1.0)
        values = _standardized(cosines, *self._cosine_scale)
        self.threshold_ = float(np.partition(values, rank - 1)[rank - 1])
        self._scope = _Scope.of(raw, pool.texts, rows, self.class_means_, share)

    def _rank(self, n: int, counted: str = "") -> int:
        """Return the rank of the value of n texts below which a text is rejected."""
        if self.rejection_rate is None:
            return 0
        rate, kind = self.rejection_rate, f"distinct texts{counted}"
        confidence = confidence_for(n, rate)
        return 1 + n_above(n, rate, kind, name="rejection_rate", confidence=confidence)

    def _scores(self, X: Any) -> np.ndarray:
        """Return the scores of all classes, also of two."""
        check_is_fitted(self)
        views = _side_by_side(self._space.vectors(as_texts(X)), self.smoothing_)
        return nearness(views, self.class_means_) / 2


# Names and labels.


def _described(class_names: Any) -> dict[Any, list[str]]:
    """Return the descriptions of each class, by its label, in the order of the labels."""
    if not isinstance(class_names, Mapping):
        names = labels_of(class_names, "class_names")
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"class_names has {twice[0]!r} twice. Give each class once.")
        class_names = dict(zip(names, names, strict=True))
    if not class_names:
        raise ValueError("class_names is empty. Give the name of at least one class.")
    described: dict[Any, list[str]] = {}
    for label in _in_order(labels_of([*class_names], "class_names")):
        given = plain(class_names[label])
        is_one = isinstance(given, str) or not isinstance(given, Sequence)
        texts = [given] if is_one else [*given]
        if not texts or not all(isinstance(text, str) and _words(text) for text in texts):
            raise ValueError(
                f"class_names describes class {label!r:.60} by {class_names[label]!r:.60}; "
                "expected a text that is not blank, or a list of such texts."
            )
        described[label] = [_words(text) for text in texts]
    return described


def _words(name: str) -> str:
    return " ".join(name.replace("_", " ").replace("-", " ").split())


def _in_order(labels: Any) -> list[Any]:
    """Sort labels, or raise a ValueError if they are of several types."""
    try:
        return sorted(labels)
    except TypeError:
        kinds = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise ValueError(
            f"The labels of the classes are of several types ({kinds}). Give labels of one "
            "type."
        ) from None


def _known_labels(y: Any, n_texts: int, classes: list[Any]) -> tuple[np.ndarray, list[Any]]:
    """Return the rows with a label, and these labels, by the rules of `fit`."""
    if y is None:
        return np.array([], int), []
    labels = labels_of(y, "y", missing=True)
    check_consistent_length(labels, range(n_texts))
    blank = {label for label in labels if isinstance(label, str) and not label.strip()}
    absent: set[Any] = {None} | blank - {*classes}
    are_integers = {*map(type, labels)} <= {int, type(None)}
    if are_integers and -1 not in classes and -1 in labels:
        absent.add(-1)
        others = {*labels} - absent
        if not classes and (len(others) == 1 or others <= {0, 1} or min(others) < -1):
            raise ValueError(
                f"y has the labels -1 and {str(sorted(others))[1:-1]}: -1 may be a class, but "
                "marks texts without a label. Mark these by None, or name the "
                "classes in class_names, such as {-1: 'negative', 1: 'positive'}."
            )
    known = [i for i, label in enumerate(labels) if label not in absent]
    return np.array(known, int), [labels[i] for i in known]


def _labeled_rows(
    rows: np.ndarray, labels: list[Any], classes: list[Any], is_nameless: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows (-1 for no content) with a label, and their classes' numbers."""
    code = {label: i for i, label in enumerate(classes)}
    labeled = {(i, code[x]) for i, x in zip(rows.tolist(), labels, strict=True) if i >= 0}
    rows, codes = np.array(sorted(labeled), int).reshape(-1, 2).T
    if is_nameless and (lacking := {*range(len(classes))} - {*codes.tolist()}):
        raise ValueError(
            f"All texts of the class {classes[min(lacking)]!r:.60} have no content for the "
            "encoder. Label others, or give class_names."
        )
    return rows, codes


def _vectors_of_names(space: TextSpace, described: dict[Any, list[str]]) -> np.ndarray | None:
    """Return the mean vector of each class's descriptions, or None if there are none."""
    texts = [*chain(*described.values())]
    if not texts:
        return None
    owner = np.repeat(np.arange(len(described)), [*map(len, described.values())])
    vectors = space.vectors(texts)
    if not (content := vectors.any(axis=1)).all():
        i = int(content.argmin())
        raise ValueError(
            f"The name {texts[i]!r:.60} of the class {[*described][owner[i]]!r:.60} has no "
            "content for the encoder. Describe it by other words in class_names."
        )
    means = np.stack([vectors[owner == i].mean(axis=0) for i in range(len(described))])
    labels = [*described]
    for i, mean in enumerate(means):
        same = ((means[:i] - mean) ** 2).sum(axis=1) <= 2 * (1 - EQUAL) * (mean**2).sum()
        if same.any():
            raise ValueError(
                f"The encoder gives the names of the classes {labels[same.argmax()]!r:.60} and "
                f"{labels[i]!r:.60} the same vector, so no text can be nearer to one of them. "
                "Describe them by other words in class_names."
            )
    return means


# Texts and names of classes as vectors.


@dataclass(frozen=True)
class _Pool:
    """Texts and names of classes, each side by side with the same smoothed."""

    vectors: np.ndarray  # (n_texts, d)
    vectors_of_names: np.ndarray | None  # (n_classes, d)
    smoothing: NeighborSmoothing
    texts: np.ndarray  # (n_texts, 2 d)
    names: np.ndarray | None  # (n_classes, 2 d)
    is_frozen: bool  # whether the vectors of a text do not depend on the others

    @classmethod
    def fit(
        cls, vectors: np.ndarray, names: np.ndarray | None, n_classes: int, is_frozen: bool
    ) -> Self:
        """Fit the smoothing, and move the names to the mean of the texts."""
        weight, k = evidence(len(vectors), n_classes), min(NEIGHBORS, max(len(vectors) - 1, 1))
        smoothing = NeighborSmoothing(k, weight=weight).fit(vectors)
        if names is not None and len(names) > 1:  # another kind of text, with its own mean
            names = names + vectors.mean(axis=0) - names.mean(axis=0)
        of_names = None if names is None else _side_by_side(names, smoothing)
        texts = _side_by_side(vectors, smoothing)
        return cls(vectors, names, smoothing, texts, of_names, is_frozen)

    def without(self, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Texts and names with the mean of the kept ones: a text that is judged pulls it."""
        shift = self.vectors[kept].mean(axis=0) - self.vectors.mean(axis=0)
        if not self.is_frozen:  # the mean is the origin of the vectors
            moved = unit_rows(self.vectors - shift)[0]
            return np.hstack([moved, self.texts[:, moved.shape[1] :]]), self.names
        if self.vectors_of_names is None or len(self.vectors_of_names) == 1:
            return self.texts, self.names
        return self.texts, _side_by_side(self.vectors_of_names + shift, self.smoothing)


@dataclass(frozen=True)
class _Scope:
    """Texts that likely belong to some class, before the calibration, and classes' means."""

    texts: np.ndarray  # (n_texts, d), unit vectors in float32
    means: np.ndarray  # (n_classes, d), as well, of classes that have texts

    @classmethod
    def of(
        cls,
        raw: np.ndarray,
        texts: np.ndarray,
        rows: np.ndarray,
        means: np.ndarray,
        share: float,
    ) -> Self:
        """Keep the labeled ``rows``, and the ``share`` of others nearest to the classes."""
        kept = np.ones(len(texts), bool)
        free = np.setdiff1d(np.arange(len(texts)), rows)
        kept[free] = nearest_share(texts[free], means, share)
        unit, codes = unit_vectors(raw[kept]), nearest_class(texts[kept], means)
        sums = sums_of(unit, codes, np.ones(len(unit)), len(means))
        return cls(unit, unit_vectors(sums[np.unique(codes)]))

    def cosines(self, raw: np.ndarray) -> np.ndarray:
        """Return the cosines of vectors with the nearest mean and the nearest text, (n, 2)."""
        unit = unit_vectors(raw)
        return np.hstack([nearest(unit, fitted, 1)[0] for fitted in (self.means, self.texts)])


def _side_by_side(vectors: np.ndarray, smoothing: NeighborSmoothing) -> np.ndarray:
    """Return vectors of unit length, and in further columns the same smoothed."""
    unit = unit_rows(vectors)[0]
    return np.hstack([unit, smoothed(smoothing, unit)])


# Texts that are judged by classes which were made without them: with itself, a text would seem
# nearer than a new one, since it pulls its class.


def _temperature(pool: _Pool, rows: np.ndarray, codes: np.ndarray, share: float) -> float:
    """Return the temperature of the softmax of scores that fits the labels.

    Each labeled text is scored by classes that were made without it, if its class has another
    one. The likelihood is multiplied by a log-normal prior: by scikit-learn's
    ``CalibratedClassifierCV(method="temperature")``, a few texts that are all correct would
    have a temperature near zero.
    """
    n, of_class, of_text = len(pool.texts), np.bincount(codes)[codes], np.bincount(rows)[rows]
    judged = np.flatnonzero((of_class > 1) & (of_text == 1))
    judged = judged[np.argsort(codes[judged], kind="stable")]
    scores, labels = [], []
    for part in (judged[i::LABEL_FOLDS] for i in range(min(LABEL_FOLDS, len(judged)))):
        kept = np.delete(np.arange(n), rows[part])
        texts, names = pool.without(kept)
        places = np.searchsorted(kept, np.delete(rows, part))
        means = class_means(texts[kept], names, places, np.delete(codes, part), share)
        scores.append(nearness(texts[rows[part]], means) / 2)
        labels.append(codes[part])
    if not scores:
        return TEMPERATURE
    all_scores, all_labels = np.concatenate(scores), np.concatenate(labels)

    def loss(deviation: float) -> float:
        """Minus the logarithm of likelihood times prior, at so many standard deviations."""
        logs = log_softmax(all_scores / (TEMPERATURE * FACTOR**deviation), axis=1)
        return deviation**2 / 2 - logs[np.arange(len(logs)), all_labels].sum()

    best = minimize_scalar(loss, bounds=(-9, 9), method="bounded").x
    return float(TEMPERATURE * FACTOR**best)


def _near_copies(vectors: np.ndarray) -> np.ndarray:
    """Return the group of each vector: near-copies, also by way of others, unless all are."""
    unit = unit_rows(vectors - vectors.mean(axis=0))[0].astype(np.float32)
    groups, n = np.arange(len(unit)), len(unit)
    for i, j, _ in above(unit, NEAR):  # one block after the other, as copies make many pairs
        pairs = csr_array((np.ones(len(i)), (groups[i], groups[j])), shape=(n, n))
        groups = connected_components(pairs, directed=False)[1][groups]
    return np.unique(groups, return_inverse=True)[1] if groups.any() else np.arange(n)


def _cosines_left_out(
    pool: _Pool,
    raw: np.ndarray,
    groups: np.ndarray,
    rows: np.ndarray,
    codes: np.ndarray,
    share: float,
) -> np.ndarray:
    """Return each text's cosines with a `_Scope` that was made without its group."""
    n, n_groups = len(groups), groups.max() + 1
    best = np.full((n, 2), -np.inf)
    folds = KFold(min(FOLDS, n_groups), shuffle=True, random_state=0)
    for _, groups_out in folds.split(np.arange(n_groups)):
        is_out = np.isin(groups, groups_out)
        kept = np.flatnonzero(~is_out)
        texts, names = pool.without(kept)
        stays = ~is_out[rows]
        of_fold, places = codes[stays], np.searchsorted(kept, rows[stays])
        if names is None:  # a class all of whose labels are left out is left out, too
            of_fold = np.unique(of_fold, return_inverse=True)[1]
        if names is not None or stays.any():
            means = class_means(texts[kept], names, places, of_fold, NEAREST_SHARE)
            scope = _Scope.of(raw[kept], texts[kept], places, means, share)
            best[is_out] = scope.cosines(raw[is_out])
    return best


def _standardized(cosines: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the mean of both cosines, each in standard deviations from its mean."""
    return ((cosines - mean) / scale).mean(axis=1)
