"""A fitted pipeline, taken apart, and each run of linear steps as one map."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn import config_context
from sklearn.preprocessing import Normalizer
from sklearn.utils.validation import check_is_fitted

from skcalib.calibration import LinearMap
from skcalib.calibration.neighbors import NeighborSmoothing
from skcalib.calibration.step import flat, linear_map
from skcalib.encoders.bert_encoder import BertEncoder, backbone_of, for_export, recipe_of
from skcalib.encoders.recipe import Recipe
from skcalib.similarity.bi_encoder import BiEncoder

if TYPE_CHECKING:
    from skcalib.encoders.model.load import Backbone  # imports torch


TOO_LONG = 1024  # tokens: a longer limit is not tried, since such a text takes seconds


class Parts(NamedTuple):
    """The parts of a fitted pipeline, in the order of their use."""

    encoder: BertEncoder  # a copy that computes in float32, and keeps nothing on disk
    steps: tuple[Any, ...]  # copies that search exactly
    recipe: Recipe  # of the encoder

    def backbone(self) -> Backbone:
        """Return the loaded model."""
        return backbone_of(self.encoder)

    @property
    def is_unit(self) -> bool:
        """Whether the last step scales to unit length."""
        return bool(self.steps) and isinstance(self.steps[-1], Normalizer)


def take_apart(pipeline: Any) -> Parts:
    """Take a fitted pipeline, `BertEncoder` or `BiEncoder` apart.

    Searches, inner pipelines and ``FrozenEstimator`` are unpacked, "passthrough" is left out. A
    pipeline that is not fitted, does not begin with a `BertEncoder`, or has a step that no
    export knows raises an error.
    """
    pipeline = getattr(pipeline, "best_estimator_", pipeline)
    if isinstance(pipeline, BiEncoder):
        check_is_fitted(pipeline)
        pipeline = pipeline.encoder_
    encoder, *steps = [*flat(pipeline)] or [pipeline]
    if not isinstance(encoder, BertEncoder):
        raise TypeError(
            "An export needs a fitted pipeline that begins with a BertEncoder, not with a "
            f"{type(encoder).__name__}. Fit a search first. For a FeatureUnion, save each "
            "pipeline separately, and put their vectors side by side. For another model, "
            "export only the steps after it, by to_torch."
        )
    check_is_fitted(encoder)
    check_steps(steps)
    # The scaling of an encoder to unit length is one more step.
    scaling = (Normalizer(),) if encoder.normalize_ else ()
    encoder = for_export(encoder, normalize=False)
    return Parts(encoder, (*scaling, *map(_exact, steps)), recipe_of(encoder))


def _exact(step: Any) -> Any:
    """Return a copy that searches exactly, and knows no names of columns."""
    step = copy.copy(step)
    vars(step).pop("feature_names_in_", None)  # of the frames that `set_output` asked for
    if isinstance(step, NeighborSmoothing):
        step.neighbors_ = None
    return step


def fitted_steps(*steps: Any) -> list[Any]:
    """Return steps, and those of pipelines, all fitted and of a kind that exports know."""
    if not (flattened := [*flat(*steps)]):
        raise ValueError("Got no step; expected fitted steps, such as a Whitening.")
    check_steps(flattened)
    return flattened


def check_steps(steps: Sequence[Any]) -> None:
    """Raise an error unless all steps are fitted and of a kind that exports know."""
    for step in steps:
        check_is_fitted(step)
        linear_map(step)


def combined(steps: Sequence[Any]) -> list[Any]:
    """Return steps, with each run of linear steps combined into one map."""
    parts: list[Any] = []
    for step in steps:
        part = step if isinstance(linear := linear_map(step), str) else linear
        if isinstance(part, LinearMap) and parts and isinstance(parts[-1], LinearMap):
            part = parts.pop().then(part)
        parts.append(part)
    return parts


def not_linear(steps: Sequence[Any]) -> str:
    """Reason of the first step that no linear map can hold, or ""."""
    return next((reason for step in steps if isinstance(reason := linear_map(step), str)), "")


def apply(steps: Sequence[Any], vectors: Any) -> np.ndarray:
    """Transform vectors by fitted steps; return arrays, regardless of `set_output`."""
    with config_context(transform_output="default"):
        for step in steps:
            vectors = step.transform(np.asarray(vectors))
    return np.asarray(vectors)


def some_texts(parts: Parts) -> list[str]:
    """Texts of the model's own vocabulary, including an empty one and one that is too long."""
    tokens, most = parts.backbone().tokens, parts.recipe.max_length
    drawn = np.random.default_rng(0).choice(tokens.words, 2 * min(most, TOO_LONG))
    words = [drawn[i : i + min(n, most)] for i, n in enumerate((1, 3, 5, 8))]
    if most <= TOO_LONG:
        words.append(drawn)
    return ["", *map(tokens.tokenizer.decode, words)]


def probes(parts: Parts, without_token: bool) -> tuple[list[str], np.ndarray]:
    """Texts of `some_texts`, and their vectors by the pipeline, without windows.

    An empty one is among them if it has a token, such as [CLS], or ``without_token``.
    """
    from skcalib.encoders.model.forward import by_longest

    module, tokens = parts.backbone().module, parts.backbone().tokens
    fault = ""
    if by_longest(module):
        fault = "rope_type='longrope', by which the longest text of a batch changes the others"
    elif tokens.tokenizer.pad_token_id is None:
        fault = "a tokenizer without pad_token, which padded batches need"
    if fault:
        raise ValueError(
            f"This {type(module).__name__} has {fault}. Encode with the pipeline itself."
        )
    texts = some_texts(parts)
    if not (without_token or tokens.frame(parts.recipe.prompt).n):
        texts.remove("")
    encoder = for_export(parts.encoder, windows=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that these are cut off
        return texts, apply(parts.steps, encoder.transform(texts))
