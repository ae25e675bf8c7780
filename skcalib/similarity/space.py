"""Texts as vectors of one space, for every estimator that compares texts."""

from typing import Any, Self

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import gen_batches

from skcalib.base import calibrator_tags
from skcalib.calibration.whitening.estimator import Whitening
from skcalib.encoders.any_encoder import (
    as_encoder,
    before_calibration,
    encode,
    fit_with_groups,
    is_frozen,
)
from skcalib.inputs.vectors import check_finite, unit_rows, warn_of_silent

SCALED = 8192  # rows that are scaled to unit length at a time, in float64


class TextSpace:
    """The space of an encoder of texts and, if it is asked for, of a whitening behind it.

    ``encoder`` is any encoder of texts, see `as_encoder`. A clone of it is fitted; a
    ``FrozenEstimator`` keeps its fit. Texts without content, see `encode`, have zero vectors.
    """

    def __init__(self, encoder: Any):
        self.encoder = clone(as_encoder(encoder))
        self._whitening: Whitening | None = None
        self._parts: tuple[Pipeline, Pipeline | None] | None = None

    def fit(self, texts: list[str], groups: Any = None) -> Self:
        """Fit the encoder, and encode nothing that no step is fitted on."""
        fit_with_groups(self.encoder, texts, groups)
        return self

    def fit_vectors(self, texts: list[str]) -> np.ndarray:
        """Fit the encoder on distinct texts, and return their vectors in float64."""
        vectors, silent = self._fitted(texts)
        return _without(silent, vectors)

    def fit_unit(self, texts: list[str]) -> np.ndarray:
        """Fit the encoder on texts, and return their unit vectors in float32."""
        vectors, silent = self._fitted(texts)
        unit = unit_vectors(vectors)
        unit[silent] = 0
        return unit

    def _fitted(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        vectors, silent = encode(self.encoder, texts, fit=True)
        check_finite(vectors, "vectors of the encoder", texts)
        warn_of_silent(silent, texts)
        return vectors, silent

    def whiten(
        self, vectors: np.ndarray, *, power: float | str = "auto", allow_constant: bool = False
    ) -> np.ndarray:
        """Fit a whitening on vectors of `fit_vectors`, unless the encoder has a calibration.

        Return the vectors in the new space. ``allow_constant`` allows texts of one vector.
        """
        has_content = vectors.any(axis=1)
        content = vectors[has_content]
        is_one = not len(content) or bool((content == content[0]).all())
        if is_one and not allow_constant:
            raise ValueError(
                f"Got n_samples={len(vectors)} distinct texts, {len(content)} of them with "
                "content for the encoder; expected at least two with different vectors. Fit on "
                "more texts, better some hundred."
            )
        if is_one or calibrates(self.encoder):
            return vectors
        self._whitening = Whitening(noise="auto", power=power).fit(content)
        return self._whitened(vectors, ~has_content)

    def vectors(self, texts: list[str]) -> np.ndarray:
        """Return the vectors of texts in float64, zero for texts without content."""
        vectors, silent = encode(self.encoder, texts)
        vectors = _without(silent, vectors)
        return vectors if self._whitening is None else self._whitened(vectors, silent)

    def raw(self, texts: list[str], vectors: np.ndarray) -> np.ndarray:
        """Return fitted texts before their calibration; `fit_vectors` returned ``vectors``."""
        _, later = self._cut(texts[0])
        return vectors if later is None else self.before_calibration(texts)[0]

    def both(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors of texts before the steps that calibrate them, and after."""
        before, later = self.before_calibration(texts)
        after = before
        if later is not None:
            with config_context(transform_output="default"):
                after = np.asarray(later.transform(before))
        silent = np.logical_not(before.any(axis=1) & after.any(axis=1))
        before, after = _without(silent, before), _without(silent, after)
        return before, after if self._whitening is None else self._whitened(after, silent)

    def before_calibration(self, texts: list[str]) -> tuple[np.ndarray, Pipeline | None]:
        """Return vectors before the steps that calibrate them, and these steps, if any."""
        head, later = self._cut(texts[0])
        vectors, silent = encode(head, texts)
        return _without(silent, vectors), later

    def _cut(self, text: str) -> tuple[Pipeline, Pipeline | None]:
        """Cut the encoder where its vectors are calibrated; once, since that runs it."""
        if self._parts is None:
            self._parts = before_calibration(self.encoder, text)
        return self._parts

    @property
    def is_frozen(self) -> bool:
        """Whether a fit on other texts would lead to the same vectors."""
        return self._whitening is None and is_frozen(self.encoder)

    @property
    def pipeline(self) -> Pipeline:
        """The fitted steps, from texts to vectors."""
        steps: list[tuple[str, Any]] = [("encode", self.encoder)]
        if self._whitening is not None:
            steps.append(("calibrate", self._whitening))
        return Pipeline(steps)

    def _whitened(self, vectors: np.ndarray, silent: Any) -> np.ndarray:
        with config_context(transform_output="default"):
            return _without(silent, self._whitening.transform(vectors))  # type: ignore


def calibrates(encoder: Any) -> bool:
    """Whether an encoder calibrates, or has a step that does, at any depth of pipelines."""
    if calibrator_tags(encoder).calibrates:  # such as a search, also one that keeps raw vectors
        return True
    if isinstance(encoder, FrozenEstimator):
        return calibrates(encoder.estimator)
    if isinstance(encoder, Pipeline):
        return any(calibrates(s) for _, s in encoder.steps if not isinstance(s, str | None))
    best = getattr(encoder, "best_estimator_", None)
    return best is not None and calibrates(best)


def unit_vectors(vectors: np.ndarray) -> np.ndarray:
    """Scale rows to unit length, in float32; zero rows stay zero."""
    unit = np.empty(vectors.shape, np.float32)
    for rows in gen_batches(len(unit), SCALED):
        unit[rows] = unit_rows(vectors[rows])[0] + 0.0  # no negative zeros
    return unit


def _without(silent: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return vectors in float64, zero for texts without content."""
    vectors = np.asarray(vectors, np.float64)
    return np.where(silent[:, None], 0.0, vectors) if silent.any() else vectors
