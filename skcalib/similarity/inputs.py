"""What estimators of two sides accept: texts for an encoder, or vectors without one."""

import inspect
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline

from skcalib.encoders.any_encoder import as_encoder
from skcalib.encoders.sides import after_query_encoder, of_side
from skcalib.inputs.containers import first_text
from skcalib.inputs.texts import as_texts
from skcalib.inputs.vectors import check_vectors, checked_rows, warn_of_silent
from skcalib.similarity.space import TextSpace, unit_vectors


class Side:
    """Unit vectors of one side, by the encoder of texts that it was fitted with, if any.

    Rows of texts without content, and zero vectors, are zero.
    """

    def __init__(self, space: TextSpace | None, width: int):
        self.space, self.width = space, width

    @classmethod
    def fitted(cls, estimator: Any, X: Any) -> tuple["Side", np.ndarray]:
        """Fit the ``encoder`` of an estimator on documents, or check vectors.

        Return the side of documents, if the model declares sides, and unit rows.
        """
        if estimator.encoder is None:
            unit = unit_vectors(checked_rows(estimator, X, reset=True))
            warn_of_silent(~unit.any(axis=1))
            return cls(None, unit.shape[1]), unit
        space = TextSpace(of_side(estimator.encoder, "document"))
        unit = space.fit_unit(as_texts(X))
        return cls(space, unit.shape[1]), unit

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

    def followed_by(self, steps: list[Any]) -> Pipeline:
        """Return a fitted pipeline, from the input of this side through further steps."""
        first = [] if self.space is None else [self.space.encoder]
        return make_pipeline(*first, *steps)

    def unit(self, estimator: Any, X: Any, name: str = "X", fitted: str = "X") -> np.ndarray:
        """Return unit vectors of input that an error calls by ``name``, float32.

        It has as many features as the ``fitted`` one.
        """
        if self.space is not None:
            return unit_vectors(self.space.vectors(as_texts(X, name)))
        if name == "X":
            return unit_vectors(checked_rows(estimator, X, reset=False))
        vectors = check_vectors(X, name=name, dtype=[np.float64, np.float32])
        if vectors.shape[1] != self.width:
            raise ValueError(
                f"{name} has {vectors.shape[1]} features, but {fitted} has {self.width}. "
                "Encode both by the same model, or by two whose vectors are comparable."
            )
        return unit_vectors(vectors)


def check_queries(estimator: Any, y: Any, queries: Any) -> None:
    """Refuse queries that come as ``y``, and those of a pipeline whose steps they skip."""
    name = type(estimator).__name__
    if first_text(y) is not None or getattr(y, "ndim", 1) == 2:
        raise TypeError(
            f"{name}.fit got texts or vectors as y, which it ignores. Pass a sample of queries "
            "by name: fit(documents, queries=past_queries)."
        )
    frame = inspect.currentframe() if queries is not None else None
    while frame is not None:
        pipeline = frame.f_locals.get("self")
        if isinstance(pipeline, Pipeline) and isinstance(
            pipeline.steps[-1][1], type(estimator)
        ):
            skipped = {step for _, step in pipeline.steps[:-1]} - {None, "passthrough"}
            if skipped and "queries" not in (getattr(pipeline, "transform_input", None) or ()):
                raise ValueError(
                    f"{name} is behind other steps of a pipeline, which do not transform its "
                    "queries. Put these steps into it, as SearchEncoder(make_pipeline(...)), "
                    "transform the queries before, or, with metadata routing, set "
                    "transform_input=['queries'] of the pipeline."
                )
            return
        frame = frame.f_back
