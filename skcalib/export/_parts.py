"""A fitted pipeline, taken apart."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn import config_context
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils.validation import check_is_fitted

from skcalib._bi_encoder import BiEncoder
from skcalib._encoder.estimator import BertEncoder
from skcalib._encoder.recipe import Recipe
from skcalib._flow.estimator import NormalizingFlow
from skcalib._groups.estimator import GroupErasure
from skcalib._neighbors.estimator import NeighborSmoothing
from skcalib._scale.estimator import SimilarityScale
from skcalib._whitening.estimator import Whitening

if TYPE_CHECKING:
    from skcalib._encoder.backbone import Backbone  # imports torch

KNOWN = GroupErasure, Whitening, NormalizingFlow, NeighborSmoothing, Normalizer


class Parts(NamedTuple):
    """What a fitted pipeline does, in this order.

    Attributes
    ----------
    encoder : BertEncoder
        A copy that computes in float32, cuts texts off, and keeps nothing on disk.
    steps : tuple
        Each a `GroupErasure`, a `Whitening`, both combined, a `NormalizingFlow`, a
        `NeighborSmoothing` by exact search, or a ``Normalizer`` to unit length.
    fitted : tuple
        The same steps as they were fitted, none combined.
    similarity : str
        That of the `BiEncoder`; "cosine" if there is none.
    recipe : Recipe
        What the encoder does.
    """

    encoder: BertEncoder
    steps: tuple[Any, ...]
    fitted: tuple[Any, ...]
    similarity: str
    recipe: Recipe

    def transform(self, texts: list[str]) -> np.ndarray:
        """Vectors of the pipeline, of shape (n_texts, n_features)."""
        return apply(self.steps, self.encoder.transform(texts))

    def backbone(self) -> Backbone:
        """Return the loaded model."""
        return self.encoder._backbone()


def apply(steps: Sequence[Any], vectors: Any) -> np.ndarray:
    """Transform vectors by fitted steps, into arrays whatever `set_output` asks for."""
    with config_context(transform_output="default"):
        for step in steps:
            vectors = step.transform(np.asarray(vectors))
    return np.asarray(vectors)


def take_apart(pipeline: Any, caller: str) -> Parts:
    """Take a fitted pipeline, `BertEncoder` or `BiEncoder` apart.

    Inner pipelines and ``FrozenEstimator`` are unpacked, "passthrough" is left out. An error
    names the caller if the pipeline is not fitted, does not begin with a `BertEncoder`, or has
    a step that `Parts` does not list.
    """
    similarity = "cosine"
    if isinstance(pipeline, BiEncoder):
        check_is_fitted(pipeline)
        similarity, pipeline = pipeline.similarity, pipeline.encoder_
    encoder, *steps = [*_flat(pipeline)] or [None]
    if isinstance(encoder, FeatureUnion):
        raise TypeError(
            f"{caller} got a FeatureUnion: encoders side by side have a tokenizer each, but "
            "what it writes has one. Save each pipeline of the union on its own, and put their "
            "vectors side by side; a step behind the union has to_torch()."
        )
    if not isinstance(encoder, BertEncoder):
        raise TypeError(
            f"{caller} needs a fitted pipeline that begins with a BertEncoder, not with a "
            f"{type(encoder).__name__}. Of a search, pass best_estimator_. After another "
            "model, export the whitening: to_sentence_transformers(), to_torch(), to_faiss()."
        )
    for step in steps:
        if not isinstance(step, KNOWN):
            names = ", ".join(kind.__name__ for kind in KNOWN)
            raise TypeError(
                f"{caller} cannot export a {type(step).__name__}: after the BertEncoder it "
                f"accepts {names}, the last of scikit-learn."
            )
        if isinstance(step, Normalizer) and step.norm != "l2":
            raise ValueError(
                f"{caller} needs Normalizer(norm='l2'), not norm={step.norm!r}: other "
                "libraries scale to unit length."
            )
    for estimator in (encoder, *steps):
        check_is_fitted(estimator)
    steps = [copy.copy(step) for step in steps]
    for step in steps:
        vars(step).pop("feature_names_in_", None)  # of the frames that `set_output` asked for
        if isinstance(step, NeighborSmoothing):
            step.neighbors_ = None  # exports search exactly
    fitted = tuple(steps)
    for i in reversed(range(len(steps) - 1)):
        erasure, whitening = steps[i : i + 2]
        if isinstance(erasure, GroupErasure) and isinstance(whitening, Whitening):
            steps[i : i + 2] = [erasure.joined(whitening)]
    encoder = copy.copy(encoder).set_params(memory=None, verbose=False)
    recipe = replace(encoder._recipe, dtype="float32")
    encoder._recipe = replace(recipe, stride=None)
    return Parts(encoder, tuple(steps), fitted, similarity, recipe)


def take_apart_for_folder(pipeline: Any, caller: str, normalize: bool | None = None) -> Parts:
    """Take a pipeline apart for a folder of sentence-transformers.

    That library often computes cosines as inner products. So with ``normalize=None`` the
    pipeline ends with a `Normalizer` if the model's own folder ends with ``Normalize``.
    """
    parts = take_apart(pipeline, caller)
    if parts.similarity == "corrected":
        raise ValueError(
            f"{caller} got a BiEncoder with similarity='corrected', which "
            "sentence-transformers does not have. Pass the model's encoder_: its vectors are "
            "then compared by cosine."
        )
    path = parts.backbone().folder / "modules.json"
    modules = json.loads(path.read_text("utf-8")) if path.is_file() else []
    declares = bool(modules) and modules[-1]["type"].rpartition(".")[2] == "Normalize"
    if normalize is None and not (declares and parts.similarity == "cosine"):
        return parts
    if normalize is False or (parts.steps and isinstance(parts.steps[-1], Normalizer)):
        return parts
    last = (Normalizer(),)
    return parts._replace(steps=parts.steps + last, fitted=parts.fitted + last)


def prompt_of_queries(
    pipeline: Any, parts: Parts, caller: str, *, counts_skipped: bool = True
) -> str:
    """Prompt of the queries that `calibrate` was given, or of the texts if there are none.

    Queries must be encoded like the texts. They may skip another number of tokens only if the
    format counts these by the prompt.
    """
    if not hasattr(pipeline, "queries_"):
        return parts.recipe.prompt
    recipe = take_apart(pipeline.queries_, caller).recipe
    skip = parts.recipe.skip if counts_skipped else recipe.skip
    if replace(recipe, prompt=parts.recipe.prompt, skip=skip) != parts.recipe:
        raise ValueError(
            f"{caller} got queries that are encoded in another way than the documents, by "
            f"{recipe} instead of {parts.recipe}; it writes one encoder with two prompts. Save "
            "Pipeline(pipeline.steps) and pipeline.queries_ separately."
        )
    return recipe.prompt


def scale_as_json(scale: Any, caller: str) -> str | None:
    """Return the table of a fitted `SimilarityScale` in JSON, or None for None."""
    if scale is None:
        return None
    if not isinstance(scale, SimilarityScale):
        raise TypeError(
            f"{caller} got scale={scale!r:.40}; it expects a fitted SimilarityScale, or None."
        )
    return json.dumps(scale.to_dict())


def _flat(estimator: Any) -> Iterator[Any]:
    """Yield the steps of a pipeline and of those inside it."""
    if isinstance(estimator, FrozenEstimator):
        yield from _flat(estimator.estimator)
    elif isinstance(estimator, Pipeline):
        for _, step in estimator.steps:
            yield from _flat(step)
    elif estimator is not None and not isinstance(estimator, str):
        yield estimator


def some_texts(parts: Parts) -> list[str]:
    """Texts of the model's own vocabulary, an empty one among them."""
    backbone = parts.backbone()
    size = 4, min(8, parts.recipe.max_length)
    drawn = np.random.default_rng(0).choice(backbone.words, size)
    some = [ids[:n] for ids, n in zip(drawn, (1, 3, 5, 8), strict=True)]
    return ["", *map(backbone.tokenizer.decode, some)]


