"""What a store holds: the answer of each question, and which answers are the same."""

from collections.abc import Hashable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length

from skcalib.inputs.labels import labels_of
from skcalib.inputs.texts import as_texts, distinct


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


def ask_alike(stored: dict[str, Any]) -> bool:
    """Whether at least half of the questions share their answer with another one."""
    _, codes = distinct([identity(answer) for answer in stored.values()])
    return bool(np.mean(np.bincount(codes)[codes] > 1) >= 0.5)


def identity(answer: Any) -> Hashable:
    """Return what equal answers share.

    Dicts, lists, sets and arrays are compared by what they contain, other objects that cannot
    be hashed by identity.
    """
    try:
        hash(answer)
    except TypeError:
        if isinstance(answer, Mapping):
            return Mapping, frozenset((key, identity(value)) for key, value in answer.items())
        if isinstance(answer, Set):
            return frozenset(answer)
        if isinstance(answer, np.ndarray):
            return np.ndarray, answer.shape, identity(answer.ravel().tolist())
        if isinstance(answer, Sequence):
            return type(answer), tuple(map(identity, answer))
        return object, id(answer)
    return answer
