"""What estimators compare: texts as vectors of one space, or vectors that users give."""

from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from skcalib.base import calibrator_tags
from skcalib.calibration import LinearMap
from skcalib.calibration.whitening import Whitening
from skcalib.encoders.pipelines import as_encoder, before_calibration, encode, is_frozen
from skcalib.inputs.containers import first_text
from skcalib.inputs.texts import as_texts
from skcalib.inputs.vectors import check_vectors, checked_rows, unit_vectors, warn_of_silent


def vectors_of(
    encoder: Any, texts: list[str], *, fit: bool = False, warns: bool = False
) -> np.ndarray:
    """Return the vectors of texts, zero for texts without content, which may be warned of."""
    vectors, silent = encode(encoder, texts, fit=fit)
    if warns:
        warn_of_silent(silent, texts)
    return _zero(silent, vectors)


class Flattening(Whitening):
    """A whitening whose power, in figures, reduces strong directions to the level of "auto"."""

    _flattens = True


class TextSpace:
    """The space of a clone of any encoder of texts, or of vectors if it is None.

    A whitening may follow it. Texts without content have zero vectors.
    """

    _parts: tuple[Pipeline, Pipeline | None]  # before the calibration, and it

    def __init__(self, encoder: Any):
        self.encoder = None if encoder is None else clone(as_encoder(encoder))
        self.width = 0  # of vectors, see `unit_of`
        self._whitening: Whitening | None = None
        self._map: LinearMap | None = None  # of the whitening

    def unit_of(
        self,
        estimator: Any,
        X: Any,
        *,
        name: str = "X",
        fit: bool = False,
        warns: bool = False,
    ) -> tuple[np.ndarray, list[str] | None]:
        """Return unit vectors of an estimator's texts or vectors, float32, and these texts."""
        if self.encoder is not None:
            texts = as_texts(X, name)
            unit = unit_vectors(vectors_of(self.encoder, texts, fit=fit, warns=fit or warns))
            self.width = unit.shape[1] if fit else self.width
            return unit, texts
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
        self.width = X.shape[1]
        unit = unit_vectors(X)
        if fit or warns:
            warn_of_silent(~unit.any(axis=1))
        return unit, None

    def fit_vectors(self, texts: list[str]) -> np.ndarray:
        """Fit the encoder on distinct texts, and return their vectors in float64."""
        return vectors_of(self.encoder, texts, fit=True, warns=True).astype(np.float64)

    def whiten(self, vectors: np.ndarray, *, power: float | str = "auto") -> np.ndarray:
        """Fit a whitening, unless the encoder calibrates; return the vectors in its space."""
        content = vectors[vectors.any(axis=1)]
        if not len(content) or (content == content[0]).all():
            raise ValueError(
                f"Got n_samples={len(vectors)} distinct texts, {len(content)} of them with "
                "content for the encoder; expected at least two with different vectors. Fit on "
                "more texts, better some hundred."
            )
        if not calibrates(self.encoder):
            self._whitening = Flattening(power=power).fit(content)
            self._map = self._whitening.linear_map()
        return self._mapped(vectors)

    def vectors(self, texts: list[str]) -> np.ndarray:
        """Return the vectors of texts in float64."""
        return self._mapped(vectors_of(self.encoder, texts).astype(np.float64))

    def raw(self, texts: list[str], vectors: np.ndarray) -> np.ndarray:
        """Return fitted texts before their calibration; `fit_vectors` returned ``vectors``."""
        self._parts = head, later = before_calibration(self.encoder, texts[0])
        return vectors if later is None else vectors_of(head, texts).astype(np.float64)

    def both(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors of texts before the steps that calibrate them, and after."""
        head, later = self._parts
        before = after = vectors_of(head, texts).astype(np.float64)
        if later is not None:
            with config_context(transform_output="default"):
                after = np.asarray(later.transform(before), np.float64)
        silent = np.logical_not(before.any(axis=1) & after.any(axis=1))
        return _zero(silent, before), self._mapped(_zero(silent, after))

    def _mapped(self, vectors: np.ndarray) -> np.ndarray:
        """Return whitened vectors; zero vectors stay zero."""
        if self._map is None:
            return vectors
        return _zero(np.logical_not(vectors.any(axis=1)), self._map.apply(vectors))

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


def _zero(silent: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    return np.where(silent[:, None], 0, vectors) if silent.any() else vectors
