"""What a store holds: the answer of each question, and which questions it may answer."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, fields, is_dataclass
from itertools import repeat
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_consistent_length

from skcalib.inputs.labels import is_missing, labels_of, plain
from skcalib.inputs.texts import as_texts


def stored_answers(X: Any, y: Any) -> dict[str, Any]:
    """Return the answer of each distinct question, sorted by the questions."""
    questions, answers = as_texts(X), labels_of(y, "y", objects=True)
    check_consistent_length(questions, answers)
    stored: dict[str, Any] = {}
    for question, answer in zip(questions, answers, strict=True):
        first = stored.setdefault(question, answer)
        if first is not answer and identity(first) != identity(answer):
            raise ValueError(
                f"The question {question!r:.60} has the answers {first!r:.40} and "
                f"{answer!r:.40}. Give each question one answer."
            )
    return {question: stored[question] for question in sorted(stored)}


def identity(answer: Any) -> Hashable:
    """Return what equal answers share, also after a pickle.

    Dicts, lists, sets, arrays, dataclasses, and objects that cannot be hashed are compared by
    what they contain, where NaN is one value.
    """
    if isinstance(answer, Mapping):
        return Mapping, frozenset((identity(k), identity(v)) for k, v in answer.items())
    if isinstance(answer, Set):
        return frozenset(map(identity, answer))
    if isinstance(answer, Sequence) and not isinstance(answer, str | bytes):
        return type(answer), tuple(map(identity, answer))
    if hasattr(answer, "shape") and (listed := plain(answer)) is not answer:  # such as a tensor
        return type(answer), tuple(answer.shape), identity(listed)
    if is_dataclass(answer) and not isinstance(answer, type):
        values = (getattr(answer, field.name) for field in fields(answer))
        return type(answer), tuple(map(identity, values))
    try:
        hash(answer)
    except TypeError:
        is_frame = hasattr(answer, "shape") or not hasattr(answer, "__dict__")
        return type(answer), id(answer) if is_frame else identity(vars(answer))
    return None if answer is not None and is_missing(answer) else answer


@dataclass(frozen=True, eq=False)
class Keys:
    """What decides whether a stored question may answer one that is asked.

    ``answers`` are codes, -1 for none, and ``details`` are what the guard returns, if any.
    """

    answers: np.ndarray
    details: np.ndarray
    guard: Any = None

    @classmethod
    def of(cls, answers: np.ndarray, texts: Collection[str], guard: Any) -> Self:
        """Return the keys of questions, with the codes of their answers."""
        details = map(guard.details, texts) if guard is not None else repeat(0, len(texts))
        return cls(answers, np.fromiter(details, object, len(texts)), guard)

    def allow(self, asked: Self) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Return whether rows may answer asked questions: other answers, equal details."""
        return lambda numbers, rows: (
            (self.answers[rows] != asked.answers[numbers])
            & (self.details[rows] == asked.details[numbers])
        )

    def allow_new(self, texts: list[str]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Return the same of questions without an answer of their own."""
        return self.allow(self.of(np.full(len(texts), -1), texts, self.guard))

    def __getitem__(self, rows: np.ndarray) -> Self:
        return type(self)(self.answers[rows], self.details[rows])
