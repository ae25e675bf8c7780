"""What a classifier is told: names of classes, and labels of some of the texts."""

from collections.abc import Iterable, Mapping, Sequence, Set
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length

from skcalib._texts import is_missing, plain


def named_classes(class_names: Any) -> dict[Any, list[str]]:
    """Return the descriptions of each class, by its label, in the order of the labels.

    Raises
    ------
    TypeError, ValueError
        If there are no classes, one comes twice, or a description is no text.
    """
    class_names = plain(class_names)
    if isinstance(class_names, str) or not isinstance(class_names, Mapping | Sequence):
        raise TypeError(
            f"class_names is {class_names!r:.80}; it expects a list of names, or a mapping "
            "from labels to descriptions, such as {0: 'world news', 1: 'sports'}."
        )
    if missing := [label for label in class_names if is_missing(label)]:
        raise ValueError(f"class_names has the label {missing[0]!r}, which is a missing one.")
    if not isinstance(class_names, Mapping):
        listed = list(class_names)
        check_labels(listed, "class_names")
        if twice := sorted({str(name) for name in listed if listed.count(name) > 1}):
            raise ValueError(f"class_names has {twice[0]!r} twice. Give each class once.")
        class_names = {name: name for name in listed}
    if not class_names:
        raise ValueError("class_names is empty. Give the name of at least one class.")
    check_labels(class_names, "class_names")
    described: dict[Any, list[str]] = {}
    seen: dict[tuple[str, ...], Any] = {}
    for label in in_order(class_names):
        texts = _listed(class_names[label])
        if not texts or not all(isinstance(text, str) and _words(text) for text in texts):
            raise ValueError(
                f"class_names describes class {label!r:.60} by {class_names[label]!r:.60}; it "
                "expects a text that is not blank, or a list of such texts."
            )
        described[label] = texts = [_words(text) for text in texts]
        first = seen.setdefault(tuple(sorted(texts)), label)
        if first != label:
            raise ValueError(
                f"class_names describes the classes {first!r:.60} and {label!r:.60} by the "
                f"same words, {texts[0]!r:.60}. Describe them differently."
            )
    return described


def known_labels(y: Any, n_texts: int) -> tuple[np.ndarray, list[Any]]:
    """Return the rows that have a label, and their labels.

    Missing are None and NaN, and -1 where all labels are integers.
    """
    if y is None:
        return np.array([], int), []
    if isinstance(y, Mapping | Set) or hasattr(y, "columns"):
        raise TypeError(
            f"y is a {type(y).__name__}; it expects a list, an array or a Series with one "
            "label for each text, in their order. Select a column of a frame."
        )
    # NumPy would make floats of its own integers where some have a sign and some have none.
    labels = [int(x) if isinstance(x, np.integer) else x for x in plain(y)]
    check_consistent_length(labels, range(n_texts))
    if listed := [label for label in labels if isinstance(label, list)]:
        raise ValueError(
            f"y has the row {listed[0]!r:.80}; it expects one label for each text, in one "
            "dimension. Use y.ravel() for a column."
        )
    known = [i for i, label in enumerate(labels) if not is_missing(label)]
    check_labels([labels[i] for i in known], "y")
    if all(isinstance(labels[i], Integral) and not isinstance(labels[i], bool) for i in known):
        known = [i for i in known if labels[i] != -1]
    return np.array(known, int), [labels[i] for i in known]


def check_labels(labels: Iterable[Any], source: str) -> None:
    """Refuse labels that an array of classes would merge, or take apart."""
    kinds = set()
    for label in labels:
        if isinstance(label, tuple | list | set | dict | np.ndarray):
            raise ValueError(
                f"{source} has the label {label!r:.60}; a label is a single str or number, not "
                f"a {type(label).__name__}. Join its parts to a str."
            )
        kinds.add(isinstance(label, bool | np.bool_))
    if len(kinds) > 1:
        raise ValueError(
            f"{source} has labels that are True or False beside others; True equals 1. Give "
            "labels of one type."
        )


def _listed(given: Any) -> list[Any]:
    given = plain(given)
    several = isinstance(given, Sequence) and not isinstance(given, str)
    return list(given) if several else [given]


def _words(name: str) -> str:
    return " ".join(name.replace("_", " ").replace("-", " ").split())


def in_order(labels: Any) -> list[Any]:
    """Sort labels, or raise a ValueError if they are of several types."""
    try:
        return sorted(labels)
    except TypeError:
        kinds = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise ValueError(
            f"The labels of the classes are of several types ({kinds}). Give labels of one "
            "type."
        ) from None
