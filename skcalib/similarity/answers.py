"""NearestAnswer: the answer of the nearest stored question, or none."""

from collections.abc import Hashable, Mapping, Set
from copy import copy
from itertools import compress
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, clone
from sklearn.preprocessing import normalize
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from skcalib.base import VersionedState, warn
from skcalib.callbacks import fit_task, part_task
from skcalib.compat import Interval, _fit_context
from skcalib.cosines import nearest
from skcalib.inputs.labels import is_missing, plain
from skcalib.inputs.texts import TextInput, as_texts, distinct
from skcalib.inputs.vectors import unit_rows
from skcalib.similarity.search import SearchEncoder, shifted
from skcalib.similarity.space import calibrates
from skcalib.statistics.conformal import ROUNDING, confidence_for, n_above, n_needed

JUDGED = 2000  # stored questions, at most, that are asked to find the threshold
# Cosine of near copies, at least, after the mean is subtracted. A smaller one would take
# questions on a narrow topic for copies, and these keep the rate.
NEAR = 0.99
MARGIN = 1e-6  # of a threshold, above what rounding changes in a score

# Distinct questions without an answer, how often each comes, and their vectors as queries.
Unanswerable = tuple[list[str], np.ndarray, np.ndarray]


class HitRates(NamedTuple):
    """Shares of questions, from 0 to 1; NaN without questions of the kind."""

    right: float  # of the questions with an answer, those that got it
    wrong: float  # of the questions with an answer, those that got another
    false: float  # of the questions without an answer, those that got one


