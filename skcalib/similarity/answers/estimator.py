"""NearestAnswer: one of the stored answers, or none."""

from copy import copy
from dataclasses import KW_ONLY
from itertools import compress
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from skcalib.base import VersionedState, estimator, from_scratch, warn
from skcalib.compat import HasMethods, Interval, _fit_context, check_params
from skcalib.inputs.labels import labels_of
from skcalib.inputs.texts import TextInput, as_texts, distinct
from skcalib.similarity.answers.stored import Keys, identity, stored_answers
from skcalib.similarity.answers.threshold import promised, promised_by_answers
from skcalib.similarity.search.estimator import SearchEncoder
from skcalib.similarity.search.index import NONE, SearchIndex
from skcalib.similarity.space import calibrates
from skcalib.statistics.conformal import n_needed

# Stored questions that are asked to find the threshold; a sample, if there are more.
ASKED = 2000
MOST_COMPARED = 640  # entries, at most, for the threshold, which then allows the next
SAMPLED = 100  # stored questions that show how near an equal one is


class HitRates(NamedTuple):
    """Shares of questions, from 0 to 1; NaN without questions of the kind."""

    right: float  # of the questions with an answer, those that got it
    wrong: float  # of the questions with an answer, those that got another
    false: float  # of the questions without an answer, those that got one


