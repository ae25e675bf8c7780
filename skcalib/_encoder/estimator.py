"""Sentences to vectors with a frozen BERT."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

from sklearn.utils.validation import check_is_fitted

from skcalib._base import warn
from skcalib._dask import is_dask, lazily
from skcalib._encoder.declared import Declared, declared, wants_prompt
from skcalib._encoder.recipe import Recipe
from skcalib._encoder.sources import store_of, vectors_of
from skcalib._machine.devices import resolve_device
from skcalib._sklearn_compat import Interval, StrOptions, _fit_context
from skcalib._store.store import POOLINGS, VectorStore
from skcalib._texts import TextTransformer, as_texts, in_blocks

if TYPE_CHECKING:
    from skcalib._encoder.backbone import Backbone

__all__ = ["BertEncoder", "resolve_layers"]

LAYER_NAMES = {
    "last": (-1,),
    "last2": (-2, -1),
    "first_last": (1, -1),
    "embedding_last": (0, -1),
}

# Texts of an iterator that are read and encoded together: some 2 MB of them, and enough for
# lengths to repeat.
STREAMED = 16384


class BertEncoder(TextTransformer):
    """Encode texts as vectors with a frozen BERT-like model.

    Hidden states of chosen layers are pooled over the tokens of each text. The model is not
    trained; `fit` checks texts and parameters, loads the model and remembers which one it
    was. Each process loads a model once, however many encoders and clones of them use it.

    Parameters
    ----------
    model : str, default="bert-base-uncased"
        Hub id, folder written by ``save_pretrained``, or "minilm", the model of the ``demo``
        extra. Weights must be safetensors; code that comes with a model is never run.
    pooling : {"auto", "cls", "mean", "max", "last", "mean_sqrt_len", "weighted_mean", \
            "zipf"}, default="auto"
        How the hidden states of a text's tokens become one vector: that of the first token
        ("cls") or of the last; their mean, maximum, or sum over the square root of their
        number; their mean weighted by position, 1 to n; or ("zipf") their mean weighted by
        ``log(1 + rank)`` of each token's rank by frequency (in the model's vocabulary, or by
        ``token_counts``), where special tokens weigh nothing. BERT's vectors are biased by word
        frequency [1]_; "zipf" lets frequent words say less. "auto" is the pooling that a folder
        of sentence-transformers declares, "mean" where none is; ``pooling_`` says which.
    layers : int, tuple of int or {"last", "last2", "first_last", "embedding_last"}, \
            default=-1
        Hidden states to use: 0 is the output of the embedding layer, 1 that of the first
        transformer block, and negative numbers count from the last. The names stand for
        ``(-1,)``, ``(-2, -1)``, ``(1, -1)`` and ``(0, -1)``.
    layer_merge : {"mean", "concat"}, default="mean"
        How pooled vectors of several layers become one: their mean, or side by side.
    special_tokens : bool, default=True
        Whether "mean", "max" and "mean_sqrt_len" include the special tokens around a text
        ([CLS] and [SEP] in BERT). A text without any other token is always pooled over
        them.
    prompt : str or None, default=None
        Text in front of each text, as "query: ". None is the default prompt that a folder of
        sentence-transformers declares, if any; "" is none; the name of a prompt that the folder
        declares is that prompt; and other text stands as it is. A folder may declare that the
        tokens of a prompt are not pooled (``include_prompt``); then none of a prompt's are.
    max_length : int or None, default=None
        Tokens kept of each text, those of the prompt and special ones included. Longer texts
        are cut off, with one warning. None keeps as many as the folder declares
        (``max_seq_length``), or else as the model has positions for.
    missing : {"error", "empty"}, default="error"
        Whether a missing text (None, NaN, NA of pandas) is an error or an empty text.
    batch_size : int or "auto", default="auto"
        Largest number of texts in a forward pass. "auto" goes by the number of tokens, and on
        CUDA by the memory of the GPU.
    device : str, default="auto"
        "cpu", "cuda", "cuda:1", "mps", or "auto": CUDA where there is one, else the CPU.
    dtype : {"float32", "bfloat16", "float16"}, default="float32"
        Precision of the forward pass. Hidden states are pooled in float32, and vectors are
        float32 always.
    revision : str or None, default=None
        Branch, tag or commit of a model on the hub.
    token_counts : mapping of str to number, list of str, or None, default=None
        Frequency of tokens for ``pooling="zipf"``, needed where the vocabulary is not sorted by
        frequency, as those of Chinese models: counts of tokens, or texts whose tokens are
        counted when the encoder is fitted.
    memory : None, path-like or VectorStore, default=None
        Where to keep vectors on disk, so that each text goes through the model once, ever:
        all layers under all poolings are kept per text, and any later choice of them, in
        any process, is read back. That takes 66 kB a text for MiniLM and 242 kB for BERT-base;
        ``VectorStore(folder, layers=..., pooling=..., dtype=...)`` keeps less. With or without
        one, the vectors used last stay in this process's memory, 256 MiB for all encoders.
    verbose : bool, default=False
        Show a progress bar.

    Attributes
    ----------
    layers_ : tuple of int
        Hidden states in use, counted from 0.
    pooling_ : str
        Pooling in use.
    prompt_ : str
        Text in front of each text; "" for none.
    max_length_ : int
        Most tokens of a text, special ones included.
    fingerprint_ : str
        SHA-256 of the files of the model's folder, without pages, pictures, code and weights in
        other formats. A fitted encoder refuses a model with another fingerprint.

    See Also
    --------
    Whitening : Makes the vectors isotropic.
    BiEncoder : Scores pairs of texts by the similarity of their vectors.

    Notes
    -----
    What a name such as "first-last-avg" means differs between reference codes; the user guide
    has a table of which hidden states each of them takes.

    Decoders, such as GPT-2, Llama or Qwen, are taken without their heads, and of T5 and its
    like the encoder. Other encoder-decoders, and models of images or sound, are refused.

    The vector of a text depends on the text alone, not on its neighbours or their order
    (to 1e-5). Each distinct text of a call is encoded once; of an iterator, each distinct text
    of 16,384 that it yields.

    References
    ----------
    .. [1] Li et al. (2020), "On the Sentence Embeddings from Pre-trained Language Models",
           EMNLP, arXiv:2011.05864.

    Examples
    --------
    >>> from skcalib import BertEncoder
    >>> from skcalib.datasets import minilm_path
    >>> encoder = BertEncoder(minilm_path(), layers="first_last")
    >>> encoder.fit_transform(["A man plays the flute.", "Snow fell all night."]).shape
    (2, 384)
    """

    _parameter_constraints: dict = {
        "model": [str, os.PathLike],
        "pooling": [StrOptions({"auto", *POOLINGS})],
        "layers": [Integral, tuple, list, StrOptions(set(LAYER_NAMES))],
        "layer_merge": [StrOptions({"mean", "concat"})],
        "special_tokens": ["boolean"],
        "prompt": [str, None],
        "max_length": [Interval(Integral, 1, None, closed="left"), None],
        "missing": [StrOptions({"error", "empty"})],
        "batch_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "device": [str],
        "dtype": [StrOptions({"float32", "bfloat16", "float16"})],
        "revision": [str, None],
        "token_counts": [Mapping, "array-like", None],
        "memory": [str, os.PathLike, VectorStore, None],
        "verbose": ["verbose"],
    }

    _recipe: Recipe

    _state_version = 3

    def __init__(
        self,
        model: str | os.PathLike = "bert-base-uncased",
        *,
        pooling: str = "auto",
        layers: int | Sequence[int] | str = -1,
        layer_merge: str = "mean",
        special_tokens: bool = True,
        prompt: str | None = None,
        max_length: int | None = None,
        missing: str = "error",
        batch_size: int | str = "auto",
        device: str = "auto",
        dtype: str = "float32",
        revision: str | None = None,
        token_counts: Mapping[str, float] | Sequence[str] | None = None,
        memory: Any = None,
        verbose: bool | int = False,
    ):
        self.model = model
        self.pooling = pooling
        self.layers = layers
        self.layer_merge = layer_merge
        self.special_tokens = special_tokens
        self.prompt = prompt
        self.max_length = max_length
        self.missing = missing
        self.batch_size = batch_size
        self.device = device
        self.dtype = dtype
        self.revision = revision
        self.token_counts = token_counts
        self.memory = memory
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: None = None) -> Self:
        """Check texts and parameters against the model, and remember the model.

        Parameters
        ----------
        X : list of str, 1-D or (n, 1) array, Series, one-column frame, or iterator
            Texts. They are not encoded yet, and an iterator is not read.
        y : None
            Ignored.

        Returns
        -------
        self : BertEncoder
            The fitted encoder.

        Raises
        ------
        OSError
            If the model is neither a folder, nor in the cache, nor on the hub.
        TypeError, ValueError
            If an entry of `X` is not a text, or a parameter does not fit the model.
        """
        self._checked(X)
        self.__dict__.pop("_recipe", None)  # an error below leaves nothing half-fitted
        backbone = self._load(self.dtype)
        weights = None
        if self.token_counts is not None:
            weights = backbone.weights_by(self.token_counts)
            backbone = backbone.with_zipf(weights)
        told = declared(backbone.folder)
        layers = resolve_layers(self.layers, backbone.n_layers)
        pooling = _resolve_pooling(self.pooling, told)
        prompt = told.prompt(self.prompt)
        if self.prompt is None and wants_prompt(self.model, backbone.folder, told):
            warn(
                f"The model {str(self.model)!r} is an e5 by name, trained with a prompt, and "
                "its folder declares none. Set prompt='query: ', 'passage: ' for documents of "
                "a search, or '' for none."
            )
        max_length = _resolve_max_length(self.max_length, backbone, told)
        if pooling == "zipf":
            _ = backbone.zipf  # refuses a vocabulary that is not sorted by frequency
        if pooling == "cls" and backbone.is_causal:
            warn(
                "pooling='cls' takes the first token of each text, which sees no other one in "
                "this model, a decoder. Set pooling='last' or 'mean'."
            )
        elif set(layers) == {0} and backbone.takes_mark(pooling):
            warn(
                f"pooling={pooling!r} with layers=0 gives every text the same vector, the "
                "embedding of a special token. Set layers=1 or more, or pooling='mean'."
            )
        concat = self.layer_merge == "concat"
        self._n_features_out = backbone.width * (len(layers) if concat else 1)
        self._recipe = Recipe(
            fingerprint=backbone.fingerprint,
            layers=layers,
            pooling=pooling,
            special_tokens=bool(self.special_tokens),
            layer_merge=self.layer_merge,
            prompt=prompt,
            skip=0 if told.include_prompt else backbone.prompt_length(prompt),
            max_length=max_length,
            dtype=self.dtype,
            token_weights=weights,
        )
        self.layers_, self.pooling_, self.prompt_ = layers, pooling, prompt
        self.max_length_, self.fingerprint_ = max_length, backbone.fingerprint
        return self

    def transform(self, X: Any) -> Any:
        """Encode texts.

        Parameters
        ----------
        X : list of str, 1-D or (n, 1) array, Series, one-column frame, or iterator
            Texts. An iterator, such as a generator, is read as the work goes on, so that
            its texts are never all in memory. Of dask, an array, Series, frame or Bag.

        Returns
        -------
        vectors : ndarray of shape (n_texts, n_features), float32
            One row per text; a lazy dask array for dask input, computed partition by
            partition by the workers, each of which loads the model once.

        Raises
        ------
        ValueError
            If the model is not the one the encoder was fitted with.
        """
        check_is_fitted(self)
        X = self._checked(X)
        if is_dask(X):
            fitted = copy(self)  # a fit between now and the computation changes nothing
            return lazily(fitted.transform, X, self._n_features_out)
        from skcalib._encoder.batches import BertModel

        recipe, caller = self._recipe, type(self).__name__
        if isinstance(X, Iterator):
            total, blocks = None, in_blocks(X, STREAMED, caller=caller, missing=self.missing)
        else:
            total, blocks = len(X), iter([X])
        if recipe.prompt:
            blocks = ([recipe.prompt + text for text in block] for block in blocks)
        store = store_of(self.memory)
        model = BertModel(self._backbone(), recipe, self.batch_size, store)
        vectors, counts = vectors_of(blocks, model, store, total=total, verbose=self.verbose)
        _warn_of_losses(counts.tolist(), len(vectors), recipe.max_length)
        return vectors

    def _checked(self, X: Any) -> Any:
        """Texts as a list; dask collections and iterators as they are."""
        is_lazy = is_dask(X) or isinstance(X, Iterator)
        return X if is_lazy else as_texts(X, caller=type(self).__name__, missing=self.missing)

    def _backbone(self) -> Backbone:
        """Return the model that this encoder was fitted with; refuse another one."""
        recipe = self._recipe
        backbone = self._load(recipe.dtype)
        if recipe.token_weights is not None:
            backbone = backbone.with_zipf(recipe.token_weights)
        if backbone.fingerprint != recipe.fingerprint:
            raise ValueError(
                f"The model {str(self.model)!r} has fingerprint {backbone.fingerprint[:12]}, "
                f"but this encoder was fitted with {recipe.fingerprint[:12]}: its files have "
                "changed, or `model` was set to another one. Restore the model, or fit again."
            )
        return backbone

    def _load(self, dtype: str) -> Backbone:
        import torch

        from skcalib._encoder.backbone import load
        from skcalib._encoder.model_files import locate

        folder = locate(os.fspath(self.model), self.revision)
        return load(folder, resolve_device(self.device), getattr(torch, dtype))

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        shown = super().__repr__(N_CHAR_MAX)
        if not self.__sklearn_is_fitted__():
            return shown
        taken = ("pooling_", "prompt_", "max_length_")  # where the folder decides
        return f"{shown}  # {', '.join(f'{name}={getattr(self, name)!r}' for name in taken)}"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_recipe")


def resolve_layers(layers: Any, n_layers: int) -> tuple[int, ...]:
    """Resolve `layers` to indices of hidden states, counted from 0."""
    indices = LAYER_NAMES.get(layers, layers) if isinstance(layers, str) else layers
    indices = (indices,) if isinstance(indices, Integral) else tuple(indices)
    if not indices or not all(isinstance(i, Integral) for i in indices):
        raise ValueError(
            f"layers={layers!r}; it takes an int, a tuple of one int or more, or one of "
            f"{sorted(LAYER_NAMES)}."
        )
    for i in indices:
        if not -n_layers - 1 <= i <= n_layers:
            raise ValueError(
                f"layers={layers!r} asks for hidden state {i}; this model has {n_layers} "
                f"layers, so its hidden states are 0 (embeddings) to {n_layers}, or "
                f"{-n_layers - 1} to -1 from the end."
            )
    return tuple(int(i) % (n_layers + 1) for i in indices)


def _warn_of_losses(counts: Sequence[int], n_texts: int, max_length: int) -> None:
    n_tokens, n_unknown, n_cut = counts
    if n_unknown > 0.1 * n_tokens:
        warn(
            f"{n_unknown / n_tokens:.0%} of the tokens are unknown to this "
            "model's vocabulary; texts that differ in them alone get nearly the same vector. "
            "Choose a model for the language of these texts."
        )
    if n_cut:
        warn(f"{n_cut} of {n_texts} texts were cut off at max_length={max_length} tokens.")


def _resolve_pooling(pooling: str, told: Declared) -> str:
    if pooling == "auto" and told.pooling not in POOLINGS:
        raise ValueError(
            f"The folder declares the pooling {told.pooling!r}; BertEncoder has {POOLINGS}. "
            "Pass one of them as pooling."
        )
    return told.pooling if pooling == "auto" else pooling


def _resolve_max_length(max_length: int | None, backbone: Backbone, told: Declared) -> int:
    # What a folder declares goes before the tokenizer's limit.
    shipped = min(told.max_length or backbone.max_length, backbone.n_positions)
    added = backbone.tokenizer.num_special_tokens_to_add()
    most, length = max(shipped, backbone.max_length), max_length or shipped
    if not added < length <= most:
        given = "" if max_length else " is declared by the folder (max_seq_length)"
        raise ValueError(
            f"max_length={length}{given}; this model takes {added + 1} to {most} tokens, its "
            f"{added} special ones included. Pass one of them as max_length."
        )
    return int(length)
