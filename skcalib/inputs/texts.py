"""Texts and pairs of texts from containers of all kinds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from skcalib.base import VersionedState
from skcalib.inputs.labels import is_missing


class TextInput:
    """Mixin of an estimator that is fitted on texts, or on vectors if its encoder is None."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        if getattr(self, "encoder", True) is not None:
            tags.input_tags.string = tags.input_tags.one_d_array = True
            tags.input_tags.two_d_array = False  # the tag means columns of numbers
        return tags


class TextTransformer(
    TextInput, ClassNamePrefixFeaturesOutMixin, TransformerMixin, VersionedState, BaseEstimator
):
    """Base of a transformer from texts to vectors."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


def as_texts(X: Any, name: str = "X") -> list[str]:
    """Return the texts of a container as a list; ``name`` is the parameter that errors name.

    It accepts lists, tuples, arrays of shape (n,) or (n, 1), columns of pyarrow, and Series and
    one-column frames of pandas and polars.
    """
    cells = _cells(X, name)
    if cells.ndim == 2 and cells.shape[1] == 1:
        cells = cells[:, 0]
    if cells.ndim != 1:
        raise ValueError(
            f"{name} has shape {cells.shape}; expected one text per row: a list of str, a 1-D "
            "array, a Series or a single column. Select one column, or join the words of each "
            "text with ' '.join(row). For pairs of texts use BiEncoder. If these are vectors, "
            "leave out the encoder, or give their texts and a TextEncoder of the function that "
            "computes them."
        )
    return _strings(cells.tolist(), "", name)


def as_pairs(X: Any, name: str = "X") -> tuple[list[str], list[str]]:
    """Return the columns of a sequence of pairs, (n, 2) array or two-column frame as lists."""
    cells = _cells(X, name)
    if cells.ndim != 2 or cells.shape[1] != 2:
        raise ValueError(
            f"{name} has shape {cells.shape}; expected pairs of texts, of shape (n_pairs, 2): "
            "a list of (text, text), an array, or a two-column frame."
        )
    left, right = cells.T.tolist()
    return _strings(left, ", column 0", name), _strings(right, ", column 1", name)


def texts_of(X: Any, name: str = "X") -> list[str]:
    """Return the texts of a container of texts, or of both columns of a container of pairs."""
    if is_pairs(X):
        left, right = as_pairs(X, name)
        return left + right
    return as_texts(X, name)


def is_pairs(X: Any) -> bool:
    """Whether a container holds rows of several columns rather than single texts."""
    shape = getattr(X, "shape", None)
    if shape is not None:
        return len(shape) == 2 and shape[1] != 1
    first = X[0] if isinstance(X, list | tuple) and X else None
    return isinstance(first, list | tuple | np.ndarray) and len(first) != 1


def distinct(texts: Sequence[Any]) -> tuple[list[Any], np.ndarray]:
    """Return distinct texts or labels, by first appearance, and the index of each entry."""
    index: dict[Any, int] = {}
    places = [index.setdefault(text, len(index)) for text in texts]
    return list(index), np.array(places, dtype=np.intp)


def distinct_sorted(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Return distinct texts in sorted order, and the index of each text in them."""
    unique, index = np.unique(np.array(texts, dtype=object), return_inverse=True)
    return unique.tolist(), index


def distinct_texts(X: Any, name: str = "X") -> list[str]:
    """Return the distinct texts of a container of texts or pairs."""
    return distinct(texts_of(X, name))[0]


def _cells(X: Any, name: str) -> np.ndarray:
    """Entries of a container as an object array."""
    is_sized = hasattr(X, "__len__") and hasattr(X, "__getitem__")
    if isinstance(X, str | bytes | Mapping) or not is_sized:
        raise TypeError(
            f"{name} is of type {type(X).__name__}; expected a list of str, a 1-D array, a "
            "pandas or polars Series, or a frame. Wrap a single text in a list, and convert an "
            "iterator with list(...)."
        )
    X = X.to_pylist() if hasattr(X, "to_pylist") else X
    cells = np.asarray(X if hasattr(X, "shape") else list(X), dtype=object)
    if cells.shape[:1] == (0,):
        raise ValueError(f"{name} has no texts; expected at least one.")
    return cells


def _strings(texts: list[Any], where: str, name: str) -> list[str]:
    """Return the entries as str; ``where`` locates them in error messages."""
    if set(map(type, texts)) == {str}:  # the usual case, quickly checked
        return texts
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            missing = is_missing(text)
            shown = f"a missing value ({text!r})" if missing else f"{text!r:.60}"
            raise (ValueError if missing else TypeError)(
                f"{name} has {shown} of type {type(text).__name__} at position {i}"
                f"{where}; expected str. Drop the row, select a column of texts, or convert "
                "it, for instance with [text if isinstance(text, str) else '' for text in X]."
            )
        # The content of a subclass such as numpy.str_; str(text) gives the name of an Enum.
        texts[i] = str.__str__(text)
    return texts
