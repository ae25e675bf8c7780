"""NearestAnswer: one of the stored answers, or none."""

from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_scalar
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from skcalib.base import VersionedState, from_scratch, warn
from skcalib.calibration.neighbors import NeighborSmoothing
from skcalib.compat import HasMethods, Interval, _fit_context
from skcalib.cosines import best_of_others, nearest_in_order
from skcalib.inputs.labels import labels_of
from skcalib.inputs.texts import TextInput, as_texts, distinct
from skcalib.inputs.vectors import warn_of_silent
from skcalib.similarity.answers.inputs import ask_alike, identity, stored_answers
from skcalib.similarity.answers.threshold import (
    MARGIN,
    entries,
    promised,
    promised_by_answers,
)
from skcalib.similarity.duplicates.guard import guard_of_fit
from skcalib.similarity.space import TextSpace, calibrates, unit_vectors
from skcalib.statistics.conformal import n_needed

# Stored questions that are asked to find the threshold; a sample, if there are more.
ASKED = 2000
# Entries that an index given as `neighbors` finds for a question, or that a guard checks first.
CANDIDATES = 10
# Stored questions that a guard checks to find the threshold; beyond them it allows the next.
MOST_CHECKED = 640


class HitRates(NamedTuple):
    """Shares of questions, from 0 to 1; NaN without questions of the kind."""

    right: float  # of the questions with an answer, those that got it
    wrong: float  # of the questions with an answer, those that got another
    false: float  # of the questions without an answer, those that got one


