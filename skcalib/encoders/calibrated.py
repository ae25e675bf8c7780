"""A fitted encoder, followed by a fitted calibration."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_array

from skcalib.calibration.flow.estimator import NormalizingFlow
from skcalib.calibration.whitening.estimator import Whitening
from skcalib.encoders.any_encoder import as_encoder, encoded
from skcalib.encoders.content import without_content
from skcalib.utils.vectors import warn_of_silent

REPLACES_WHITENING = (Whitening, NormalizingFlow)  # an encoder with one of these is calibrated


def calibrated(
    encoder: Any,
    texts: list[str],
    *,
    alone: bool = False,
    power: Callable[[np.ndarray], float] | None = None,
) -> tuple[Pipeline, np.ndarray]:
    """Fit a clone of an encoder, and a whitening unless it has a calibration.

    Return both as a pipeline, and the vectors, which are zero for texts without content.
    ``alone`` allows texts that all have one vector. ``power`` gives that of the whitening, from
    which texts have content.
    """
    encoder, vectors, silent = fitted_encoder(encoder, texts)
    steps, content = [("encode", encoder)], vectors[~silent]
    is_one = not len(content) or (content == content[0]).all()
    if is_one and not alone:
        raise ValueError(
            f"Got n_samples={len(texts)} distinct texts, {len(content)} of them with content "
            "for the encoder; expected at least two with different vectors. Fit on more texts, "
            "better some hundred."
        )
    if not (is_one or calibrates(encoder)):
        chosen = "auto" if power is None else power(~silent)
        whitening = Whitening(noise="auto", power=chosen).fit(content)
        with config_context(transform_output="default"):
            steps, vectors = [*steps, ("calibrate", whitening)], whitening.transform(vectors)
    return Pipeline(steps), np.where(silent[:, None], 0, vectors)


def fitted_encoder(encoder: Any, texts: list[str]) -> tuple[Any, np.ndarray, np.ndarray]:
    """Fit a clone of an encoder; return it, float64 vectors, and which have no content."""
    encoder = clone(as_encoder(encoder))
    vectors = encoded(encoder, texts) if is_frozen(encoder) else encoder.fit_transform(texts)
    name = "vectors of the encoder"
    vectors = check_array(vectors, dtype=np.float64, input_name=name)
    silent = without_content(encoder, texts, vectors)
    warn_of_silent(silent, texts)
    return encoder, vectors, silent


def content_vectors(encoder: Any, texts: list[str]) -> np.ndarray:
    """Return the vectors of texts in float64, zero for texts without content."""
    vectors = encoded(encoder, texts).astype(np.float64)
    vectors[without_content(encoder, texts, vectors)] = 0
    return vectors


def is_frozen(encoder: Any) -> bool:
    """Whether a fit changes nothing, as for a ``FrozenEstimator``."""
    return not hasattr(encoder, "fit_transform")


def calibrates(encoder: Any) -> bool:
    """Whether an encoder is a calibration, or a pipeline that has one at any depth."""
    inner = getattr(encoder, "estimator", encoder)  # of a FrozenEstimator
    steps = [step for _, step in getattr(inner, "steps", [])]
    return isinstance(inner, REPLACES_WHITENING) or any(map(calibrates, steps))
