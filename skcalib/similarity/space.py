"""What estimators compare: texts as vectors of one space, or vectors that users give."""

from typing import Any, Self

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline, make_pipeline

from skcalib.base import calibrator_tags
from skcalib.calibration import LinearMap
from skcalib.calibration.whitening import Whitening
from skcalib.encoders.pipelines import (
    after_query_encoder,
    as_encoder,
    before_calibration,
    encode,
    is_frozen,
    of_side,
)
from skcalib.inputs.texts import as_texts
from skcalib.inputs.vectors import (
    check_vectors,
    checked_rows,
    refuse_similarities,
    unit_vectors,
    warn_of_silent,
)


class TextSpace:
    """The space of an encoder of texts and, if it is asked for, of a whitening behind it.

    ``encoder`` is any encoder of texts, see `as_encoder`. A clone of it is fitted; a
    ``FrozenEstimator`` keeps its fit. Texts without content, see `encode`, have zero vectors.
    """

    def __init__(self, encoder: Any):
        self.encoder = clone(as_encoder(encoder))
        self._whitening: Whitening | None = None
        self._map: LinearMap | None = None  # of the whitening
        self._parts: tuple[Pipeline, Pipeline | None] | None = None

    def fit(self, texts: list[str]) -> Self:
        """Fit the encoder. Texts are encoded only if a step learns from their vectors."""
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
                "more texts, better some hundred."
            )
        if is_one or calibrates(self.encoder):
            return vectors
        shrinkage = 0.0 if power == "auto" else "auto"
        self._whitening = Whitening(power=power, shrinkage=shrinkage).fit(content)
        self._map = self._whitening.linear_map()
        return _without(np.logical_not(has_content), self._map.apply(vectors))

    def vectors(self, texts: list[str]) -> np.ndarray:
        """Return the vectors of texts in float64, zero for texts without content."""
        found, silent = encode(self.encoder, texts)
        vectors = np.asarray(found, np.float64)
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


class Side:
    """Unit vectors of documents or of queries: of texts by a space, of vectors if it is None.

    Rows of texts without content, and zero vectors, are zero.
    """

    def __init__(self, space: TextSpace | None, width: int):
        self.space, self.width = space, width

    @classmethod
    def fitted(cls, estimator: Any, X: Any) -> tuple[Self, np.ndarray, list[str] | None]:
        """Fit the ``encoder`` of an estimator on documents, or check vectors.

        Return the side of documents, if the model declares sides, and `checked` documents.
        """
        if estimator.encoder is None:
            X = checked_rows(estimator, X, reset=True)
            refuse_similarities(X)
            unit = unit_vectors(X)
            warn_of_silent(~unit.any(axis=1))
            return cls(None, unit.shape[1]), unit, None
        texts, encoder = as_texts(X), clone(as_encoder(estimator.encoder))
        space = TextSpace(of_side(encoder, "document"))
        unit = space.fit_unit(texts)
        return cls(space, unit.shape[1]), unit, texts

    def fit_query_side(self, encoder: Any, texts: list[str]) -> tuple["Side", np.ndarray]:
        """Fit an encoder of queries, which the later steps of this side's follow, on texts.

        Return its side, and unit vectors of the texts.
        """
        own = self.space.encoder if self.space is not None else None
        space = TextSpace(after_query_encoder(clone(as_encoder(encoder)), own))
        unit = space.fit_unit(texts)
        if unit.shape[1] != self.width:
            raise ValueError(
                f"query_encoder returns {unit.shape[1]} features, but encoder {self.width}. "
                "Expected two encoders with comparable vectors, such as one model with two "
                "prompts."
            )
        return Side(space, self.width), unit

    def checked(
        self, estimator: Any, X: Any, name: str = "X", fitted: str = "X"
    ) -> tuple[np.ndarray, list[str] | None]:
        """Return unit vectors of an estimator's input, float32, and its texts, if these.

        An error calls it by ``name``; vectors have as many features as the ``fitted`` ones.
        """
        if self.space is not None:
            texts = as_texts(X, name)
            return self.space.unit(texts), texts
        if name == "X":
            return unit_vectors(checked_rows(estimator, X, reset=False)), None
        vectors = check_vectors(X, name=name, dtype=[np.float64, np.float32])
        if vectors.shape[1] != self.width:
            raise ValueError(
                f"{name} has {vectors.shape[1]} features, but {fitted} has {self.width}. "
                "Encode both by the same model, or by two whose vectors are comparable."
            )
        return unit_vectors(vectors), None

    def followed_by(self, steps: list[Any]) -> Pipeline:
        """Return a fitted pipeline, from the input of this side through further steps."""
        first = [] if self.space is None else [self.space.encoder]
        return make_pipeline(*first, *steps)


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
