"""The one table of calibrators; and an encoder with a calibration behind it, both fitted."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.validation import check_array

from skcalib.calibration.flow.estimator import NormalizingFlow
from skcalib.calibration.groups.estimator import GroupErasure
from skcalib.calibration.whitening.estimator import Whitening
from skcalib.encoders.any_encoder import as_encoder


class Calibrator(NamedTuple):
    """What the commands know of a calibrator."""

    make: Callable[..., Any]
    kind: tuple[type, ...] = ()  # its class: an encoder that ends with one is calibrated
    options: tuple[str, ...] = ()  # of the command: its parameters, each a list to try
    needs: str = ""  # an option of the command that it is of no use without


CALIBRATORS = {
    "raw": Calibrator(lambda: "passthrough"),
    "whitening": Calibrator(Whitening, (Whitening,), ("n_components", "noise", "shrinkage")),
    "flow": Calibrator(partial(NormalizingFlow, random_state=0), (NormalizingFlow,)),
    "search": Calibrator(
        lambda: make_pipeline(GroupErasure(), Whitening(noise="auto")), needs="retrieval"
    ),
}
KINDS = tuple(kind for how in CALIBRATORS.values() for kind in how.kind)


def calibrated(encoder: Any, texts: list[str]) -> tuple[Pipeline, np.ndarray]:
    """Fit a clone of an encoder, and a whitening unless it calibrates; return vectors too."""
    encoder, vectors = fitted_encoder(encoder, texts)
    steps = [("encode", encoder)]
    if not calibrates(encoder):
        steps.append(("calibrate", Whitening(noise="auto").fit(vectors)))
        vectors = steps[-1][1].transform(vectors)
    return Pipeline(steps), vectors


def fitted_encoder(encoder: Any, texts: list[str]) -> tuple[Any, np.ndarray]:
    """Fit a clone of an encoder; return it, and the vectors of the texts in float64."""
    encoder = clone(as_encoder(encoder))
    vectors = encoder.transform(texts) if is_frozen(encoder) else encoder.fit_transform(texts)
    name = "vectors of the encoder"
    return encoder, check_array(vectors, dtype=np.float64, input_name=name)


def is_frozen(encoder: Any) -> bool:
    """Whether a fit changes nothing, as of a ``FrozenEstimator``."""
    return not hasattr(encoder, "fit_transform")


def calibrates(encoder: Any) -> bool:
    """Whether it is a calibration, or a pipeline that has one, at any depth."""
    inner = getattr(encoder, "estimator", encoder)  # of a FrozenEstimator
    steps = [step for _, step in getattr(inner, "steps", [])]
    return isinstance(inner, KINDS) or any(map(calibrates, steps))
