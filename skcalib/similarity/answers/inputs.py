"""What a store holds: the answer of each question, and which answers are the same."""

from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from typing import Any

from sklearn.utils.validation import check_consistent_length

from skcalib.inputs.labels import is_missing, labels_of
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
    """Return what equal answers share.

    Dicts, lists, sets, arrays and dataclasses are compared by what they contain, where NaN is
    one value, and other objects that cannot be hashed by identity.
    """
    if isinstance(answer, Mapping):
        return Mapping, frozenset((key, identity(value)) for key, value in answer.items())
    if isinstance(answer, Set):
        return frozenset(map(identity, answer))
    if isinstance(answer, Sequence) and not isinstance(answer, str | bytes):
        return type(answer), tuple(map(identity, answer))
    if hasattr(answer, "tolist") and hasattr(answer, "shape"):  # an array, a tensor
        return type(answer), tuple(answer.shape), identity(answer.tolist())
    if is_dataclass(answer) and not isinstance(answer, type):
        values = (getattr(answer, field.name) for field in fields(answer))
        return type(answer), tuple(map(identity, values))
    try:
        hash(answer)
    except TypeError:
        return object, id(answer)
    return None if answer is not None and is_missing(answer) else answer
