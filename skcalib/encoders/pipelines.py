"""Encoders of texts, and pipelines that begin with one: made, fitted, and cut apart."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.validation import check_array

from skcalib.base import is_fitted
from skcalib.callbacks import part_task
from skcalib.encoders.bert_encoder import BertEncoder
from skcalib.encoders.lookup import noting_content
from skcalib.encoders.model.declared import declared
from skcalib.encoders.model.folder import locate
from skcalib.encoders.text_encoder import TextEncoder
from skcalib.inputs.texts import distinct
from skcalib.inputs.vectors import check_finite

# Names of the prompts of each side, as sentence-transformers looks for them.
PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}


def as_encoder(model: Any) -> Any:
    """Return a transformer of texts: the model itself, or an encoder around it."""
    if isinstance(model, str | os.PathLike):
        return BertEncoder(model)
    if hasattr(model, "fit") and hasattr(model, "transform"):
        if isinstance(model, BaseEstimator | type):  # clone refuses a class
            return model
        raise TypeError(
            f"The encoder, a {type(model).__name__}, is no estimator of scikit-learn. Derive "
            "its class from TransformerMixin and BaseEstimator of sklearn.base."
        )
    if hasattr(model, "encode") or callable(model):
        return TextEncoder(model)
    raise TypeError(
        f"The encoder is of type {type(model).__name__}; expected the folder or hub id of a "
        "model, a transformer of texts such as BertEncoder, an object with a method encode, or "
        "a function from a list of texts to an array."
    )


def fitted_on(encoder: Any, texts: Any) -> Any:
    """Return the encoder if it is fitted, otherwise a fitted clone."""
    return encoder if is_fitted(encoder) else clone(encoder).fit(texts, None)


def is_frozen(encoder: Any) -> bool:
    """Whether a fit changes nothing: a ``FrozenEstimator``, or a pipeline of these."""
    if isinstance(encoder, Pipeline):
        return all(map(is_frozen, _present(encoder)))
    return isinstance(encoder, FrozenEstimator)


def before_calibration(encoder: Any, text: str) -> tuple[Pipeline, Pipeline | None]:
    """Cut a fitted encoder, tried on a text, behind the step that makes texts dense vectors."""
    steps, cut, X = _flat(encoder), 1, [text]
    for i, step in enumerate(steps, 1) if len(steps) > 1 else ():
        *_, X = _outputs(step, X, fit=False)
        cut = i + 1 if issparse(X) else cut
    head, later = make_pipeline(*steps[:cut]), make_pipeline(*steps[cut:])
    return head, later if later.steps else None


def _flat(encoder: Any) -> list[Any]:
    """Return the steps of a fitted encoder, and of pipelines and searches inside it."""
    encoder = getattr(encoder, "best_estimator_", encoder)
    steps = _present(encoder) if isinstance(encoder, Pipeline) else None
    return [encoder] if steps is None else [*chain.from_iterable(map(_flat, steps))]


def encoded(encoder: Any, texts: list[str]) -> np.ndarray:
    """Return the vectors of texts; each distinct text is encoded once."""
    return encode(encoder, texts)[0]


def encode(
    encoder: Any, texts: list[str], *, fit: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of texts, and which of the texts have no content.

    These are blank, contain only unknown tokens, or have a zero vector after some step.
    """
    unique, index = distinct(texts)
    silent = np.zeros(len(unique), bool)
    output: Any = unique
    task: Any = part_task("encode", n_subtasks=len(_flat(encoder))) if fit else nullcontext()
    with noting_content() as has_content, task:
        for output in _outputs(encoder, unique, fit=fit):
            if issparse(output):
                silent |= np.diff(output.tocsr().indptr) == 0
            elif hasattr(output, "shape") and len(output) == len(unique):
                silent |= ~np.asarray(output).any(axis=1)
    silent |= [not (text.strip() and has_content.get(text, True)) for text in unique]
    vectors = check_array(
        output,
        dtype=[np.float64, np.float32],
        ensure_all_finite=False,
        input_name="vectors of the encoder",
    )
    if len(vectors) != len(unique):
        raise ValueError(
            f"The encoder {encoder!r:.80} returned {len(vectors)} rows for {len(unique)} texts;"
            " expected one row for each text."
        )
    check_finite(vectors, "vectors of the encoder", unique)
    return (vectors, silent) if len(unique) == len(texts) else (vectors[index], silent[index])


