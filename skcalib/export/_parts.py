"""A fitted pipeline, taken apart."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils.validation import check_is_fitted

from skcalib._bi_encoder import BiEncoder
from skcalib._encoder.estimator import BertEncoder
from skcalib._encoder.recipe import Recipe
from skcalib._scale.estimator import SimilarityScale
from skcalib.export._steps import apply, check_step, ends_at_unit_length, for_export, joined

if TYPE_CHECKING:
    from skcalib._encoder.backbone import Backbone  # imports torch


class Parts(NamedTuple):
    """What a fitted pipeline does, in this order."""

    encoder: BertEncoder  # a copy that computes in float32, cuts off, and keeps nothing on disk
    steps: tuple[Any, ...]  # an erasure and the whitening after it combined, see `_steps`
    fitted: tuple[Any, ...]  # the same, none combined
    similarity: str  # of the `BiEncoder`; "cosine" if there is none
    recipe: Recipe  # of the encoder as it was fitted, but in float32

    def transform(self, texts: list[str]) -> np.ndarray:
        """Vectors of the pipeline, of shape (n_texts, n_features)."""
        return apply(self.steps, self.encoder.transform(texts))

    def backbone(self) -> Backbone:
        """Return the loaded model."""
        return self.encoder._backbone()


def take_apart(pipeline: Any, caller: str) -> Parts:
    """Take a fitted pipeline, `BertEncoder` or `BiEncoder` apart.

    Inner pipelines and ``FrozenEstimator`` are unpacked, "passthrough" is left out. An error
    names the caller if the pipeline is not fitted, does not begin with a `BertEncoder`, or has
    a step that `_steps` does not know.
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
        check_step(step, caller)
    for estimator in (encoder, *steps):
        check_is_fitted(estimator)
    fitted = tuple(map(for_export, steps))
    encoder = copy.copy(encoder).set_params(memory=None, verbose=False)
    recipe = replace(encoder._recipe, dtype="float32")
    encoder._recipe = replace(recipe, stride=None)
    return Parts(encoder, joined(fitted), fitted, similarity, recipe)


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
    if normalize is False or ends_at_unit_length(parts.steps):
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
