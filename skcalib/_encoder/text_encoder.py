"""Sentences to vectors with any model: a function of texts, or an object that encodes."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from skcalib._base import VersionedState, progress
from skcalib._encoder.estimator import BertEncoder
from skcalib._sklearn_compat import HasMethods, Interval, _fit_context
from skcalib._store.store import VectorStore
from skcalib._store.vectors import Vectors
from skcalib._texts import as_texts, distinct

__all__ = ["TextEncoder", "as_encoder"]

KEPT_BYTES = 2**28  # vectors that an encoder and its clones keep in memory


class TextEncoder(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, VersionedState, BaseEstimator
):
    """Encode texts by a model of another library, or by a function such as a call of an API.

    The model is taken as it is and as frozen: an encoder and its clones share it, ask it once
    for each text, and keep the answers in memory, 256 MiB at most.

    Parameters
    ----------
    model : callable, or object with a method ``encode``
        Takes a list of texts and returns an array of shape (n_texts, n_features): a function,
        a ``SentenceTransformer``, a ``StaticModel`` of model2vec.
    batch_size : int, default=1024
        Most texts that the model is given at once.
    memory : None, path-like or VectorStore, default=None
        Where to keep vectors on disk as well, in float32, so that other processes do not ask
        for them again (but for one text, which tells the width).
    name : str or None, default=None
        Names the model in ``memory``, where it is needed: the model itself cannot be told from
        another. Give another name whenever vectors change, as with a new version of an API.
    verbose : bool, default=False
        Show a progress bar.

    See Also
    --------
    BertEncoder : Encodes by hidden states of a model's folder, which it chooses among.

    Notes
    -----
    Vectors are float64 if the model returns float64, else float32: float16 and integers are
    converted as they are, without a scale. Nothing is normalised. Quantised codes (int8,
    binary) are compared as numbers; pass what the model gave before quantisation where you can.

    A pickle holds the model if it can be pickled; a lambda, or a client with an open
    connection, cannot. What was kept in memory is not in the pickle.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from skcalib import TextEncoder, Whitening
    >>> def letters(texts):
    ...     return np.array([[text.count(c) for c in "aeinorst"] for text in texts])
    >>> texts = ["a tin star", "nine notes", "as it is", "no iron stone rests", "seas", "toes"]
    >>> pipeline = make_pipeline(TextEncoder(letters), Whitening(2, noise="auto"))
    >>> pipeline.fit_transform(texts).shape
    (6, 2)
    """

    _parameter_constraints: dict = {
        "model": [callable, HasMethods(["encode"])],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "memory": [str, os.PathLike, VectorStore, None],
        "name": [str, None],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        model: Callable[[list[str]], Any] | Any,
        *,
        batch_size: int = 1024,
        memory: str | os.PathLike | VectorStore | None = None,
        name: str | None = None,
        verbose: bool | int = False,
    ):
        self.model = model
        self.batch_size = batch_size
        self.memory = memory
        self.name = name
        self.verbose = verbose

    def __sklearn_clone__(self) -> Self:
        # A deep copy of the model would take its memory, and ask again for every text.
        twin = type(self)(**self.get_params(deep=False))
        twin._kept = self._known()
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_kept"}

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: None = None) -> Self:
        """Check the texts, and learn the width of the vectors from the first.

        Parameters
        ----------
        X : list of str, 1-D or (n, 1) array, Series or one-column frame
            Texts.
        y : None
            Ignored.

        Returns
        -------
        self : TextEncoder
            The fitted encoder.
        """
        texts = as_texts(X, caller=type(self).__name__)
        self._n_features_out = self._encode(texts[:1]).shape[1]
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_transform(self, X: Any, y: None = None) -> np.ndarray:
        """Fit, and encode the texts.

        Parameters
        ----------
        X : list of str, 1-D or (n, 1) array, Series or one-column frame
            Texts.
        y : None
            Ignored.

        Returns
        -------
        vectors : ndarray of shape (n_texts, n_features), float32 or float64
            One row per text.
        """
        vectors = self._encode(as_texts(X, caller=type(self).__name__))
        self._n_features_out = vectors.shape[1]
        return vectors

    def transform(self, X: Any) -> np.ndarray:
        """Encode texts.

        Parameters
        ----------
        X : list of str, 1-D or (n, 1) array, Series or one-column frame
            Texts.

        Returns
        -------
        vectors : ndarray of shape (n_texts, n_features), float32 or float64
            One row per text.
        """
        check_is_fitted(self)
        vectors = self._encode(as_texts(X, caller=type(self).__name__))
        if vectors.shape[1] != self._n_features_out:
            raise ValueError(
                f"The model {self.model!r:.80} gives {vectors.shape[1]} features, but gave "
                f"{self._n_features_out} when this TextEncoder was fitted. Fit again."
            )
        return vectors

    def _known(self) -> tuple[Any, dict[str, np.ndarray]]:
        """Return the model, and its vectors by text."""
        if self.__dict__.get("_kept", (None,))[0] is not self.model:
            self._kept: tuple[Any, dict[str, np.ndarray]] = self.model, {}
        return self._kept

    def _encode(self, texts: list[str]) -> np.ndarray:
        """Vectors of the texts, each of which the model sees once."""
        unique, inverse = distinct(texts)
        _, known = self._known()
        answers = {text: known[text] for text in unique if text in known}
        left, verbose = len(unique) - len(answers), bool(self.verbose)
        try:
            with progress(left, unit="text", desc="encode", verbose=verbose) as advance:
                if self.memory is None:
                    self._answer(unique, answers, advance)
                else:
                    self._answer_from_disk(unique, answers, advance)
        finally:  # an API that fails on the way is not asked again for what it has answered
            new = answers.keys() - known.keys()
            if new and (len(known) + len(new)) * answers[next(iter(new))].nbytes < KEPT_BYTES:
                known.update(answers)
        return np.stack([answers[text] for text in unique])[inverse]

    def _answer_from_disk(
        self, texts: list[str], answers: dict[str, np.ndarray], advance: Callable[..., None]
    ) -> None:
        """Add vectors that the store has, then the model's, which the store keeps."""
        if not self.name:
            raise ValueError(
                "TextEncoder got memory and no name; the vectors on disk are found by the name "
                "of the model. Set name, such as name='text-embedding-3-small'."
            )
        if not answers:
            self._answer(texts[:1], answers, advance)  # tells the width
        memory: Any = self.memory
        store = memory if isinstance(memory, VectorStore) else VectorStore(memory)
        width = len(next(iter(answers.values())))
        with closing(Vectors(store, f"TextEncoder {self.name}", width)) as stored:
            new = [text for text in texts if text not in answers]
            found, vectors, _ = stored.read(new, ["vector"])
            rows = np.flatnonzero(found)
            answers.update((new[row], vectors[row, 0].copy()) for row in rows)
            advance(len(rows))
            self._answer(texts, answers, advance, stored)

    def _answer(
        self,
        texts: list[str],
        answers: dict[str, np.ndarray],
        advance: Callable[..., None],
        stored: Vectors | None = None,
    ) -> None:
        """Add the model's vectors of texts that have none yet, batch by batch."""
        width = len(next(iter(answers.values()))) if answers else None
        new = [text for text in texts if text not in answers]
        for start in range(0, len(new), self.batch_size):
            batch = new[start : start + self.batch_size]
            vectors = self._ask(batch, width)
            width = vectors.shape[1]
            if stored is not None:
                counts = np.zeros((len(batch), 4), dtype=np.int32)
                stored.write(batch, ["vector"], vectors[:, None], counts)
            answers.update(zip(batch, vectors, strict=True))
            advance(len(batch))

    def _ask(self, texts: list[str], width: int | None) -> np.ndarray:
        """Vectors that the model gives some texts, checked."""
        encode = getattr(self.model, "encode", self.model)
        answer = encode(list(texts))
        try:
            answer = np.asarray(answer)
        except ValueError:  # rows of different lengths
            answer = np.asarray(answer, dtype=object)
        if (
            answer.ndim != 2
            or len(answer) != len(texts)
            or width not in (None, answer.shape[1])
        ):
            raise ValueError(
                f"The model {self.model!r:.80} gave an array of shape {answer.shape} for "
                f"{len(texts)} texts; it is to give one row a text, ({len(texts)}, "
                f"{width or 'n_features'}). Wrap it in a function that returns such an array."
            )
        if answer.dtype.kind not in "fiub":
            raise ValueError(
                f"The model {self.model!r:.80} gave an array of dtype {answer.dtype}; it is to "
                "give numbers. Wrap it in a function that returns a dense float array."
            )
        double = answer.dtype == np.float64 and self.memory is None  # a disk keeps float32
        answer = answer.astype(np.float64 if double else np.float32)
        if not (finite := np.isfinite(answer).all(axis=1)).all():
            raise ValueError(
                f"The model {self.model!r:.80} gave a vector that is not finite for the text "
                f"{texts[int(np.argmin(finite))]!r:.60}. Look at what it returns for that text."
            )
        return answer

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_n_features_out")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags


def as_encoder(model: Any, caller: str) -> Any:
    """Return a transformer of texts: the model itself, or what makes it one.

    A str or path is a model for `BertEncoder`; an estimator with ``fit`` and ``transform``
    stays what it is; other objects that encode, and functions, become a `TextEncoder`.
    """
    if isinstance(model, str | os.PathLike):
        return BertEncoder(model)
    if hasattr(model, "fit") and hasattr(model, "transform"):
        return model
    if hasattr(model, "encode") or callable(model):
        return TextEncoder(model)
    raise TypeError(
        f"{caller} got a {type(model).__name__}; it takes the folder or hub id of a model, a "
        "transformer of texts such as BertEncoder, an object with a method encode, or a "
        "function from a list of texts to an array."
    )
