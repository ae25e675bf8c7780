"""From questions to the vectors that are stored, and to those that are searched with."""

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
    """A fitted encoder, and what a log of questions shows of its vectors."""

    encoder: Pipeline
    smoothing: NeighborSmoothing | None

    @classmethod
    def fitted(
        cls, encoder: Any, stored: list[str], log: set[str] | None
    ) -> tuple[Self, np.ndarray]:
        """Fit all on the log, or the encoder alone on what is stored; return its vectors too.

        The log has no stored question: in vectors that were fitted on it, it would lie farther
        from the others than a new one.
        """
        if log is None:
            encoder, vectors, silent = fitted_encoder(encoder, stored)
            if calibrates(encoder) and not is_frozen(encoder):
                warn(
                    "The stored questions calibrate the encoder, and lie farther apart in it "
                    "than new ones: more than false_hit_rate may be answered. Give a log, or "
                    "put a pipeline that other questions fitted into a FrozenEstimator."
                )
            pipeline = Pipeline([("encode", encoder)])
            vectors = unit_rows(np.where(silent[:, None], 0, vectors))[0]
            return cls(pipeline, None), vectors.astype(np.float32)
        if len(log) < 2:
            raise ValueError(
                f"log has {len(log)} distinct questions besides those stored or unanswerable; "
                "two or more are needed, better some hundred. Leave it out if there is none."
            )
        pipeline, vectors = calibrated(encoder, sorted(log))
        fitted = cls(pipeline, NeighborSmoothing().fit(vectors[vectors.any(axis=1)]))
        vectors = fitted.vectors(stored)
        warn_of_silent(~vectors.any(axis=1), stored)
        return fitted, vectors

    def vectors(self, texts: list[str]) -> np.ndarray:
        """Return unit vectors of questions, (n, d), float32; zeros of those without content."""
        return unit_rows(content_vectors(self.encoder, texts))[0].astype(np.float32)

    def asked(self, vectors: np.ndarray) -> np.ndarray:
        """Return vectors to search with: they move toward the log, where all kinds lie."""
        if self.smoothing is None:
            return vectors
        with config_context(transform_output="default"):
            return self.smoothing.transform(vectors)
