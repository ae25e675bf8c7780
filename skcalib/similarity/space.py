"""What estimators compare: texts as vectors of one space, or vectors that users give."""

from typing import Any, Self

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from skcalib.base import calibrator_tags
from skcalib.calibration import LinearMap
from skcalib.calibration.whitening import Whitening
from skcalib.encoders.pipelines import (
    as_encoder,
    before_calibration,
    encode,
    is_frozen,
)
from skcalib.inputs.containers import first_text
from skcalib.inputs.texts import as_texts
from skcalib.inputs.vectors import (
    check_vectors,
    checked_rows,
    refuse_similarities,
    unit_vectors,
    warn_of_silent,
)


class Flattening(Whitening):
    """A whitening whose power, in figures, reduces strong directions to the level of "auto"."""

    _flattens = True


class TextSpace:
    """The space of an encoder of texts and of a whitening behind it, if there is one.

    ``encoder`` is any encoder of texts, see `as_encoder`. A clone of it is fitted; a
    ``FrozenEstimator`` keeps its fit. Texts without content, see `encode`, have zero vectors.
    """

    def __init__(self, encoder: Any):
        self.encoder = None if encoder is None else clone(as_encoder(encoder))
        self.width = 0  # of vectors, see `unit_of`
        self._whitening: Whitening | None = None
        self._map: LinearMap | None = None  # of the whitening
        self._parts: tuple[Pipeline, Pipeline | None] | None = None

    def unit_of(
        self, estimator: Any, X: Any, *, name: str = "X", fit: bool = False
    ) -> tuple[np.ndarray, list[str] | None]:
        """Return unit vectors of an estimator's input, float32, and its texts, if it has any.

        Rows of texts without content, and zero vectors, are zero. Errors call the input by
        ``name``. With ``fit``, the encoder is fitted on texts, or the width of vectors is
        learned.
        """
        if self.encoder is not None:
            texts = as_texts(X, name)
            vectors, silent = encode(self.encoder, texts, fit=fit)
            unit = unit_vectors(vectors)
            unit[silent] = 0
        else:
            texts = None
            if (text := first_text(X)) is not None:
                kind = type(estimator).__name__
                raise TypeError(
                    f"{name} has texts, such as {text[:40]!r}, but {kind}() compares vectors. "
                    f"Give it an encoder, as in {kind}(BertEncoder(model))."
                )
            if name == "X":
                X = checked_rows(estimator, X, reset=fit)
            else:
                X = check_vectors(X, name=name, dtype=[np.float64, np.float32])
                if X.shape[1] != self.width:
                    raise ValueError(
                        f"{name} has {X.shape[1]} features, but X has {self.width}. Encode "
                        "both by the same model, or by two whose vectors are comparable."
                    )
            if fit:
                refuse_similarities(X)
            unit = unit_vectors(X)
        if fit:
            self.width = unit.shape[1]
            warn_of_silent(~unit.any(axis=1), texts or ())
        return unit, texts

    def fit(self, texts: list[str]) -> Self:
        """Fit the encoder. Texts are encoded only if a step learns from their vectors."""
        if self.encoder is not None:
            self.encoder.fit(texts, None)  # a FrozenEstimator wants a y
        return self

    def fit_vectors(self, texts: list[str]) -> np.ndarray:
        """Fit the encoder on distinct texts, and return their vectors in float64."""
        vectors, silent = encode(self.encoder, texts, fit=True)
        warn_of_silent(silent, texts)
        return _without(silent, vectors)

    def fit_unit(self, texts: list[str]) -> np.ndarray:
        """Fit the encoder on texts, and return their unit vectors in float32."""
        vectors, silent = encode(self.encoder, texts, fit=True)
        warn_of_silent(silent, texts)
        unit = unit_vectors(vectors)
        unit[silent] = 0
        return unit

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
                "more texts, better a few hundred."
            )
        if is_one or calibrates(self.encoder):
            return vectors
        self._whitening = Flattening(power=power).fit(content)
        self._map = self._whitening.linear_map()
        return _without(np.logical_not(has_content), self._map.apply(vectors))

    def vectors(self, texts: list[str]) -> np.ndarray:
        """Return the vectors of texts in float64, zero for texts without content."""
        encoded, silent = encode(self.encoder, texts)
        vectors = np.asarray(encoded, np.float64)
        if self._map is not None:
            vectors = self._map.apply(vectors)
        return np.where(silent[:, None], 0.0, vectors) if silent.any() else vectors

    def unit(self, texts: list[str]) -> np.ndarray:
        """Return the unit vectors of texts in float32."""
        return unit_vectors(self.vectors(texts))

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
                after = np.asarray(later.transform(before), np.float64)
        silent = np.logical_not(before.any(axis=1) & after.any(axis=1))
        if self._map is not None:
            after = self._map.apply(after)
        return _without(silent, before), _without(silent, after)

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


def _without(silent: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return vectors in float64, zero for texts without content."""
    vectors = np.asarray(vectors, np.float64)
    return np.where(silent[:, None], 0.0, vectors) if silent.any() else vectors
