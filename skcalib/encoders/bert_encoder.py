"""BertEncoder: vectors of texts from a frozen BERT-like model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from importlib.metadata import version
from numbers import Integral
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self

from sklearn.utils.validation import check_is_fitted

from skcalib.base import import_package, warn
from skcalib.callbacks import fit_task
from skcalib.compat import Interval, StrOptions
from skcalib.encoders.lookup import WithMemory, vectors_of
from skcalib.encoders.model.declared import declared, wants_prompt
from skcalib.encoders.model.folder import CONFIG, entries, locate
from skcalib.encoders.recipe import AMBIGUOUS, LAYER_NAMES, PAPERS, POOLINGS, Recipe, recipe_for
from skcalib.encoders.store import VectorStore
from skcalib.inputs.texts import as_texts
from skcalib.process.devices import device_of_fitted

if TYPE_CHECKING:
    from skcalib.encoders.model.load import Backbone


class BertEncoder(WithMemory):
    """Encode texts as vectors with a frozen BERT-like model.

    The hidden states of the chosen layers are pooled over the tokens of each text. `fit` trains
    nothing. A process loads each model once; all encoders and their clones share it.

    Models that were trained for similarity, such as all-MiniLM or e5, return vectors whose
    cosines can be used as they are. BERT, GPT, Llama and others that only predict words do not,
    nor do inner layers: calibrate these, for instance by a `Whitening`.

    Parameters
    ----------
    model : str, default="bert-base-uncased"
        Hub id, folder written by ``save_pretrained``, or "minilm", the model of the ``demo``
        extra. "id@revision" is a branch, tag or commit of a model on the hub. Weights must be
        safetensors; code that comes with a model is never run.
    pooling : {"auto", "cls", "mean", "mean_own", "max", "max_own", "last", \
            "mean_without_first", "weighted_mean", "zipf"}, default="auto"
        How the hidden states of a text's tokens become one vector. "cls" is the first token,
        "last" the last one. "mean" and "max" are over all tokens, "mean_own" and "max_own"
        without special ones. "mean_without_first" is for inner layers of decoders, where "mean"
        is nearly the first token alone [2]_. "weighted_mean" weights tokens by position, "zipf"
        by ``log(1 + rank)`` of their frequency in a sorted vocabulary [1]_. "auto" is what a
        folder of sentence-transformers declares, or else "mean". The papers' "CLS" and "avg"
        are "cls" and "mean".
    layers : int, tuple of int or {"last", "last2", "first_last", "embedding_last"}, \
            default=-1
        Hidden states to use: 0 is the output of the embedding layer, 1 that of the first
        transformer block, and negative numbers count from the last. The names stand for
        ``(-1,)``, ``(-2, -1)``, ``(1, -1)`` and ``(0, -1)``. The papers' "first-last-avg" is
        "first_last".
    layer_merge : {"mean", "concat"}, default="mean"
        How the pooled vectors of several layers become one: their mean or concatenation.
    prompt : str or None, default=None
        Words to put before each text, such as "query: ", or around it, where ``{text}`` stands
        for the text; or the name of a prompt that a folder of sentence-transformers declares.
        None uses its default prompt, if any, and "" none. The tokens of the prompt are pooled
        unless the folder declares ``include_prompt`` as false; they are never cut. With
        ``{text}`` twice, only the second is pooled: a decoder reads it after the first [3]_.
    max_length : int or None, default=None
        Largest number of tokens per text or window, with prompt and special tokens. None uses
        what the folder declares (``max_seq_length``), or else the positions of the model.
    truncate_dim : int or None, default=None
        Number of leading dimensions to keep of each layer, for a model that was trained for it
        ("Matryoshka"). None keeps those that the folder declares, or else all.
    normalize : bool or "auto", default="auto"
        Whether vectors are scaled to unit length. "auto" does it if the folder declares it (a
        module ``Normalize``) for these `layers` and this `pooling`.
    overflow : {"cut", "cut_left", "cut_right", "windows"}, default="cut"
        How to encode a text of more than ``max_length`` tokens. "cut_right" keeps its
        beginning, "cut_left" its end, and "cut" is what the folder declares; they warn once.
        "windows" encodes all of it and pools over its windows: means weight each window by its
        tokens, "cls" weights them equally, and "last" is that of the last window.
    device : str, default="auto"
        "cpu", "cuda", "cuda:1", "mps", or "auto": CUDA if it works, otherwise the CPU. A fitted
        encoder is used on the CPU where its device is missing.
    dtype : {"float32", "bfloat16", "float16"}, default="float32"
        Precision of the forward pass. Hidden states are pooled in float32, and vectors are
        always float32.
    memory : None, path-like or VectorStore, default=None
        Cache of vectors: a folder on a local disk, or a store. Each text goes through the model
        once, and an interrupted run resumes. It keeps all layers and poolings of a text, 66 kB
        with MiniLM; a `VectorStore` can keep fewer. The pickle of a fitted encoder has none. In
        any case 256 MiB of recently used vectors stay in this process, for all encoders.
    verbose : bool, default=False
        Show a progress bar.

    Attributes
    ----------
    layers_ : tuple of int
        Hidden states in use, counted from 0.
    pooling_ : str
        Pooling in use.
    normalize_ : bool
        Whether vectors have unit length.
    prompt_ : str
        Words before each text, or around ``{text}``; "" for none.
    max_length_ : int
        Largest number of tokens per text, including special tokens.
    declared_ : Declared
        What the model's folder declares, a named tuple, such as ``pooling``, ``normalizes``,
        ``prompts`` by name, ``default_prompt_name`` and ``max_length``.
    fingerprint_ : str
        SHA-256 of the files that determine vectors. A fitted encoder refuses a model with
        another one, and a release of transformers that splits texts into other tokens.

    See Also
    --------
    Whitening : Spreads the vectors evenly in all directions.
    BiEncoder : Scores pairs of texts by the similarity of their vectors.

    Notes
    -----
    Decoders, such as GPT-2, Llama or Qwen, are used without their heads. Of T5 and its variants
    only the encoder is used. Other encoder-decoders and models of images or sound are refused.

    The vector of a text depends on that text only, not on the other texts or their order (to
    1e-5). Texts are composed first (Unicode's NFC), so that canonically equal texts have one
    vector. Each distinct text of a call is encoded once.

    References
    ----------
    .. [1] Li et al. (2020), "On the Sentence Embeddings from Pre-trained Language Models",
           EMNLP, arXiv:2011.05864.
    .. [2] Sun et al. (2024), "Massive Activations in Large Language Models", COLM,
           arXiv:2402.17762.
    .. [3] Springer et al. (2024), "Repetition Improves Language Model Embeddings",
           arXiv:2402.15449.

    Examples
    --------
    >>> from skcalib import BertEncoder
    >>> from skcalib.datasets import minilm_path
    >>> encoder = BertEncoder(minilm_path(), layers="first_last")
    >>> encoder.fit_transform(["A man plays the flute.", "Snow fell all night."]).shape
    (2, 384)
    """

    _parameter_constraints = {
        "model": "no_validation",  # `fit` names the estimator for other models
        "pooling": [StrOptions({"auto", *POOLINGS, *PAPERS})],
        "layers": [
            Interval(Integral, None, None, closed="neither"),
            tuple,
            list,
            range,
            StrOptions({*AMBIGUOUS, *LAYER_NAMES}),  # its error says what is meant
        ],
        "layer_merge": [StrOptions({"mean", "concat"})],
        "prompt": [str, None],
        "max_length": [Interval(Integral, 1, None, closed="left"), None],
        "truncate_dim": [Interval(Integral, 1, None, closed="left"), None],
        "normalize": ["boolean", StrOptions({"auto"})],
        "overflow": [StrOptions({"cut", "cut_left", "cut_right", "windows"})],
        "device": [str],
        "dtype": [StrOptions({"float32", "bfloat16", "float16"})],
        "memory": [str, os.PathLike, VectorStore, None],
        "verbose": ["verbose"],
    }

    _state_version = 12
    _learned = ("_recipe",)

    def __init__(
        self,
        model: str | os.PathLike = "bert-base-uncased",
        *,
        pooling: str = "auto",
        layers: int | Sequence[int] | str = -1,
        layer_merge: str = "mean",
        prompt: str | None = None,
        max_length: int | None = None,
        truncate_dim: int | None = None,
        normalize: bool | str = "auto",
        overflow: str = "cut",
        device: str = "auto",
        dtype: str = "float32",
        memory: str | os.PathLike | VectorStore | None = None,
        verbose: bool | int = False,
    ):
        self.model = model
        self.pooling = pooling
        self.layers = layers
        self.layer_merge = layer_merge
        self.prompt = prompt
        self.max_length = max_length
        self.truncate_dim = truncate_dim
        self.normalize = normalize
        self.overflow = overflow
        self.device = device
        self.dtype = dtype
        self.memory = memory
        self.verbose = verbose

    @fit_task(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: None = None) -> Self:
        """Check texts and parameters against the model, and remember the model.

        Parameters
        ----------
        X : list of str, 1-D or (n, 1) array, Series, or one-column frame
            Texts. They are not encoded yet.
        y : None
            Ignored.

        Returns
        -------
        self : BertEncoder

        Raises
        ------
        OSError
            If the model is neither a folder, nor in the cache, nor on the hub.
        TypeError, ValueError
            If an entry of `X` is not a text, or a parameter does not fit the model.
        """
        as_texts(X)  # for its errors
        load = import_package("torch transformers", "skcalib.encoders.model.load").load
        folder = locate(self.model)
        config = entries(folder, CONFIG)
        shipped = declared(folder)
        backbone = load(folder, self.device, self.dtype)
        if self.prompt is None and wants_prompt(self.model, config, shipped):
            warn(
                f"The model {str(self.model)!r} is an e5 by name and needs a prompt, but its "
                "folder declares none. Set prompt='query: ', or 'passage: ' for documents of a "
                "search; '' uses none."
            )
        recipe = recipe_for(self, backbone, shipped)
        self.declared_, self._recipe = shipped, recipe
        return self

    def transform(self, X: Any) -> Any:
        """Encode texts.

        Parameters
        ----------
        X : list of str, 1-D or (n, 1) array, Series, or one-column frame
            Texts.

        Returns
        -------
        vectors : ndarray of shape (n_texts, n_features), float32
            One row per text.

        Raises
        ------
        ValueError
            If the model is not the one the encoder was fitted with.
        """
        check_is_fitted(self)
        from skcalib.encoders.model.batches import BackboneModel

        texts, recipe = as_texts(X), self._recipe
        model = BackboneModel(backbone_of(self), recipe)
        vectors, counts = vectors_of(
            texts, model, self.memory, recipe.merge, verbose=self.verbose
        )
        _warn_of_losses(counts.tolist(), len(vectors), recipe.max_length)
        return vectors

    layers_ = property(attrgetter("_recipe.layers"), doc="Hidden states, counted from 0.")
    pooling_ = property(attrgetter("_recipe.pooling"), doc="Pooling in use.")
    normalize_ = property(attrgetter("_recipe.normalize"), doc="Whether lengths are 1.")
    prompt_ = property(attrgetter("_recipe.prompt"), doc="Words before or around a text.")
    max_length_ = property(attrgetter("_recipe.max_length"), doc="Most tokens of a text.")
    fingerprint_ = property(attrgetter("_recipe.fingerprint"), doc="SHA-256 of the model.")
    _n_features_out = property(attrgetter("_recipe.n_features"))


def recipe_of(fitted: BertEncoder) -> Recipe:
    """Return how a fitted encoder turns texts into vectors."""
    return fitted._recipe


def backbone_of(fitted: BertEncoder) -> Backbone:
    """Return the loaded model of a fitted encoder; refuse another one."""
    from skcalib.encoders.model.load import load

    recipe = fitted._recipe
    backbone = load(locate(fitted.model), str(device_of_fitted(fitted.device)), recipe.dtype)
    if backbone.fingerprint != recipe.fingerprint:
        raise ValueError(
            f"The model {str(fitted.model)!r} has fingerprint {backbone.fingerprint[:12]}, "
            f"but this encoder was fitted with {recipe.fingerprint[:12]}: its files have "
            "changed, or `model` was set to another one. Restore the model, or fit again."
        )
    if backbone.tokens.reading != recipe.reading:
        raise ValueError(
            f"The installed transformers {version('transformers')} splits texts into other "
            "tokens than the release with which this encoder was fitted, so all vectors "
            "would differ. Install that release, or fit again."
        )
    return backbone


def for_export(fitted: BertEncoder, **changes: Any) -> BertEncoder:
    """Return a copy in float32 that keeps nothing on disk, with changes to its recipe."""
    other = copy(fitted).set_params(memory=None, verbose=False)
    other._recipe = replace(fitted._recipe, dtype="float32", **changes)
    return other


def _warn_of_losses(counts: Sequence[int], n_texts: int, max_length: int) -> None:
    """Warn of cut and unknown texts."""
    n_tokens, n_unknown, n_cut = counts
    if n_unknown > 0.1 * n_tokens:
        warn(
            f"{n_unknown / n_tokens:.0%} of the tokens are unknown to this "
            "model's vocabulary; texts that differ only in these get nearly the same vector. "
            "Choose a model for the language of these texts."
        )
    if n_cut:
        warn(
            f"{n_cut} of {n_texts} texts were cut off at max_length={max_length} tokens. "
            "Set overflow='windows' to encode them whole."
        )
