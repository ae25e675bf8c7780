"""From questions to the vectors that are stored, and to the vectors of a search."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn import config_context
from sklearn.pipeline import Pipeline

from skcalib.calibration.neighbors.estimator import NeighborSmoothing
from skcalib.encoders.calibrated import (
    calibrated,
    calibrates,
    content_vectors,
    fitted_encoder,
    is_frozen,
)
from skcalib.utils.base import warn
from skcalib.utils.vectors import unit_rows, warn_of_silent


@dataclass(frozen=True)
class Calibration:
    """A fitted encoder, and a smoothing toward the questions of a log, if there is one."""

    encoder: Pipeline
    smoothing: NeighborSmoothing | None

    @classmethod
    def fitted(
        cls, encoder: Any, stored: list[str], log: set[str] | None
    ) -> tuple[Self, np.ndarray]:
        """Fit on the log, or only the encoder on the stored questions; also return vectors.

        The log has no stored question, because a question of the fit would lie farther from
        others than a new one.
        """
        if log is None:
            encoder, vectors, silent = fitted_encoder(encoder, stored)
            if calibrates(encoder) and not is_frozen(encoder):
                warn(
                    "The encoder is calibrated on the stored questions, so they lie farther "
                    "apart than new ones, and false positives may be more frequent than "
                    "false_positive_rate. Give a log, or a FrozenEstimator of a pipeline that "
                    "was fitted on other questions."
                )
            pipeline = Pipeline([("encode", encoder)])
            vectors = unit_rows(np.where(silent[:, None], 0, vectors))[0]
            return cls(pipeline, None), vectors.astype(np.float32)
        if len(log) < 2:
            raise ValueError(
                f"log has {len(log)} distinct questions besides those stored or unanswerable; "
                "expected two or more, better some hundred. Add questions, or leave out log."
            )
        pipeline, vectors = calibrated(encoder, sorted(log))
        fitted = cls(pipeline, NeighborSmoothing().fit(vectors[vectors.any(axis=1)]))
        vectors = fitted.vectors(stored)
        warn_of_silent(~vectors.any(axis=1), stored)
        return fitted, vectors

    def vectors(self, texts: list[str]) -> np.ndarray:
        """Return unit vectors of questions, (n, d), float32; zero for those without content."""
        return unit_rows(content_vectors(self.encoder, texts))[0].astype(np.float32)

    def asked(self, vectors: np.ndarray) -> np.ndarray:
        """Return the vectors to search with, which are smoothed toward the log."""
        if self.smoothing is None:
            return vectors
        with config_context(transform_output="default"):
            return self.smoothing.transform(vectors)
