"""What a classifier starts from: names of classes, and labels of some of the texts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length

from skcalib.inputs.labels import labels_of, plain


def named_classes(class_names: Any) -> dict[Any, list[str]]:
    """Return the descriptions of each class, by its label, in the order of the labels."""
    is_text = isinstance(class_names, str)
    if hasattr(class_names, "fit") or (hasattr(class_names, "encode") and not is_text):
        raise TypeError(
            f"class_names is of type {type(class_names).__name__}; expected names of classes. "
            "The encoder comes first: ZeroShotClassifier(encoder, class_names)."
        )
    if not isinstance(class_names, Mapping):
        names = labels_of(class_names, "class_names")
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"class_names has {twice[0]!r} twice. Give each class once.")
        class_names = dict(zip(names, names, strict=True))
    if not class_names:
        raise ValueError("class_names is empty. Give the name of at least one class.")
    described: dict[Any, list[str]] = {}
    seen: dict[tuple[str, ...], Any] = {}
    for label in in_order(labels_of([*class_names], "class_names")):
        texts = _listed(class_names[label])
        if not texts or not all(isinstance(text, str) and _words(text) for text in texts):
            raise ValueError(
                f"class_names describes class {label!r:.60} by {class_names[label]!r:.60}; "
                "expected a text that is not blank, or a list of such texts."
            )
        described[label] = texts = [_words(text) for text in texts]
        first = seen.setdefault(tuple(sorted(texts)), label)
        if first != label:
            raise ValueError(
                f"class_names describes the classes {first!r:.60} and {label!r:.60} by the "
                f"same words, {texts[0]!r:.60}. Describe them differently."
            )
    return described


def known_labels(y: Any, n_texts: int, classes: list[Any]) -> tuple[np.ndarray, list[Any]]:
    """Return rows with a label, and these.

    A blank string is none, and -1 where all labels are integers, unless it is one of the
    classes, if these are known. Labels among which -1 may be a class are refused.
    """
    if y is None:
        return np.array([], int), []
    labels = labels_of(y, "y", missing=True)
    check_consistent_length(labels, range(n_texts))
    are_integers = {*map(type, labels)} <= {int, type(None)}
    absent: set[Any] = {None} | {x for x in labels if isinstance(x, str) and not x.strip()} - {
        *classes
    }
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


def labeled_rows(
    lines: np.ndarray, labels: list[Any], classes: list[Any], *, named: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that have a label, sorted, and the numbers of their classes.

    ``lines`` are the rows of the labels, -1 of a text without content. Without names, each
    class needs a row.
    """
    code = {label: i for i, label in enumerate(classes)}
    labeled = {(i, code[x]) for i, x in zip(lines.tolist(), labels, strict=True) if i >= 0}
    rows, codes = np.array(sorted(labeled), int).reshape(-1, 2).T
    if not named and (lacking := {*range(len(classes))} - {*codes.tolist()}):
        raise ValueError(
            f"All texts of the class {classes[min(lacking)]!r:.60} have no content for the "
            "encoder. Label others, or give class_names."
        )
    return rows, codes


def _listed(names: Any) -> list[Any]:
    names = plain(names)
    several = isinstance(names, Sequence) and not isinstance(names, str)
    return list(names) if several else [names]


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
