"""A fitted pipeline, taken apart, and each run of linear steps as one map."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn import config_context
from sklearn.preprocessing import Normalizer
from sklearn.utils.validation import check_is_fitted

from skcalib.calibration import LinearMap
from skcalib.calibration.map import flat, linear_map
from skcalib.calibration.neighbors import NeighborSmoothing
from skcalib.encoders.bert_encoder import BertEncoder, backbone_of, for_export, recipe_of
from skcalib.encoders.recipe import Recipe
from skcalib.similarity.bi_encoder import BiEncoder

if TYPE_CHECKING:
    from skcalib.encoders.model.load import Backbone  # imports torch


class Parts(NamedTuple):
    """The parts of a fitted pipeline, in the order of their use."""

    encoder: BertEncoder  # a copy that computes in float32, and keeps nothing on disk
    steps: tuple[Any, ...]  # copies that search exactly
    recipe: Recipe  # of the encoder

    def backbone(self) -> Backbone:
        """Return the loaded model."""
        return backbone_of(self.encoder)


def take_apart(pipeline: Any) -> Parts:
    """Take a fitted pipeline, `BertEncoder` or `BiEncoder` apart; refuse any other."""
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