@estimator
class NearestAnswer(TextInput, VersionedState, BaseEstimator):
    """Answer a question with the answer of the nearest stored question, or not at all.

    Of the questions that no stored answer fits, at most a share of `false_positive_rate` get
    one, however many are stored. This holds if they come from the same distribution as the
    `unanswerable` questions. Without these, they must differ from the stored questions as much
    as stored questions with different answers differ from each other.

    Parameters
    ----------
    encoder : SearchEncoder, or any encoder of texts
        What compares questions. An encoder of texts, such as `BertEncoder` or a model's folder,
        becomes a `SearchEncoder` of it. It is cloned and fitted.
    false_positive_rate : float in (0, 1), default=0.01
        Share of the questions without a stored answer that may get one.
    confidence : float in (0, 1) or None, default=0.9
        Probability that the rate holds for this fit, if there are enough `unanswerable`
        questions, see Notes. With fewer, or None, it holds on average over samples of these.
    guard : object or None, default=None
        Details in which a question must agree with a stored one to get its answer, such as
        numbers: has a method ``details(text)``, equal for texts that agree.

    Attributes
    ----------
    questions_, answers_ : ndarray of shape (n_stored,), object
        Stored questions, each once, and their answers.
    search_ : SearchEncoder
        The fitted clone, which has the questions as its documents. Their vectors, before the
        hubs, and their words are moved halfway to the mean of those with the same answer.
    threshold_ : float
        Score that a question must reach to get an answer.
    confidence_ : float or None
        Probability that the rate holds for this fit; None where it holds on average, or without
        `unanswerable` questions.

    See Also
    --------
    SearchEncoder : All documents that answer a query, in order.
    SimilarityScale : Thresholds for vectors, per pair and per query.
    ZeroShotClassifier : Classes of texts, from names or a few labels.

    Notes
    -----
    Questions are compared as queries with documents, see `SearchEncoder`; real `queries` show
    how they differ from stored questions.

    The threshold is one of the best scores of the `unanswerable` with the stored questions,
    chosen by its rank. For questions from the same distribution as n distinct `unanswerable`
    ones, the rate that m of their scores exceed has the distribution Beta(m + 1, n - m). From
    100 of them on, if they suffice, the rate is kept with probability `confidence` by this
    distribution [1]_: 5 % needs 100, 1 % 230 with the default. With fewer, it is kept by the
    mean of this distribution, on average over samples, which needs ``1 / false_positive_rate -
    1``; a single fit may then exceed it. A repeated question counts once, or as often as it
    comes if this is stricter.

    Without these, each stored question (2,000 at most) is asked as if its own answer were not
    stored. An answer and its nearest are often each other's nearest, so a new answer would make
    the questions of two answers pass. Each answer counts as much as the others, however many
    questions it has. Therefore ``2 / false_positive_rate - 1`` different answers are needed to
    estimate how much they differ. With fewer, `fit` warns, and the share of false positives may
    be several times `false_positive_rate`.

    Dicts, lists, sets, arrays, dataclasses, and objects that cannot be hashed are the same
    answer if their contents are equal, where NaN equals NaN.

    A question that is stored gets its own answer. One without content for the encoder (blank,
    only unknown tokens, or a zero vector) gets none otherwise. With a `guard`, stored questions
    above the threshold are tried, the nearest first, until it allows one.

    References
    ----------
    .. [1] Vovk (2012), "Conditional Validity of Inductive Conformal Predictors", ACML.

    Examples
    --------
    >>> from skcalib import NearestAnswer
    >>> from skcalib.datasets import load_questions
    >>> questions = load_questions()
    >>> stored = questions.target < 5  # of the other five intents no answer is known
    >>> answers = questions.target_names[questions.target[stored]]
    >>> unknown, asked = questions.data[~stored][::2], questions.data[~stored][1::2]
    >>> model = NearestAnswer("minilm", false_positive_rate=0.05)
    >>> _ = model.fit(questions.data[stored], answers, unanswerable=unknown, queries=asked)
    >>> model.predict(["I cannot remember my password", "Do you sell bicycles?"])
    array(['password', None], dtype=object)
    """

    encoder: Any
    _: KW_ONLY
    false_positive_rate: float = 0.01
    confidence: float | None = 0.9
    guard: Any = None

    _parameter_constraints = {
        "encoder": "no_validation",  # `as_encoder` checks it
        "false_positive_rate": [Interval(Real, 0, 1, closed="neither")],
        "confidence": [Interval(Real, 0, 1, closed="neither"), None],
        "guard": [HasMethods("details"), None],
    }
    # Data of the fit, which no pipeline passes on.
    __metadata_request__fit = {"unanswerable": UNUSED, "queries": UNUSED}
    _state_version = 8

    @from_scratch
    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any, *, queries: Any = None, unanswerable: Any = None) -> Self:
        """Store questions with their answers, and find the threshold.

        Parameters
        ----------
        X : texts of shape (n_questions,)
            Questions. Several may have the same answer.
        y : array-like of shape (n_questions,)
            Their answers: texts, numbers, dicts or any other objects. Equal ones are one
            answer.
        queries : texts of shape (n_queries,), default=None
            Real questions, with and without an answer, some hundred, as in `SearchEncoder.fit`.
        unanswerable : texts of shape (n_unanswerable,), default=None
            Questions known to have no answer in `y`, from the same distribution as future ones.

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
        if queries is not None:  # without those that the threshold depends on
            left_out = {*stored, *(unknown[0] if unknown else ())}
            queries = [text for text in as_texts(queries, "queries") if text not in left_out]
            if len({*queries}) < 2:
                raise ValueError(
                    f"queries has {len({*queries})} distinct questions besides those stored or "
                    "unanswerable; expected two or more, better some hundred. Add questions, "
                    "or leave out queries."
                )
        search = self.encoder
        search = clone(search) if isinstance(search, SearchEncoder) else SearchEncoder(search)
        check_params(search)
        if search.encoder is None:
            raise ValueError(
                "The SearchEncoder of a NearestAnswer has no encoder; it compares questions as "
                "texts. Set its encoder."
            )
        index, unit = SearchIndex.learned(search, [*stored], queries, _codes(stored))
        space: Any = index.document_side.space
        if calibrates(space.encoder) and not space.is_frozen:
            warn(
                "The encoder is calibrated on the stored questions, so they lie farther apart "
                "than new ones, and false positives may be more frequent than "
                "false_positive_rate. Give a FrozenEstimator of a pipeline that was fitted on "
                "other questions."
            )
        asked = None if unknown is None else (*unknown, index.ask(unknown[0]))
        return self._keep(stored, unit, search, index, asked)

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
        """
        check_is_fitted(self)
        added = stored_answers(X, y)
        known = dict(zip(self.questions_, self.answers_, strict=True))
        more, unit = [text for text in added if text not in known], self._unit
        if more:
            space: Any = self._index.document_side.space
            unit = np.vstack([unit, space.unit(more)])
        stored, texts = known | added, [*known, *more]
        order = sorted(range(len(texts)), key=texts.__getitem__)
        stored, unit = {texts[i]: stored[texts[i]] for i in order}, unit[order]
        index = self._index.with_documents(unit, [*stored], _codes(stored))
        # A copy: an error leaves the store as it is.
        return self._keep(stored, unit, copy(self.search_), index, self._unanswerable)

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
        scores, rows = self._best(X)
        answers = self.answers_[rows]
        answers[scores < self.threshold_] = None
        return answers

    def decision_function(self, X: Any) -> np.ndarray:
        """Best scores minus the threshold: 0 or more where an answer is given.

        Parameters
        ----------
        X : texts of shape (n_questions,)

        Returns
        -------
        excess : ndarray of shape (n_questions,), float64
        """
        return self._best(X)[0] - self.threshold_

    def kneighbors(self, X: Any, n_neighbors: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Nearest of all stored questions, whatever their score.

        Parameters
        ----------
        X : texts of shape (n_questions,)
        n_neighbors : int, default=5

        Returns
        -------
        scores : ndarray of shape (n_questions, n_neighbors), float64
            In decreasing order; fewer columns if fewer questions are stored.
        rows : ndarray of shape (n_questions, n_neighbors), int
            Rows of `questions_` and `answers_`; -1 for a question without content.
        """
        check_is_fitted(self)
        return self.search_.kneighbors(X, n_neighbors)

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
        """Return the best score of each question with an allowed stored one, and its row."""
        check_is_fitted(self)
        texts = as_texts(X)
        best, rows = np.full(len(texts), NONE), np.zeros(len(texts), np.intp)
        known = np.array([*map(self._place.__contains__, texts)])
        if not known.all():
            asked = [*compress(texts, ~known)]
            best[~known], rows[~known] = self._index.nearest_allowed(
                self._index.ask(asked), self._keys.allow_new(asked), self.threshold_
            )
        best[known] = self.threshold_ + 1  # also without content
        rows[known] = [*map(self._place.__getitem__, compress(texts, known))]
        return best, rows

    def _keep(
        self,
        stored: dict[str, Any],
        unit: np.ndarray,
        search: SearchEncoder,
        index: SearchIndex,
        unanswerable: tuple[list[str], np.ndarray, Any] | None,
    ) -> Self:
        """Find the threshold, then keep the questions, which a fitted index has."""
        questions, answers = (
            np.fromiter(part, object, len(stored)) for part in (stored, stored.values())
        )
        keys, confidence = Keys.of(_codes(stored), stored, _guard_of_fit(self)), None
        if unanswerable is None:
            threshold = self._threshold_by_answers(questions, unit, index, keys)
        else:
            texts, place, asked = unanswerable
            best, _ = index.nearest_allowed(asked, keys.allow_new(texts), most=MOST_COMPARED)
            rate = self.false_positive_rate
            threshold, confidence = promised(best, place, rate, self.confidence)
        some = np.random.default_rng(0).permutation(len(questions))[:SAMPLED]
        found = index.nearest(index.queries(unit[some], questions[some].tolist()), 1)[0]
        if threshold > found.max():
            warn(
                "More questions than false_positive_rate are as near to a stored one with "
                "another answer as it is to itself, so only stored questions get an answer. "
                "Choose another encoder, or set a guard."
            )
        self.search_, self._index = search._keep(index), index
        self._unit, self._unanswerable = unit, unanswerable
        self._keys, self.threshold_, self.confidence_ = keys, threshold, confidence
        self._place = {question: i for i, question in enumerate(questions)}
        self.questions_, self.answers_ = questions, answers
        return self

    def _threshold_by_answers(
        self, questions: np.ndarray, unit: np.ndarray, index: SearchIndex, keys: Keys
    ) -> float:
        """Ask stored questions as if their own answers were not stored; no other changes."""
        n, rate = keys.answers.max() + 1, self.false_positive_rate
        if n == 1:
            raise ValueError(
                f"All {len(questions)} questions have one answer. Give questions with other "
                "answers, or `unanswerable` ones, to estimate the threshold."
            )
        content = np.flatnonzero(unit.any(axis=1))
        drawn = content[np.random.default_rng(0).permutation(len(content))[:ASKED]]
        texts = questions[drawn].tolist()
        if index.query_side is not index.document_side:  # otherwise as they are
            asked = index.ask(texts)
        else:
            asked = index.queries(unit[drawn], texts)
        best, _ = index.nearest_allowed(asked, keys.allow(keys[drawn]), most=MOST_COMPARED)
        threshold = promised_by_answers(best, keys.answers[drawn], rate)
        if n < (needed := n_needed(rate, new=2)):
            warn(
                f"false_positive_rate={rate:g} needs {needed:,} different answers to estimate "
                f"how much they differ; got {n}, so false positives may be more frequent. Give "
                "`unanswerable` questions."
            )
        return threshold

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _codes(stored: dict[str, Any]) -> np.ndarray:
    """Return which of the different answers each question has."""
    return distinct([identity(answer) for answer in stored.values()])[1]


def _guard_of_fit(answers: NearestAnswer) -> Any:
    """Return the guard, which parameters set later do not change."""
    if answers.guard is not None and answers.encoder is None:
        raise ValueError(
            "NearestAnswer got a guard, which reads texts, but no encoder; expected both. Set "
            "the encoder, as in NearestAnswer(encoder, guard=...), and pass texts."
        )
    return clone(answers.guard, safe=False)
