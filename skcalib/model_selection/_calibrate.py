"""Choose layer, pooling and calibration of a model from texts without labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from skcalib.calibration.covariance.noise import Regularization
from skcalib.calibration.groups.estimator import GroupErasure
from skcalib.calibration.neighbors.estimator import NeighborSmoothing
from skcalib.calibration.whitening.estimator import Whitening
from skcalib.encoders.any_encoder import as_encoder, fit_with_groups, fitted_on
from skcalib.encoders.bert_encoder import BertEncoder
from skcalib.model_selection._encoders import AsGiven, HiddenStates
from skcalib.model_selection._report import Calibration
from skcalib.model_selection._search import choose, search
from skcalib.model_selection._self_retrieval import views_of
from skcalib.model_selection._tasks import TASKS, Task
from skcalib.model_selection._views import Views, near_duplicates
from skcalib.utils.sklearn_compat import check_params
from skcalib.utils.texts import distinct_texts

ROLES = "document", "query"  # groups of a search


def calibrate(
    model: Any,
    texts: Any,
    *,
    task: str | None = None,
    queries: Any = None,
    queries_encoder: Any = None,
    groups: Any = None,
    pooling: str | Sequence[str] | None = None,
    layers: int | str | Sequence[Any] | None = None,
    n_components: int | float | None = None,
    noise: float | str = "auto",
    n_groups: int | None = None,
    n_texts: int = 2000,
    random_state: int = 0,
    memory: Any = None,
    verbose: bool | None = None,
) -> Pipeline:
    """Choose layer, pooling and calibration of a model from texts without labels.

    For each layer and pooling the candidates are raw vectors and a whitening, and for inner
    layers also a strong whitening with a power of 1. `SelfRetrieval` chooses one of these. With
    ``thinned=0`` it then compares the layers and poolings, so calibrated. The raw model is the
    last layer with the pooling that the folder declares, or else "mean". It stays unless
    another candidate is better beyond chance, by simultaneous intervals; subtracting its mean
    is a candidate, too. A strong whitening must be better than the others beyond chance by both
    kinds of the score.

    Texts do not reveal the `task`, the `queries` or the `groups`: pass these.

    Parameters
    ----------
    model : str, path-like, BertEncoder, or any encoder of texts
        As in `BertEncoder`, or a `BertEncoder` whose other parameters all candidates share. For
        any other encoder only the calibration is chosen: a transformer of texts, which keeps
        its fit if it is fitted; or an object with a method ``encode`` or a function, see
        `TextEncoder`.
    texts : texts of shape (n_texts,), or pairs of shape (n_pairs, 2)
        Texts of the kind that you will compare. The search uses a sample; the chosen
        calibrator is fitted on all of them. Repeated texts count once.
    task : {"similarity", "duplicates", "topics", "search"} or None, default=None
        What the vectors are for. "topics" means all groups of texts about one thing: topics,
        intents, classes, clusters; it adds `NeighborSmoothing` as the last step. "search" finds
        documents by `queries`. "topics", "search" and "duplicates" always whiten; "similarity"
        and None whiten only if it helps.
    queries : texts of shape (n_queries,), default=None
        A sample of queries, a few dozen or more; `texts` are then documents. Queries and
        documents become the two groups of a `GroupErasure` before the whitening.
    queries_encoder : BertEncoder or any encoder of texts, default=None
        Encodes the queries if `model` does not, such as the same model with another prompt. It
        uses the chosen layer and pooling.
    groups : array-like of shape (n_texts,), (n_pairs,) or (n_pairs, 2), default=None
        Group of each text, such as its language, as in `BiEncoder.fit`. `GroupErasure` removes
        the differences between groups before the whitening.
    pooling : str, sequence of str, or None, default=None
        Poolings to try. None keeps the one that the folder declares; if it declares none, or
        `layers` is given, it tries "mean", "cls", "max" and "zipf", which is left out if the
        vocabulary is not sorted by frequency. For a decoder "last" replaces "cls".
    layers : int, str, sequence of them, or None, default=None
        Layers to try, each as in `BertEncoder`: a tuple or a name such as "first_last" merges
        several. None keeps the last one if the folder declares its pooling and `pooling` is
        None, and tries all otherwise.
    n_components : int, float or None, default=None
        Dimensions that the whitening keeps, as in `Whitening`; None keeps all. Self-retrieval
        cannot choose them.
    noise : float or "auto", default="auto"
        Regularization of the whitening, see `Whitening`. A number leaves out the strong
        whitening.
    n_groups : int or None, default=None
        Approximate number of groups that the vectors should distinguish, see `Whitening`; texts
        do not reveal it. If given, the whitening is always used, and there is no strong one.
    n_texts : int, default=2000
        Largest number of texts to sample, as in `SelfRetrieval`.
    random_state : int, default=0
        Seed of sample, views and bootstrap, as in `SelfRetrieval`.
    memory : None, path-like or VectorStore, default=None
        Where `BertEncoder` keeps vectors. None uses the ``memory`` of a given encoder, or else
        a temporary folder during the search.
    verbose : bool or None, default=None
        Show progress bars with the remaining time. None shows them on a terminal.

    Returns
    -------
    pipeline : sklearn.pipeline.Pipeline
        Fitted: steps "encode"; "erase" with groups or queries; "calibrate", a `Whitening` or
        "passthrough"; and "smooth" for topics. Its attribute ``calibration_``, a `Calibration`,
        shows what was tried and why. With `queries`, its attribute ``queries_`` is the pipeline
        for queries, which shares all steps but the first.

    Raises
    ------
    OSError
        If there is no such model.
    ValueError
        If fewer than 20 distinct texts have six words, a parameter does not fit, or the model
        cannot distinguish the texts.

    Examples
    --------
    >>> from skcalib import calibrate
    >>> from skcalib.datasets import load_toy_sts
    >>> sentences = load_toy_sts().data.ravel()[:100]
    >>> params = {"layers": [0, 6], "pooling": "mean", "n_texts": 50}
    >>> pipeline = calibrate("minilm", sentences, **params)
    >>> pipeline.calibration_.chosen.layers
    6
    >>> len(pipeline.transform(["A new sentence."]))
    1
    """
    if queries is not None:
        queries = distinct_texts(queries, name="queries")[0]
        task = task or "search"
    how = _task_of(task, queries=queries, queries_encoder=queries_encoder, groups=groups)
    texts, groups = distinct_texts(texts, groups, "texts")
    whitening = Whitening(n_components, noise=noise, n_groups=n_groups)
    check_params(whitening)
    Regularization(noise=noise, n_groups=n_groups)  # refuses n_groups with a numeric noise
    sample = views_of(texts, n_texts=n_texts, random_state=random_state).sample
    encoders = _encoders_of(model, pooling, layers, memory, verbose)
    halves = [Views(sample[i::2], n_texts=n_texts, seed=random_state) for i in (0, 1)]
    parts = list(dict.fromkeys([*sample, *halves[0].texts, *halves[1].texts]))
    with encoders.searching(parts, texts):
        scored = search(encoders, halves, whitening)
        alike = near_duplicates([*halves[0].sample, *halves[1].sample])
        always = how.calibrates or groups is not None or n_groups is not None
        chosen, found = choose(scored, alike, always, random_state)
        encode = encoders.fitted(chosen.state, texts)
        vectors = encode.transform(texts)
        if queries is not None:
            encode_queries = _encoder_of_queries(queries_encoder, encode, queries)
            sides = vectors, encode_queries.transform(queries)
            vectors, groups = np.vstack(sides), np.repeat(ROLES, [*map(len, sides)])
        steps = _fitted_steps(chosen.calibrator, how, vectors, groups)
        pipeline = Pipeline([("encode", encode), *steps])
    encode.set_params(**encoders.own)
    if queries is not None:
        pipeline.queries_ = Pipeline([("encode", encode_queries), *steps])
    pipeline.calibration_ = Calibration(
        task=task,
        n_texts=len(sample),
        is_declared=encoders.is_declared,
        **found,
    )
    return pipeline


def _encoders_of(
    model: Any, pooling: Any, layers: Any, memory: Any, verbose: bool | None
) -> AsGiven | HiddenStates:
    """Return what to search: layers and poolings of a `BertEncoder`, or another encoder."""
    encoder = as_encoder(model)
    if isinstance(encoder, BertEncoder):
        return HiddenStates(encoder, pooling, layers, memory, verbose)
    if any(given is not None for given in (pooling, layers, memory)):
        raise ValueError(
            f"calibrate got pooling, layers or memory with a {type(encoder).__name__}; only a "
            "BertEncoder accepts them. Leave them out; TextEncoder(model, name=..., "
            "memory=...) keeps vectors."
        )
    return AsGiven(encoder)


def _task_of(task: str | None, **given: Any) -> Task:
    """Return what to do for a task, after checking that queries and groups fit it."""
    if task not in TASKS:
        names = ", ".join(repr(name) for name in TASKS if name)
        raise ValueError(f"calibrate got task={task!r}; expected {names}, or None.")
    found = [name for name, value in given.items() if value is not None]
    searches = "queries" in found and "groups" not in found
    if not (searches if task == "search" else found in ([], ["groups"])):
        raise ValueError(
            f"calibrate got task={task!r} with {' and '.join(found) or 'no queries'}; the task "
            '"search" needs a sample of queries, accepts a queries_encoder, and accepts no '
            "groups, since queries and documents are its groups. Other tasks accept groups "
            "only. To find texts by texts of the same kind, leave out task and queries."
        )
    return TASKS[task]


def _encoder_of_queries(encoder: Any, of_texts: Any, queries: Sequence[str]) -> Any:
    """Return the fitted encoder of the queries."""
    if encoder is None:
        return of_texts
    encoder = as_encoder(encoder)
    if isinstance(encoder, BertEncoder) and isinstance(of_texts, BertEncoder):
        state = {name: getattr(of_texts, name) for name in ("pooling", "layers")}
        encoder = clone(encoder).set_params(**state)
    return fitted_on(encoder, queries)


def _fitted_steps(
    calibrator: Whitening | None, how: Task, vectors: Any, groups: Any
) -> list[tuple[str, Any]]:
    """Return the fitted steps after the encoder."""
    steps: list[tuple[str, Any]] = [] if groups is None else [("erase", GroupErasure())]
    steps.append(("calibrate", "passthrough" if calibrator is None else clone(calibrator)))
    if how.smooths:
        steps.append(("smooth", NeighborSmoothing()))
    return fit_with_groups(Pipeline(steps), vectors, groups).steps