@dataclass(eq=False, repr=False)
class NearestAnswer(TextInput, VersionedState, BaseEstimator):
    """Answer a question with the answer of the nearest stored question, or not at all.

    Of the questions that no stored answer fits, at most a share of `false_positive_rate` get
    one, however many are stored. This holds if they come from the same distribution as the
    `unanswerable` questions. Without these, they must differ from the stored questions as much
    as stored questions with different answers differ from each other.

    Parameters
    ----------
    encoder : transformer of texts, or any encoder of texts
        Such as `BertEncoder`, or a model's folder, see `TextEncoder`. It is cloned and fitted;
        a ``FrozenEstimator`` keeps its fit.
    false_positive_rate : float in (0, 1), default=0.01
        Share of the questions without a stored answer that may get one.
    guard : DetailGuard or None, default=None
        Details in which a question must agree with a stored one to get its answer, such as
        numbers; any object with a method ``compatible(question, stored)``.
    neighbors : transformer or None, default=None
        scikit-learn's ``KNeighborsTransformer``, or a similar one (of pynndescent or faiss), by
        cosine or Euclidean distance, to find stored questions. It is cloned, and its
        ``n_neighbors`` is set. None compares a question with every stored one.

    Attributes
    ----------
    questions_, answers_ : ndarray of shape (n_stored,), object
        Stored questions, each once, and their answers.
    vectors_ : ndarray of shape (n_stored, d), float32
        Unit vectors that are searched, each moved halfway to the mean of its answer; zero for a
        question without content for the encoder.
    threshold_ : float
        Cosine that a question must exceed to get an answer.
    encoder_ : Pipeline
        From questions to the vectors that are compared with `vectors_` by cosine, fitted.

    See Also
    --------
    SimilarityScale : Thresholds for vectors, per pair and per query.
    ZeroShotClassifier : Classes of texts, from names or a few labels.

    Notes
    -----
    With a `log`, ``Whitening(noise="auto")`` follows the encoder and, if at least half of the
    stored questions share their answer with another one, `NeighborSmoothing`. They are fitted
    on the questions of the log that are not stored. Smoothing moves a question toward others of
    its group; where each answer has one question, it hides what distinguishes the answers.
    Without a log nothing is calibrated.

    The threshold is one of the best cosines of the `unanswerable` with the stored questions,
    chosen by its rank. It is exact, in the sense of conformal prediction [1]_, for questions
    from the same distribution as the `unanswerable`, and needs ``1 / false_positive_rate - 1``
    distinct ones. A repeated one counts once, or as often as it comes if this is stricter.
    Without these, each stored question (2,000 at most) is asked as if its own answer were not
    stored. An answer and its nearest are often each other's nearest, so a new answer would make
    the questions of two answers pass. Each answer counts as much as the others, however many
    questions it has. Therefore ``2 / false_positive_rate - 1`` different answers are needed to
    estimate how much they differ. With fewer, `fit` warns, and the share of false positives may
    be several times `false_positive_rate`.

    Dicts, lists, sets and arrays are the same answer if their contents are equal; other objects
    that cannot be hashed, only if they are the same object.

    A question that is stored gets its own answer. One without content for the encoder (blank,
    only unknown tokens, or a zero vector) gets none otherwise. With a `guard`, stored questions
    above the threshold are tried, the nearest first, until it allows one.

    References
    ----------
    .. [1] Vovk, Gammerman & Shafer (2005), "Algorithmic Learning in a Random World", Springer.

    Examples
    --------
    >>> from skcalib import NearestAnswer
    >>> from skcalib.datasets import load_questions
    >>> questions = load_questions()
    >>> stored = questions.target < 5  # of the other five intents no answer is known
    >>> answers = questions.target_names[questions.target[stored]]
    >>> unknown, log = questions.data[~stored][::2], questions.data[~stored][1::2]
    >>> model = NearestAnswer("minilm", false_positive_rate=0.05)
    >>> _ = model.fit(questions.data[stored], answers, unanswerable=unknown, log=log)
    >>> model.predict(["I cannot remember my password", "Do you sell bicycles?"])
    array(['password', None], dtype=object)
    """

    encoder: Any
    _: KW_ONLY
    false_positive_rate: float = 0.01
    guard: Any = None
    neighbors: BaseEstimator | None = None

    _parameter_constraints = {
        "encoder": "no_validation",  # `as_encoder` checks it
        "false_positive_rate": [Interval(Real, 0, 1, closed="neither")],
        "guard": [HasMethods("compatible"), None],
        "neighbors": [HasMethods(["fit", "transform"]), None],
    }
    # Data of the fit, which no pipeline passes on.
    __metadata_request__fit = {"unanswerable": UNUSED, "log": UNUSED}
    _state_version = 5

    @_fit_context(prefer_skip_nested_validation=False)
    @from_scratch
    def fit(self, X: Any, y: Any, *, unanswerable: Any = None, log: Any = None) -> Self:
        """Store questions with their answers, and find the threshold.

        Parameters
        ----------
        X : texts of shape (n_questions,)
            Questions. Several may have the same answer.
        y : array-like of shape (n_questions,)
            Their answers: texts, numbers, dicts or any other objects. Equal ones are one
            answer.
        unanswerable : texts of shape (n_unanswerable,), default=None
            Questions known to have no answer in `y`, from the same distribution as future ones.
        log : texts of shape (n_log,), default=None
            Real questions, with and without an answer, some hundred or more.

        Returns
        -------
        self : NearestAnswer

        Raises
        ------
        TypeError, ValueError
            If a question has no answer or two, if all have the same and there is no
            `unanswerable`, or if there are too few questions for the rate.

        Warns
        -----
        UserWarning
            Without `unanswerable`, if there are fewer than ``2 / false_positive_rate - 1``
            different answers.
        """
        stored = stored_answers(X, y)
        unknown = None
        if unanswerable is not None:
            unknown = distinct(as_texts(unanswerable, "unanswerable"))
        if log is not None:  # without the questions that the threshold depends on
            log = {*as_texts(log, "log")} - {*stored, *(unknown[0] if unknown else ())}
        self._space = TextSpace(self.encoder)
        vectors, self._smoothing = self._fit_space(stored, log)
        asked = None
        if unknown is not None:
            asked = *unknown, self._asked(self._vectors_of(unknown[0]))
        self._store(stored, vectors, asked)
        self.encoder_ = self._space.pipeline
        if self._smoothing is not None:
            self.encoder_.steps.append(("smooth", self._smoothing))
        return self

    def _fit_space(
        self, answers: dict[str, Any], log: set[str] | None
    ) -> tuple[np.ndarray, NeighborSmoothing | None]:
        """Fit on the log, or only the encoder on the stored questions.

        Return the vectors of the stored questions, and a smoothing toward the log, if any.
        The log has no stored question, because a question of the fit would lie farther from
        others than a new one.
        """
        stored = [*answers]
        if log is None:
            vectors = self._space.fit_vectors(stored)
            if calibrates(self._space.encoder) and not self._space.is_frozen:
                warn(
                    "The encoder is calibrated on the stored questions, so they lie farther "
                    "apart than new ones, and false positives may be more frequent than "
                    "false_positive_rate. Give a log, or a FrozenEstimator of a pipeline that "
                    "was fitted on other questions."
                )
            return unit_vectors(vectors), None
        if len(log) < 2:
            raise ValueError(
                f"log has {len(log)} distinct questions besides those stored or unanswerable; "
                "expected two or more, better some hundred. Add questions, or leave out log."
            )
        of_log = self._space.whiten(self._space.fit_vectors(sorted(log)))
        vectors = self._vectors_of(stored)
        warn_of_silent(~vectors.any(axis=1), stored)
        if not ask_alike(answers):
            return vectors, None
        return vectors, NeighborSmoothing().fit(of_log[of_log.any(axis=1)])

    def _vectors_of(self, texts: list[str]) -> np.ndarray:
        """Return unit vectors of questions, (n, d); zero for those without content."""
        return unit_vectors(self._space.vectors(texts))

    def _asked(self, vectors: np.ndarray) -> np.ndarray:
        """Return the vectors to search with, which are smoothed toward the log."""
        if self._smoothing is None:
            return vectors
        with config_context(transform_output="default"):
            return self._smoothing.transform(vectors)

    @_fit_context(prefer_skip_nested_validation=False)
    def partial_fit(self, X: Any, y: Any) -> Self:
        """Store more questions, and adapt the threshold; the calibration does not change.

        Parameters
        ----------
        X, y
            As for `fit`. A question that is stored already gets the new answer.

        Returns
        -------
        self : NearestAnswer
            With a log that has none of the questions, the same as a `fit` on all of them, if
            both smooth, or neither does.
        """
        check_is_fitted(self)
        added = stored_answers(X, y)
        known = dict(zip(self.questions_, self.answers_, strict=True))
        more, vectors = [text for text in added if text not in known], self._vectors
        if more:
            vectors = np.vstack([vectors, self._vectors_of(more)])
        return self._store(known | added, vectors, self._unanswerable)

    def predict(self, X: Any) -> np.ndarray:
        """Answers to questions.

        Parameters
        ----------
        X : texts of shape (n_questions,)

        Returns
        -------
        answers : ndarray of shape (n_questions,), object
            None where no stored question is near enough.
        """
        cosines, rows = self._best(X)
        answers = self.answers_[rows]
        answers[~(cosines > self.threshold_)] = None  # nor where a cosine is NaN
        return answers

    def decision_function(self, X: Any) -> np.ndarray:
        """Best cosines minus the threshold: positive where an answer is given.

        Parameters
        ----------
        X : texts of shape (n_questions,)

        Returns
        -------
        excess : ndarray of shape (n_questions,), float64
        """
        return self._best(X)[0] - self.threshold_

    def kneighbors(self, X: Any, n_neighbors: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Nearest of all stored questions, whatever their cosine.

        Parameters
        ----------
        X : texts of shape (n_questions,)
        n_neighbors : int, default=5

        Returns
        -------
        cosines : ndarray of shape (n_questions, n_neighbors), float64
            In decreasing order; fewer columns if fewer questions are stored.
        rows : ndarray of shape (n_questions, n_neighbors), int
            Rows of `questions_` and `answers_`.
        """
        check_is_fitted(self)
        check_scalar(n_neighbors, "n_neighbors", Integral, min_val=1)
        texts = as_texts(X)
        asked = self._asked(self._vectors_of(texts))
        return self._nearest(asked, n_neighbors, None)

    def hit_rates(self, X: Any, y: Any) -> HitRates:
        """Shares of right, wrong and false answers.

        Parameters
        ----------
        X : texts of shape (n_questions,)
        y : array-like of shape (n_questions,)
            The correct answers. None, or an answer that is not stored, marks a question without
            an answer.

        Returns
        -------
        rates : HitRates
            ``right`` and ``wrong``, shares of the questions with an answer, and ``false``, the
            share of the questions without an answer that got one.
        """
        right, answered, answerable = self._judged(X, y)
        wrong = answered & ~right
        kinds = right[answerable], wrong[answerable], answered[~answerable]
        return HitRates(*(float(kind.mean()) if len(kind) else np.nan for kind in kinds))

    def score(self, X: Any, y: Any) -> float:
        """Share of questions that get the right answer, or correctly none.

        Parameters
        ----------
        X, y
            As for `hit_rates`.

        Returns
        -------
        accuracy : float
        """
        right, answered, answerable = self._judged(X, y)
        return float(np.mean(np.where(answerable, right, ~answered)))

    def _judged(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Whether each question gets its answer, gets any, and has an answer stored."""
        answers = self.predict(X).tolist()
        truth = [*map(identity, labels_of(y, "y", missing=True, objects=True))]
        check_consistent_length(answers, truth)
        known = set(map(identity, self.answers_))
        right = [identity(answer) == true for answer, true in zip(answers, truth, strict=True)]
        answered = [answer is not None for answer in answers]
        answerable = [true in known for true in truth]
        return np.array(right), np.array(answered), np.array(answerable)

    def _best(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the best cosine of each question with an allowed stored one, and its row."""
        check_is_fitted(self)
        texts = as_texts(X)
        vectors = self._vectors_of(texts)
        asked, silent = self._asked(vectors), ~vectors.any(axis=1)
        best, rows = np.full(len(texts), -1.0), np.zeros(len(texts), np.intp)
        known = np.array([text in self._place for text in texts])
        for i in np.flatnonzero(known):  # also without content, similar to no other text
            best[i], rows[i] = 1.0, self._place[texts[i]]
        left, index = np.flatnonzero(~(silent | known)), self.neighbors_
        k = 1 if self._guard is None else CANDIDATES
        while len(left):
            cosines, near = self._nearest(asked[left], k, index)
            least = np.where(near[:, -1] < 0, 1.0, cosines[:, -1])  # of those not found
            if self._guard is not None:
                for i, candidates, cosine in zip(left, near, cosines, strict=True):
                    stored = self.questions_[candidates]
                    allowed = [self._guard.compatible(texts[i], other) for other in stored]
                    cosine[np.logical_not(allowed)] = -1
            place = np.arange(len(left)), cosines.argmax(axis=1)
            best[left], rows[left] = cosines[place], near[place]
            if self._guard is None or k >= len(self._content):
                break
            left = left[(best[left] == -1) & (least > self.threshold_)]
            k, index = 2 * k, None  # an index finds no more
        return best, rows

    def _nearest(self, asked: np.ndarray, k: int, index: Any) -> tuple[np.ndarray, np.ndarray]:
        """Cosines, from the largest, and rows of stored questions with content."""
        cosines, rows = nearest_in_order(asked, self._found, min(k, len(self._found)), index)
        return cosines, np.where(rows < 0, -1, self._content[rows])

    def _store(
        self,
        stored: dict[str, Any],
        vectors: np.ndarray,
        unanswerable: tuple[list[str], np.ndarray, np.ndarray] | None,
    ) -> Self:
        """Find the threshold, then keep the questions, sorted, with what was learned."""
        order = sorted(range(len(stored)), key=[*stored].__getitem__)
        questions, answers = (
            np.fromiter(part, object, len(stored))[order] for part in (stored, stored.values())
        )
        vectors = vectors[order]
        content = np.flatnonzero(vectors.any(axis=1))
        if not len(content):
            raise ValueError(
                "No question has content for the encoder; the first is "
                f"{questions[0]!r:.60}. Choose a model for the language of these texts."
            )
        different, codes = distinct([identity(answer) for answer in answers[content]])
        searched, index = entries(vectors[content], codes), None
        guard = guard_of_fit(self.guard)
        if self.neighbors is not None and len(searched) > CANDIDATES + 1:
            index = clone(self.neighbors).set_params(n_neighbors=CANDIDATES).fit(searched)
        if unanswerable is not None:
            unknown, place, asked = unanswerable
            if guard is None:
                best = nearest_in_order(asked, searched, 1, index)[0][:, 0]
            else:
                none = np.full(len(asked), -1)
                best = _best_allowed(
                    guard, unknown, asked, none, questions[content], searched, codes
                )
            best[~asked.any(axis=1)] = -1  # never answered
            threshold = promised(best, place, self.false_positive_rate)
        elif len(different) > 1:
            drawn = np.random.default_rng(0).permutation(len(searched))[:ASKED]
            asked, own = self._asked(vectors[content[drawn]]).astype(np.float32), codes[drawn]
            # As if their own answers were not stored: entries of other answers do not change.
            if guard is None:
                best = best_of_others(asked, own, searched, codes)
            else:
                texts = questions[content]
                best = _best_allowed(guard, texts[drawn], asked, own, texts, searched, codes)
            threshold = promised_by_answers(best, own, self.false_positive_rate)
            needed = n_needed(self.false_positive_rate, new=2)
            if len(different) < needed:
                warn(
                    f"false_positive_rate={self.false_positive_rate:g} needs {needed:,} "
                    "different answers to estimate how much they differ; got "
                    f"{len(different)}, so false positives may be more frequent. Give "
                    "`unanswerable` questions."
                )
        else:
            raise ValueError(
                f"All questions have the answer {answers[0]!r:.60}. Give questions with other "
                "answers, or `unanswerable` ones, to estimate the threshold."
            )
        if threshold >= 1:
            warn(
                "More questions than false_positive_rate have the same vector as a stored one "
                "with another answer, so no threshold keeps the rate. Choose another encoder, "
                "or set a guard."
            )
            threshold = 1 - MARGIN
        self._vectors, self._unanswerable, self.neighbors_ = vectors, unanswerable, index
        self._guard = guard
        self._found, self._content = searched, content
        silent = np.setdiff1d(np.arange(len(questions)), content)
        self._place = {question: i for i, question in enumerate(questions)}
        self.questions_, self.answers_ = questions, answers
        self.vectors_ = searched
        if len(silent):
            self.vectors_ = np.zeros((len(questions), searched.shape[1]), np.float32)
            self.vectors_[content] = searched
        self.threshold_ = threshold
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _best_allowed(
    guard: Any,
    texts: Any,
    asked: np.ndarray,
    own: np.ndarray,
    stored: np.ndarray,
    searched: np.ndarray,
    codes: np.ndarray,
) -> np.ndarray:
    """Return each text's largest cosine with an entry of another answer that is allowed."""
    best, left, k = np.full(len(asked), -1.0), np.arange(len(asked)), CANDIDATES
    while len(left):
        k, open_ = min(k, len(searched)), []
        cosines, near = nearest_in_order(asked[left], searched, k)
        for i, cosine, rows in zip(left, cosines, near, strict=True):
            others = np.flatnonzero(codes[rows] != own[i])
            allowed = (j for j in others if guard.compatible(texts[i], stored[rows[j]]))
            if (first := next(allowed, None)) is not None:
                best[i] = cosine[first]
            elif k < len(searched):
                best[i] = cosine[-1]  # at most, of those that were not checked
                open_.append(i)
        if k >= MOST_CHECKED:
            break
        left, k = np.array(open_, int), 4 * k
    return best