def probes(parts: Parts) -> tuple[list[str], np.ndarray]:
    """Texts of `some_texts`, and their vectors by the pipeline."""
    from skcalib._encoder.forward import by_longest

    backbone = parts.backbone()
    if by_longest(backbone.module):
        raise ValueError(
            "With rope_type='longrope' the longest text of a padded batch would change the "
            "vectors of the others. Encode with the pipeline itself."
        )
    pads = backbone.tokenizer.pad_token_id is not None
    if not (pads and backbone.tokenizer.num_special_tokens_to_add()):
        lacks = "special token in each text, even an empty one" if pads else "pad_token"
        raise ValueError(
            f"The tokenizer of this {type(backbone.module).__name__} has no {lacks}: padded "
            "batches could not hold all texts. Encode with the pipeline itself."
        )
    texts = some_texts(parts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that these are cut off
        return texts, parts.transform(texts)


def differs(parts: Parts, vectors: np.ndarray, expected: np.ndarray) -> bool:
    """Whether vectors differ from those of the pipeline by more than rounding.

    Exact whitening amplifies the float32 differences between forward passes. They may also
    decide which of two equally near texts is a neighbor: after a smoothing most vectors must
    be equal, not all.
    """
    typical = np.sqrt(np.mean(np.square(expected, dtype=np.float64)))
    difference = np.abs(vectors - expected).max(axis=1)
    smooths = any(isinstance(step, NeighborSmoothing) for step in parts.steps)
    return not (np.median if smooths else np.max)(difference) <= 1e-3 * typical


def not_linear(parts: Parts) -> str:
    """Name a step that no linear map can hold, and what to do about it."""
    for step in parts.steps:
        if isinstance(step, NormalizingFlow):
            return "a normalizing flow. Calibrate by Whitening(noise='auto')"
        if isinstance(step, NeighborSmoothing):
            return "NeighborSmoothing, a search among fitted vectors. Leave that step out"
    return ""