def _outputs(encoder: Any, X: Any, *, fit: bool) -> Iterator[Any]:
    """Yield what each step of an encoder returns, and fit it before with ``fit``."""
    if isinstance(encoder, FrozenEstimator):
        encoder, fit = encoder.estimator, False
    if isinstance(encoder, Pipeline):
        last = X
        for step in _present(encoder):
            for last in _outputs(step, X, fit=fit):
                yield last
            X = last
        return
    if fit and hasattr(encoder, "fit_transform"):
        with part_task("fit-transform", encoder):
            X = encoder.fit_transform(X)
        yield X
        return
    if fit:
        with part_task("fit", encoder):
            encoder.fit(X, None)
    elif hasattr(X, "columns") and not hasattr(encoder, "feature_names_in_"):
        X = np.asarray(X)  # a step that was fitted without names gets none
    if hasattr(encoder, "best_estimator_"):  # of a search
        yield from _outputs(encoder.best_estimator_, X, fit=False)
    else:
        yield encoder.transform(X)


def _present(pipeline: Pipeline) -> list[Any]:
    """Return the steps of a pipeline that are not left out."""
    return [step for _, step in pipeline.steps if not isinstance(step, str | None)]


def of_side(encoder: Any, side: str) -> Any:
    """Return an encoder with the prompt, if any, that its model declares for a side."""
    encoder = as_encoder(encoder)
    if isinstance(encoder, Pipeline):
        if is_fitted(encoder):
            return encoder
        (name, first), *later = encoder.steps
        declared_first = of_side(first, side)
        is_same = declared_first is first
        return encoder if is_same else Pipeline([(name, declared_first), *later])
    if isinstance(encoder, BertEncoder) and encoder.prompt is None and not is_fitted(encoder):
        prompts = declared(locate(encoder.model)).prompts
        names = [name for name in PROMPTS[side] if name in prompts]
        return clone(encoder).set_params(prompt=names[0]) if names else encoder
    if isinstance(encoder, TextEncoder) and hasattr(encoder.model, f"encode_{side}"):
        model, name = getattr(encoder.model, f"encode_{side}"), encoder.name
        return clone(encoder).set_params(model=model, name=name and f"{name}, {side}")
    return encoder


def first_of_queries(encoder: Any) -> Any:
    """Return the first step of an encoder for queries, or None if its model has no sides."""
    encoder = _first(as_encoder(encoder))
    query, document = (of_side(encoder, side) for side in PROMPTS)
    return None if query is encoder and document is encoder else query


def ignores_sides(encoder: Any) -> bool:
    """Whether a fitted encoder encodes both sides alike although its model has two."""
    first = _first(encoder)
    is_ours = isinstance(first, BertEncoder | TextEncoder)
    return is_ours and first_of_queries(clone(first)) is not None


def _first(encoder: Any) -> Any:
    return encoder.steps[0][1] if isinstance(encoder, Pipeline) else encoder


def after_query_encoder(encoder: Any, documents: Any) -> Any:
    """Return an encoder of queries, followed by the later steps of that of documents."""
    queries, documents = (
        side.estimator if isinstance(side, FrozenEstimator) else side
        for side in (encoder, documents)
    )
    if isinstance(queries, Pipeline) and not is_fitted(queries):
        raise ValueError(
            "query_encoder is a pipeline that is not fitted, so its vectors would not be "
            "comparable with those of the documents. Give only its first step, which the later "
            "steps of `encoder` then follow, or a FrozenEstimator of a fitted pipeline."
        )
    if isinstance(queries, Pipeline) or not isinstance(documents, Pipeline):
        return encoder
    later = [
        (name, step if isinstance(step, str | None) else FrozenEstimator(step))
        for name, step in documents.steps[1:]
    ]
    return Pipeline([("encode", encoder), *later])