class NearestAnswer(TextInput, VersionedState, BaseEstimator):
    """Answer a question with the answer of the nearest stored question, or not at all.

    Of the questions that no stored answer fits, at most a share of `false_positive_rate` get
    one, however many are stored, if they are like the `unanswerable` questions of the fit.
    Without these, the threshold is estimated from the stored questions, and up to 1.3 times as
    many may get one on average, see Notes.

    Parameters
    ----------
    encoder : SearchEncoder, or any encoder of texts
        What compares questions. An encoder, such as `BertEncoder` or a model's folder, becomes
        a `SearchEncoder` of it. It is cloned and fitted.
    false_positive_rate : float in (0, 1), default=0.01
        Share of the questions without a stored answer that may get one.

    Attributes
    ----------
    questions_, answers_ : ndarray of shape (n_stored,), object
        Stored questions, each once, and their answers.
    search_ : SearchEncoder
        The fitted clone. Its documents are the questions, each moved halfway to the mean of
        those with the same answer.
    threshold_ : float
        Score that a question must reach to get an answer.

    See Also
    --------
    SearchEncoder : All documents that answer a query, in order.
    SimilarityScale : Thresholds for vectors, per pair and per query.
    ZeroShotClassifier : Classes of texts, from names or a few labels.

    Notes
    -----
    A question that is stored gets its own answer. One without content for the encoder (blank,
    only unknown tokens, or a zero vector) gets none otherwise. Two answers are the same if they
    are equal by ``==``, in all their entries if they have several, or the same object.

    **With unanswerable questions**, the threshold is one of their best scores with the stored
    questions, chosen by its rank [1]_. From 100 distinct ones on, if they suffice, the rate is
    kept for this fit with a probability of 0.9: 5 % needs 100, 1 % 230. With fewer, it is kept
    on average over samples, which needs ``1 / false_positive_rate - 1``. A repeated question
    counts once, or as often as it comes if this is stricter. What is stored is answered. So
    questions that are stored, or near copies of stored ones (a cosine of 0.99 or more after the
    mean of the stored ones is subtracted), do not count, and a warning names them.

    **Without**, each stored question (2,000 at most) is asked as if its own answer were not
    stored. This assumes that new questions differ from the stored ones as much as stored
    questions with different answers differ from each other. An answer and its nearest are often
    each other's nearest, so a new answer would make the questions of two answers pass; each
    answer counts as much as the others. Therefore ``2 / false_positive_rate - 1`` different
    answers are needed; with fewer, `fit` warns, and fewer questions are refused. In simulations
    with 20 and 40 answers, the share was 1.2 to 1.3 times `false_positive_rate` on average, and
    in one fit of ten at least 1.8 to 2.5 times; with 100 answers 1.1 times on average.

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

    _parameter_constraints = {
        "encoder": "no_validation",  # `as_encoder` checks it
        "false_positive_rate": [Interval(Real, 0, 1, closed="neither")],
    }
    # Data of the fit, which no pipeline passes on.
    __metadata_request__fit = {"unanswerable": UNUSED, "queries": UNUSED}
    _state_version = 12

    threshold_: float

    def __init__(self, encoder: Any, *, false_positive_rate: float = 0.01):
        self.encoder = encoder
        self.false_positive_rate = false_positive_rate

    @fit_task(prefer_skip_nested_validation=False, n_subtasks=1)
    def fit(self, X: Any, y: Any, *, queries: Any = None, unanswerable: Any = None) -> Self:
        """Store questions with their answers, and find the threshold.

        Parameters
        ----------
        X : texts of shape (n_questions,)
            Questions. Several may have the same answer.
        y : array-like of shape (n_questions,)
            Their answers: texts, numbers, dicts or any other objects.
        queries : texts of shape (n_queries,), default=None
            Real questions, a few hundred, with and without an answer; see `SearchEncoder`.
            Those that are stored or `unanswerable` do not count.
        unanswerable : texts of shape (n_unanswerable,), default=None
            Questions known to have no answer in `y`, from the same distribution as future ones.

        Returns
        -------
        self : NearestAnswer

        Raises
        ------
        ValueError
            If a question has no answer or two, or if there are too few for the rate.
        """
        stored = _stored(X, y)
        unknown: list[str] = []
        if unanswerable is not None:
            unknown, place = distinct(as_texts(unanswerable, "unanswerable"))
        if queries is not None:  # without those that the threshold depends on
            left_out = {*stored, *unknown}
            queries = [text for text in as_texts(queries, "queries") if text not in left_out]
        search = self.encoder
        search = clone(search) if isinstance(search, SearchEncoder) else SearchEncoder(search)
        with part_task("fit-search", search):
            unit = search._fit([*stored], queries=queries or None)
        space = search._documents
        if calibrates(space.encoder) and not space.is_frozen:
            warn(
                "The encoder is calibrated on the stored questions, so they lie farther apart "
                "than new ones, and false positives may be more frequent than "
                "false_positive_rate. Give a FrozenEstimator of a pipeline that was fitted on "
                "other questions."
            )
        without = None
        if unanswerable is not None:
            of_queries, _ = search._queries.unit_of(search, unknown)
            without = unknown, np.bincount(place), of_queries
        return self._keep(stored, unit, search, without)

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
        stored = dict(zip(self.questions_, self.answers_, strict=True))
        more = _stored(X, y)
        new = [text for text in more if text not in stored]
        alone, unit = copy(self._alone), self._unit  # an error leaves the store as it is
        if new:
            of_new, _ = alone._documents.unit_of(alone, new)
            alone._append(*alone._as_documents(of_new, new))
            unit = np.vstack([unit, of_new])
        return self._keep(stored | more, unit, alone, self._unanswerable, is_growing=True)

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
        scores, rows : ndarray of shape (n_questions, n_neighbors)
            As of `SearchEncoder.kneighbors`; rows of `questions_` and `answers_`.
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
        scores, rows = self._best(X)
        expected = _entries(y)
        check_consistent_length(rows, expected)
        codes = _numbered([*self.answers_, *expected])
        stored, truth = np.split(codes, [len(self.answers_)])
        answered = scores >= self.threshold_
        return answered & (stored[rows] == truth), answered, np.isin(truth, stored)

    def _best(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the best score of each question, and the row of the stored one."""
        check_is_fitted(self)
        texts = as_texts(X)
        scores, rows = self.search_.kneighbors(texts, 1)
        scores, rows = scores[:, 0], rows[:, 0]
        for i, text in enumerate(texts):
            if text in self._place:  # also without content
                scores[i], rows[i] = max(scores[i], self.threshold_ + 1), self._place[text]
        return scores, rows

    def _keep(
        self,
        stored: dict[str, Any],
        unit: np.ndarray,
        alone: SearchEncoder,
        unknown: Unanswerable | None,
        is_growing: bool = False,
    ) -> Self:
        """Find the threshold, then keep the questions, which a fitted search has."""
        questions, answers = (
            np.fromiter(part, object, len(stored)) for part in (stored, stored.values())
        )
        codes = _numbered([*answers])
        search = _by_answers(alone, codes)
        rate = self.false_positive_rate
        if unknown is None:
            threshold = _threshold_by_answers(questions, unit, codes, search, rate)
        else:
            unknown = texts, n_times, of_texts = _without_stored(unknown, questions, alone)
            best = np.empty(0)
            if texts:
                best = search._nearest(*search._as_queries(of_texts, texts), 1)[0][:, 0]
            if is_growing and len(texts) < n_needed(rate):
                warn(
                    f"Only {len(texts):,} of the unanswerable questions still have no answer; "
                    f"false_positive_rate={rate:g} needs {n_needed(rate):,}, so false "
                    "positives may be more frequent. Fit again, with more of them."
                )
                threshold = best.max() + MARGIN if len(texts) else self.threshold_
            else:
                threshold = promised(best, n_times, rate)
        self.search_, self._alone, self._unit = search, alone, unit
        self._unanswerable, self.threshold_ = unknown, float(threshold)
        self._place = {question: i for i, question in enumerate(questions)}
        self.questions_, self.answers_ = questions, answers
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


