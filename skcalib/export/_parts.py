"""A fitted pipeline, taken apart."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils.validation import check_is_fitted

from skcalib._bi_encoder import BiEncoder
from skcalib._encoder.estimator import BertEncoder
from skcalib._encoder.recipe import Recipe
from skcalib._flow.estimator import NormalizingFlow
from skcalib._groups.estimator import GroupErasure
from skcalib._neighbors.estimator import NeighborSmoothing
from skcalib._whitening.estimator import Whitening

if TYPE_CHECKING:
    from skcalib._encoder.backbone import Backbone  # imports torch

KNOWN = GroupErasure, Whitening, NormalizingFlow, NeighborSmoothing, Normalizer

__all__ = [
    "Parts",
    "apply",
    "differs",
    "not_linear",
    "probes",
    "prompt_of_queries",
    "take_apart",
    "take_apart_for_folder",
]


class Parts(NamedTuple):
    """What a fitted pipeline does, in this order.

    Attributes
    ----------
    encoder : BertEncoder
        A copy that computes in float32 and keeps nothing on disk.
    steps : tuple
        Each a `GroupErasure`, a `Whitening`, both joined, a `NormalizingFlow`, a
        `NeighborSmoothing` by exact search, or a ``Normalizer`` to unit length.
    fitted : tuple
        The same steps as they were fitted, where a `GroupErasure` stands alone.
    similarity : str
        That of the `BiEncoder`; "cosine" where there is none.
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
    """Transform vectors by fitted steps, arrays whatever `set_output` says."""
    for step in steps:
        vectors = step.transform(np.asarray(vectors))
    return np.asarray(vectors)


def take_apart(pipeline: Any, caller: str) -> Parts:
    """Take a fitted pipeline, `BertEncoder` or `BiEncoder` apart.

    Inner pipelines and ``FrozenEstimator`` are followed, "passthrough" is left out. Refuse, in
    the name of the caller, what is not fitted, begins with no `BertEncoder`, or has a step that
    is none of those of `Parts`.
    """
    similarity = "cosine"
    if isinstance(pipeline, BiEncoder):
        check_is_fitted(pipeline)
        similarity, pipeline = pipeline.similarity, pipeline.encoder_
    encoder, *steps = [*_flat(pipeline)] or [None]
    if not isinstance(encoder, BertEncoder):
        raise TypeError(
            f"{caller} takes a fitted pipeline that begins with a BertEncoder, not with a "
            f"{type(encoder).__name__}. Of a search, pass best_estimator_. Behind another "
            "model, export the whitening: to_sentence_transformers(), to_torch(), to_faiss()."
        )
    for step in steps:
        if not isinstance(step, KNOWN):
            names = ", ".join(kind.__name__ for kind in KNOWN)
            raise TypeError(
                f"{caller} knows no {type(step).__name__}: after the BertEncoder it takes "
                f"{names}, the last of scikit-learn."
            )
        if isinstance(step, Normalizer) and step.norm != "l2":
            raise ValueError(
                f"{caller} takes Normalizer(norm='l2'), not norm={step.norm!r}: other "
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
    encoder._recipe = replace(encoder._recipe, dtype="float32")
    return Parts(encoder, tuple(steps), fitted, similarity, encoder._recipe)


def take_apart_for_folder(pipeline: Any, caller: str) -> Parts:
    """Take a pipeline apart for a folder of sentence-transformers.

    Cosines are often computed as inner products there: where the model's own folder ends with
    unit length, so does this pipeline.
    """
    parts = take_apart(pipeline, caller)
    if parts.similarity == "corrected":
        raise ValueError(
            f"{caller} writes the vectors of a BiEncoder and the name of their similarity; "
            "sentence-transformers knows none like 'corrected'. Pass the model's encoder_: its "
            "vectors are compared by cosine there."
        )
    path = parts.backbone().folder / "modules.json"
    modules = json.loads(path.read_text("utf-8")) if path.is_file() else []
    declares = bool(modules) and modules[-1]["type"].rpartition(".")[2] == "Normalize"
    if not declares or parts.similarity != "cosine":
        return parts
    if parts.steps and isinstance(parts.steps[-1], Normalizer):
        return parts
    last = (Normalizer(),)
    return parts._replace(steps=parts.steps + last, fitted=parts.fitted + last)


def prompt_of_queries(
    pipeline: Any, parts: Parts, caller: str, *, counts_skipped: bool = True
) -> str:
    """Prompt of the queries that `calibrate` was given; that of the texts where there are none.

    Queries that are encoded in another way are refused, also those that skip another number of
    tokens unless the format counts them by the prompt.
    """
    if not hasattr(pipeline, "queries_"):
        return parts.recipe.prompt
    recipe = take_apart(pipeline.queries_, caller).recipe
    skip = parts.recipe.skip if counts_skipped else recipe.skip
    if replace(recipe, prompt=parts.recipe.prompt, skip=skip) != parts.recipe:
        raise ValueError(
            f"{caller} got queries that are encoded in another way than the documents, "
            f"{recipe} beside {parts.recipe}; it writes one encoder, for two prompts. Save "
            "Pipeline(pipeline.steps) and pipeline.queries_, each on its own."
        )
    return recipe.prompt


def _flat(estimator: Any) -> Iterator[Any]:
    """Yield the steps of a pipeline and of those inside it."""
    if isinstance(estimator, FrozenEstimator):
        yield from _flat(estimator.estimator)
    elif isinstance(estimator, Pipeline):
        for _, step in estimator.steps:
            yield from _flat(step)
    elif estimator is not None and not isinstance(estimator, str):
        yield estimator


def probes(parts: Parts) -> tuple[list[str], np.ndarray]:
    """Texts of the model's own vocabulary, an empty one among them, and their vectors."""
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
    drawn = np.random.default_rng(0).choice(
        backbone.words, (4, min(8, parts.recipe.max_length))
    )
    some = [ids[:n] for ids, n in zip(drawn, (1, 3, 5, 8), strict=True)]
    texts = ["", *map(backbone.tokenizer.decode, some)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that these are cut off
        return texts, parts.transform(texts)


def differs(parts: Parts, vectors: np.ndarray, expected: np.ndarray) -> bool:
    """Whether vectors differ from those of the pipeline by more than rounding.

    Exact whitening amplifies the float32 differences between a forward pass and another. They
    may also decide which of two texts is a neighbour that are equally near: behind a smoothing
    most vectors are to be equal, not all.
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
