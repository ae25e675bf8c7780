"""Hidden states and calibration of a model, chosen by texts without labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_consistent_length

from skcalib._base import is_fitted
from skcalib._bi_encoder import vectors_of
from skcalib._encoder.estimator import BertEncoder
from skcalib._encoder.text_encoder import as_encoder
from skcalib._groups.estimator import GroupErasure
from skcalib._neighbors.estimator import NeighborSmoothing
from skcalib._sklearn_compat import check_params
from skcalib._texts import texts_of
from skcalib._whitening.estimator import Whitening
from skcalib.model_selection._calibration import calibration_of, cosines_of
from skcalib.model_selection._encoders import AsGiven, HiddenStates
from skcalib.model_selection._search import Sample, choose, search
from skcalib.model_selection._self_retrieval import views_of
from skcalib.model_selection._tasks import TASKS, Task, fitted

__all__ = ["calibrate"]

ROLES = "document", "query"  # groups of a search
MOST_COMPARED = 1000  # texts of which all pairs are looked at, for the summary


def calibrate(
    model: Any,
    texts: Any,
    *,
    task: str | None = None,
    queries: Any = None,
    queries_encoder: Any = None,
    groups: Any = None,
    pooling: str | Sequence[str] = ("mean", "cls", "max", "zipf"),
    layers: int | str | Sequence[Any] | None = None,
    n_components: int | float | None = None,
    noise: float | str = "auto",
    n_texts: int = 2000,
    random_state: int = 0,
    memory: Any = None,
    verbose: bool | None = None,
) -> Pipeline:
    """Choose hidden states and calibration of a model by texts without labels.

    Every hidden state under every pooling is a candidate, raw and whitened with a noise floor.
    `SelfRetrieval` tells whether the calibration of each gains; with ``thinned=0`` it then
    chooses among the hidden states thus calibrated. The model stays as it was shipped unless
    something else is better beyond chance.

    What self-retrieval cannot tell, the caller says: the `task`, and which texts are `queries`
    or belong to `groups`.

    Parameters
    ----------
    model : str, path-like, BertEncoder, or any encoder of texts
        As `BertEncoder` takes it, or a `BertEncoder` whose other parameters (prompt, device,
        dtype, max_length, special tokens) all candidates share. Of any other encoder the
        vectors as it gives them, raw and calibrated, are the candidates: a transformer of
        texts, kept as it is if it is fitted; a ``SentenceTransformer`` or another object with
        a method ``encode``; or a function from a list of texts to an array, see `TextEncoder`.
    texts : texts of shape (n_texts,), or pairs of shape (n_pairs, 2)
        Of the kind that will be compared. The search sees a sample; the calibrator that it
        chooses is fitted on all of them.
    task : {"similarity", "duplicates", "topics", "search"} or None, default=None
        What the vectors are for. "topics" stands for all groups of texts about one thing:
        topics, intents, classes, clusters; it always whitens, and puts `NeighborSmoothing`
        behind. "search" finds documents by `queries`, which it wants. For the others, and for
        None, the whitening alone follows the encoder, where it gains.
    queries : texts of shape (n_queries,), default=None
        A sample of queries, a few dozen or more; `texts` are then documents. Queries and
        documents become the two groups of a `GroupErasure` in front of the whitening.
    queries_encoder : BertEncoder or any encoder of texts, default=None
        Encodes the queries where that is not `model`, such as the same model with another
        prompt. It takes on the hidden state that is chosen.
    groups : array-like of shape (n_texts,), default=None
        Group of each text, such as its language, which `GroupErasure` takes out in front of
        the whitening.
    pooling : str or sequence of str, default=("mean", "cls", "max", "zipf")
        Poolings to try. "zipf" is left out where the vocabulary tells no frequencies, and
        "last" stands in for "cls" where a decoder's first token sees no other.
    layers : int, str, sequence of them, or None, default=None
        Hidden states to try, each as `BertEncoder` takes it; None tries all. A tuple inside the
        sequence, or a name such as "first_last", is a merge of several.
    n_components : int, float or None, default=None
        Dimensions that the whitening keeps, as `Whitening` takes them; None keeps all.
        Self-retrieval cannot choose them.
    noise : float or "auto", default="auto"
        Noise of the whitening.
    n_texts : int, default=2000
        Most texts to sample, as in `SelfRetrieval`.
    random_state : int, default=0
        Seed of sample, views and bootstrap, as in `SelfRetrieval`.
    memory : None, path-like or VectorStore, default=None
        Where `BertEncoder` keeps vectors. None takes the ``memory`` of an encoder that was
        given, or else a temporary folder for the search.
    verbose : bool or None, default=None
        Show progress bars, which tell the time that is left. None shows them on a terminal.

    Returns
    -------
    pipeline : sklearn.pipeline.Pipeline
        Fitted: steps "encode", "erase" where there are groups or queries, "calibrate", a
        `Whitening` or "passthrough", and "smooth" for topics. Its attribute ``calibration_`` is
        the `Calibration`, what was tried and chosen and why. With `queries`, its attribute
        ``queries_`` is the pipeline for queries, which shares all steps but the first.

    Raises
    ------
    OSError
        If there is no such model.
    ValueError
        If fewer than 20 distinct texts have six words, a parameter does not fit, or the model
        cannot tell the texts apart.

    Notes
    -----
    "As shipped" is the last hidden state under the pooling that a sentence-transformers folder
    declares, and under "mean" where none is declared.

    Examples
    --------
    >>> from skcalib import calibrate
    >>> from skcalib.datasets import load_toy_sts
    >>> sentences = load_toy_sts().data.ravel()[:300]
    >>> pipeline = calibrate("minilm", sentences, layers=[0, 6], pooling="mean")
    >>> pipeline.calibration_.chosen.layers
    6
    >>> len(pipeline.transform(["A new sentence."]))
    1
    """
    texts = texts_of(texts, caller="calibrate")
    if queries is not None:
        queries = texts_of(queries, caller="queries of calibrate")
        task = task or "search"
    elif groups is not None:
        check_consistent_length(texts, groups)
    how = _task_of(task, queries, groups)
    whitening = Whitening(n_components, noise=noise)
    check_params(whitening)
    sampling = {"n_texts": n_texts, "random_state": random_state}
    views = views_of(texts, sampling, "calibrate")
    encoder = as_encoder(model, "calibrate")
    encoders: AsGiven | HiddenStates
    if isinstance(encoder, BertEncoder):
        encoders = HiddenStates(encoder, pooling, layers, memory, verbose)
    elif memory is None and layers is None:
        encoders = AsGiven(encoder)
    else:
        raise ValueError(
            f"calibrate takes layers and memory for a BertEncoder; this encoder is a "
            f"{type(encoder).__name__}. TextEncoder(model, name=..., memory=...) keeps vectors."
        )
    sample = Sample.of(views, random_state)
    with encoders.searching(sample.texts):
        scored = search(encoders, sample, whitening, how.noise)
        choice = choose(scored, how.calibrates, random_state)
        encode = encoders.fitted(choice.chosen.state, texts)
        vectors = encode.transform(texts)
        if queries is not None:
            encode_queries = _encoder_of_queries(queries_encoder, encode, queries)
            parts = vectors, encode_queries.transform(queries)
            vectors, groups = np.vstack(parts), np.repeat(ROLES, [*map(len, parts)])
        steps = _fitted_steps(choice.chosen.calibrator, how, vectors, groups)
        pipeline = Pipeline([("encode", encode), *steps])
        some = views.sample[:MOST_COMPARED]
        shipped = encode
        if choice.chosen.state != encoders.states[0]:
            shipped = encoders.fitted(encoders.states[0], some)
        cosines = cosines_of(some, vectors_of(shipped, some), vectors_of(pipeline, some))
    encoders.finish(encode)
    if queries is not None:
        pipeline.queries_ = Pipeline([("encode", encode_queries), *steps])
    prompt = getattr(encode, "prompt_", "")
    pipeline.calibration_ = calibration_of(choice, task, views.n_texts, prompt, cosines)
    return pipeline


def _task_of(task: str | None, queries: Any, groups: Any) -> Task:
    """Return what to do for a task, where queries and groups fit it."""
    if task not in TASKS:
        names = ", ".join(repr(name) for name in TASKS if name)
        raise ValueError(f"calibrate got task={task!r}; it takes {names}, or None.")
    if (task == "search") != (queries is not None):
        raise ValueError(
            f"calibrate got task={task!r} and {'no' if queries is None else 'also'} queries; "
            'the task "search" takes a sample of queries, and no other task does. To find '
            "texts by others of their kind, give neither."
        )
    if queries is not None and groups is not None:
        raise ValueError(
            "calibrate got queries and groups; queries and documents are the groups of a "
            "search. Give one of the two."
        )
    how = TASKS[task]
    return how._replace(calibrates=True) if groups is not None else how


def _encoder_of_queries(encoder: Any, of_texts: Any, queries: Sequence[str]) -> Any:
    """Return the fitted encoder of the queries."""
    if encoder is None:
        return of_texts
    encoder = as_encoder(encoder, "queries_encoder of calibrate")
    if isinstance(encoder, BertEncoder) and isinstance(of_texts, BertEncoder):
        state = {name: getattr(of_texts, name) for name in ("pooling", "layers")}
        encoder = clone(encoder).set_params(**state)
    return encoder if is_fitted(encoder) else clone(encoder).fit(queries, None)


def _fitted_steps(
    calibrator: Whitening | None, how: Task, vectors: Any, groups: Any
) -> list[tuple[str, Any]]:
    """Return the steps behind the encoder, fitted.

    A pipeline would pass groups on only where the routing of metadata is switched on.
    """
    steps: list[tuple[str, Any]] = []
    if groups is not None:
        steps.append(("erase", GroupErasure().fit(vectors, groups=groups)))
        vectors = steps[-1][1].transform(vectors)
    whitening = "passthrough" if calibrator is None else fitted(calibrator, vectors, how.noise)
    steps.append(("calibrate", whitening))
    if how.smooths:
        mapped = Pipeline(steps[-1:]).transform(vectors)
        steps.append(("smooth", NeighborSmoothing().fit(mapped)))
    return steps
