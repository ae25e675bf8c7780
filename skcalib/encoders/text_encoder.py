"""TextEncoder: vectors of texts from any model, a function or an object with ``encode``."""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from skcalib.callbacks import fit_task
from skcalib.compat import HasMethods, Interval
from skcalib.encoders.lookup import Model, Records, WithMemory, vectors_of
from skcalib.encoders.recipe import Slots
from skcalib.encoders.store import VectorStore
from skcalib.inputs.texts import as_texts


class TextEncoder(WithMemory):
    """Encode texts with a model of another library, or with a function such as an API call.

    The model is assumed to be frozen. An encoder and its clones share it and call it once for
    each text. Recently used vectors stay in memory, up to 256 MiB for all encoders.

    Parameters
    ----------
    model : callable, or object with a method ``encode``
        Accepts a list of texts and returns an array of shape (n_texts, n_features): a function,
        a ``SentenceTransformer``, a ``StaticModel`` of model2vec.
    batch_size : int, default=1024
        Largest number of texts that the model gets at once.
    memory : None, path-like or VectorStore, default=None
        Folder or store that also keeps vectors on disk, so that other processes call the model
        for their first text only.
    name : str or None, default=None
        Name of the model in ``memory``, required there: two models of one name get each other's
        vectors. Give a new name whenever these change, as with a new version of an API.
    verbose : bool, default=False
        Show a progress bar.

    See Also
    --------
    BertEncoder : Encodes with chosen hidden states of a model in a folder or on the hub.

    Notes
    -----
    `CalibrationSearch` also encodes several fragments of each text, which an API charges for.

    Vectors are float64 if the model returns float64, otherwise float32; nothing is normalized.
    A pickle contains the model, which must be picklable, and no memory.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from skcalib import TextEncoder, Whitening
    >>> def letters(texts):
    ...     return np.array([[text.count(c) for c in "aeinorst"] for text in texts])
    >>> texts = ["a tin star", "nine notes", "as it is", "no iron stone rests", "seas", "toes"]
    >>> pipeline = make_pipeline(TextEncoder(letters), Whitening(2, power="auto"))
    >>> pipeline.fit_transform(texts).shape
    (6, 2)
    """

    _learned = ("_n_features_out",)
    _parameter_constraints = {
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
        # A deep copy of the model may fail, and would encode every text again.
        twin = type(self)(**self.get_params(deep=False))
        twin._shared = copy.copy(self._text_model())  # with a batch size of its own
        if hasattr(self, "_sklearn_output_config"):
            twin._sklearn_output_config = copy.copy(self._sklearn_output_config)
        if hasattr(self, "_skl_callbacks"):
            twin._skl_callbacks = self._skl_callbacks
        return twin

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {key: value for key, value in state.items() if key != "_shared"}

    @fit_task(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: None = None) -> Self:
        """Check the texts, and learn the width of the vectors from the first text.

        Parameters
        ----------
        X : list of str, 1-D or (n, 1) array, Series or one-column frame
        y : None
            Ignored.

        Returns
        -------
        self : TextEncoder
        """
        self._n_features_out = self._encode(as_texts(X)[:1], width=0, memory=None).shape[1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Encode texts.

        Parameters
        ----------
        X : list of str, 1-D or (n, 1) array, Series or one-column frame

        Returns
        -------
        vectors : ndarray of shape (n_texts, n_features), float32 or float64
        """
        check_is_fitted(self)
        return self._encode(as_texts(X), self._n_features_out, self.memory)

    def _text_model(self) -> TextModel:
        """Return the model, with what clones already know about it."""
        shared: TextModel | None = self.__dict__.get("_shared")
        # Under a new name it is a new model.
        if not shared or shared.model is not self.model or shared.name != self.name:
            shared = self._shared = TextModel(self.model, self.name)
        shared.batch_size = self.batch_size
        return shared

    def _encode(self, texts: list[str], width: int, memory: Any) -> np.ndarray:
        """Vectors of texts, of a known width or 0; the model gets each text once."""
        if isinstance(self.model, str):
            raise TypeError(
                f"model is the str {self.model!r:.80}; TextEncoder expects a function, or an "
                "object with a method encode. For a folder or hub id, use BertEncoder."
            )
        if self.memory is not None and not self.name:
            raise ValueError(
                "TextEncoder got memory but no name; it finds vectors on disk by the name of "
                "the model. Set a name, such as name='text-embedding-3-small'."
            )
        model = self._text_model()
        model.width = width
        verbose = self.verbose
        return vectors_of(texts, model, memory, lambda slots: slots[:, 0], verbose=verbose)[0]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_n_features_out")


class TextModel(Model):
    """The `Model` of `lookup` for a model of another library."""

    slots = Slots(["vector"], needed=[0])
    width = 0  # until a fit

    def __init__(self, model: Any, name: str | None):
        self.model, self.name = model, name
        self.key = object()  # the model itself would stay in memory

    def encode(self, texts: Sequence[str]) -> Iterator[Records]:
        """Encode the texts with the model, batch by batch."""
        for batch in gen_batches(len(texts), self.batch_size):
            vectors = self._ask(list(texts[batch]))
            rows = np.arange(batch.start, batch.stop)
            yield Records(rows, vectors[:, None], np.zeros((len(rows), 4), np.int32))

    def cause(self) -> str:
        """Explain why an entry may not be finite, and what to do."""
        return (
            f"the model {self.model!r:.80} returned it, or the dtype of the VectorStore cannot "
            "hold it. Check what the model returns for this text, or scale its vectors."
        )

    def _ask(self, texts: list[str]) -> np.ndarray:
        """Vectors that the model returns for some texts, checked."""
        model = self.model
        answer = getattr(model, "encode", model)(texts)
        if inspect.iscoroutine(answer):
            answer.close()
            raise TypeError(
                f"The model {model!r:.80} is asynchronous; expected a function that returns "
                "vectors. Wrap it, as in lambda texts: asyncio.run(model(texts))."
            )
        try:
            answer = np.asarray(answer)
        except ValueError:  # rows of different lengths
            answer = np.asarray(answer, dtype=object)
        is_right = answer.ndim == 2 and len(answer) == len(texts)
        is_right = is_right and answer.shape[1] == (self.width or answer.shape[1])
        if not is_right or answer.dtype.kind not in "fiub":
            raise ValueError(
                f"The model {model!r:.80} returned an array of shape {answer.shape} and dtype "
                f"{answer.dtype} for {len(texts)} texts; expected numbers, one row per text: "
                f"({len(texts)}, {self.width or 'n_features'}). Wrap the model in a function "
                "that returns this. If its width has changed, fit again, or create a new "
                "TextEncoder."
            )
        return answer.astype(np.float64 if answer.dtype == np.float64 else np.float32)