# Questions and answers.


def _stored(X: Any, y: Any) -> dict[str, Any]:
    """Return the answer of each distinct question, sorted by the questions."""
    questions, answers = as_texts(X), _entries(y)
    check_consistent_length(questions, answers)
    stored: dict[str, Any] = {}
    for question, answer in zip(questions, answers, strict=True):
        if is_missing(answer):
            raise ValueError(
                f"y has a missing answer, {answer!r}, to {question!r:.60}. Drop the question, "
                "or give it an answer."
            )
        first = stored.setdefault(question, answer)
        if not _equal(first, answer):
            raise ValueError(
                f"The question {question!r:.60} has the answers {first!r:.40} and "
                f"{answer!r:.40}. Give each question one answer."
            )
    return {question: stored[question] for question in sorted(stored)}


def _entries(y: Any) -> list[Any]:
    """Return answers as objects, which keep what they are."""
    is_list = hasattr(y, "__len__") and not isinstance(y, str | Mapping | Set)
    if not is_list or hasattr(y, "columns") or getattr(y, "ndim", 1) != 1:
        raise TypeError(
            f"y is of type {type(y).__name__} and shape {np.shape(y)}; expected a list, an "
            "array or a Series with an answer for each question. Wrap a single answer in a "
            "list, flatten a column with ravel(), and select one column of a frame."
        )
    # As Python's numbers and texts; dates would lose their unit, and records their names.
    is_odd = isinstance(y, np.ndarray) and y.dtype.kind in "mMV"
    return [*(y if is_odd else plain(y))]


def _equal(first: Any, second: Any) -> bool:
    """Whether two answers are equal, in all entries if they have several."""
    if first is second:
        return True
    try:
        equal = first == second
        if isinstance(equal, bool | np.bool_):
            return bool(equal)
        is_like = type(first) is type(second) and np.shape(first) == np.shape(second)
        return is_like and bool(np.asarray(equal).all())
    except (TypeError, ValueError):  # such as frames with other columns
        return False


def _numbered(answers: list[Any]) -> np.ndarray:
    """Return numbers of answers, from 0, the same for equal ones."""
    codes: list[int] = []
    by_hash: dict[Hashable, int] = {}
    others: list[tuple[int, Any]] = []
    for answer in answers:
        new = len(by_hash) + len(others)
        try:
            codes.append(by_hash.setdefault(answer, new))
        except TypeError:  # it cannot be hashed
            codes.append(next((code for code, other in others if _equal(other, answer)), new))
            if codes[-1] == new:
                others.append((new, answer))
    return np.array(codes)


def _by_answers(search: SearchEncoder, codes: np.ndarray) -> SearchEncoder:
    """Return a search whose documents are moved halfway to the mean of their code."""
    shares = 1 / np.bincount(codes)[codes]
    mean = csr_array((shares.astype(np.float32), (codes, np.arange(len(codes)))))
    search = copy(search)
    search.vectors_ = normalize(search.vectors_ + (mean @ search.vectors_)[codes])
    if search._by_term is not None:
        words = csr_array(search._by_term.T)
        search._by_term = csr_array(normalize(words + (mean @ words)[codes]).T)
    return search


def _without_stored(
    unknown: Unanswerable, stored: np.ndarray, search: SearchEncoder
) -> Unanswerable:
    """Leave out questions that are stored, or near copies of these, and name them."""
    texts, n_times, of_queries = unknown
    if not texts:
        return unknown
    unit = of_queries
    if search._queries is not search._documents:
        unit, _ = search._documents.unit_of(search, texts)
    vectors, mean = shifted(unit, search.document_shift_), search.vectors_.mean(axis=0)
    new, old = (unit_rows(X - mean)[0].astype(np.float32) for X in (vectors, search.vectors_))
    cosines, rows = (found[:, 0] for found in nearest(new, old, 1))
    is_near = (cosines >= NEAR) & np.any(unit, axis=1) & search.vectors_[rows].any(axis=1)
    same = {*stored}
    left_out = is_near | [text in same for text in texts]
    if not left_out.any():
        return unknown
    named = [
        f"{texts[i]!r:.60} by {(texts[i] if texts[i] in same else stored[rows[i]])!r:.60}"
        for i in np.flatnonzero(left_out)[:3]
    ]
    warn(
        f"{left_out.sum():,} of {len(texts):,} unanswerable questions are answered, since they "
        "are stored or near copies of what is stored, and do not count for the rate: "
        f"{', '.join(named)}{', ...' * bool(left_out.sum() > 3)}."
    )
    return [*compress(texts, ~left_out)], n_times[~left_out], of_queries[~left_out]


# Thresholds.


def promised(best: np.ndarray, n_times: np.ndarray, rate: float) -> float:
    """Return a threshold that a new best score exceeds at most at a rate.

    ``best`` of shape (n,) are the best scores of distinct questions without an answer, and
    ``n_times`` is how often each of these comes.
    """
    n, kind = len(best), "distinct questions without an answer"
    most = n_above(n, rate, kind, confidence=confidence_for(n, rate))
    often = np.sort(np.repeat(best, n_times))
    of_often = often[len(often) - 1 - most * len(often) // n]
    return float(max(np.sort(best)[n - 1 - most], of_often)) + MARGIN


def _threshold_by_answers(
    questions: np.ndarray,
    unit: np.ndarray,
    codes: np.ndarray,
    search: SearchEncoder,
    rate: float,
) -> float:
    """Ask stored questions as if their own answers were not stored; no other changes."""
    n = codes.max() + 1
    if n == 1:
        raise ValueError(
            f"All {len(questions)} questions have one answer. Give questions with other "
            "answers, or `unanswerable` ones, to estimate the threshold."
        )
    content = np.flatnonzero(unit.any(axis=1))
    drawn = content[np.random.default_rng(0).permutation(len(content))[:JUDGED]]
    asked = unit[drawn]
    if search._queries is not search._documents:
        asked, _ = search._queries.unit_of(search, questions[drawn])
    encoded = search._as_queries(asked, questions[drawn])
    best, _ = search._nearest(*encoded, 1, left_out=(codes, codes[drawn]))
    threshold = promised_by_answers(best[:, 0], codes[drawn], rate)
    if n < (needed := n_needed(rate, new=2)):
        warn(
            f"false_positive_rate={rate:g} needs {needed:,} different answers to estimate "
            f"how much they differ; got {n}, so false positives may be more frequent. Give "
            "`unanswerable` questions."
        )
    return threshold


def promised_by_answers(best: np.ndarray, codes: np.ndarray, rate: float) -> float:
    """Return the score that a question of a new answer exceeds with about this probability.

    ``best`` of shape (n,) are the largest scores of questions with entries of other answers
    than theirs, and ``codes`` are their answers. Each answer counts with the share of its
    questions that exceed the score. If these shares sum to m among a answers, and are c on
    average where any does, a new answer adds c, and the answer that is nearest to it another c:
    ``m + 2 c`` of ``a + c``. With too few answers for the rate, it is the largest score.
    """
    n_above(len(best), rate, "stored questions", new=2, hint=" Or give `unanswerable` ones.")
    order = np.argsort(-best, kind="stable")
    weight = 1 / np.bincount(codes)[codes][order]
    exceed = np.cumsum(weight) - weight  # the sum before each place
    answers = np.zeros(len(best))
    answers[np.unique(codes[order], return_index=True)[1]] = 1
    answers, n = np.cumsum(answers) - answers, answers.sum()
    of_each = np.where(answers > 0, exceed / np.maximum(answers, 1), weight)
    expected = (exceed + 2 * of_each) / (n + of_each)
    kept = np.flatnonzero(expected <= rate + ROUNDING)
    return float(best[order[kept[-1] if len(kept) else 0]]) + MARGIN
