"""Hidden states and calibration of a model, chosen by texts without labels."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import product
from numbers import Integral, Number
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from skcalib._base import is_fitted, progress
from skcalib._bi_encoder import vectors_of
from skcalib._encoder.estimator import BertEncoder, resolve_layers
from skcalib._encoder.text_encoder import TextEncoder, as_encoder
from skcalib._neighbors.smoothing import siblings
from skcalib._sklearn_compat import check_params
from skcalib._texts import distinct, texts_of
from skcalib._vectors import unit_rows
from skcalib._whitening.estimator import Whitening
from skcalib.model_selection._calibration import (
    Calibration,
    Candidate,
    compared,
)
from skcalib.model_selection._self_retrieval import views_of
from skcalib.model_selection._views import Views, combined

__all__ = ["calibrate"]

# Standard errors by which another hidden state must beat the one the model was shipped with.
MARGIN = 2.0


MOST_COMPARED = 1000  # texts of which all pairs are looked at, for the summary

State = tuple[str, int | tuple[int, ...] | None]  # pooling and layers
AS_GIVEN: State = "as given", None  # of an encoder that is no BertEncoder


def calibrate(
    model: Any,
    texts: Any,
    *,
    pooling: str | Sequence[str] = ("mean", "cls", "max", "zipf"),
    layers: int | str | Sequence[Any] | None = None,
    n_components: int | Sequence[int | None] | None = (None, 256, 128),
    noise: float | str | Sequence[float | str] = ("auto",),
    n_texts: int = 2000,
    random_state: int = 0,
    memory: Any = None,
    verbose: bool | None = None,
) -> Pipeline:
    """Choose hidden states and calibration of a model by texts without labels.

    Every hidden state under every pooling is a candidate, raw and whitened with a noise floor.
    `SelfRetrieval` chooses the calibration of each; with ``thinned=0`` it then chooses among
    the hidden states thus calibrated. The one that the model was shipped with is kept unless
    another is better by more than two standard errors.

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
    pooling : str or sequence of str, default=("mean", "cls", "max", "zipf")
        Poolings to try. "zipf" is left out where the vocabulary tells no frequencies, and
        "last" stands in for "cls" where a decoder's first token sees no other.
    layers : int, str, sequence of them, or None, default=None
        Hidden states to try, each as `BertEncoder` takes it; None tries all. A tuple inside the
        sequence, or a name such as "first_last", is a merge of several.
    n_components : int, None, or sequence of them, default=(None, 256, 128)
        Kept dimensions to try; None, or a number not below the width of the vectors, keeps all.
    noise : float, "auto", or sequence of them, default=("auto",)
        Noise of `Whitening` to try.
    n_texts : int, default=2000
        Most texts to sample, as in `SelfRetrieval`.
    random_state : int, default=0
        Seed of sample and views, as in `SelfRetrieval`.
    memory : None, path-like, joblib.Memory or VectorStore, default=None
        Where `BertEncoder` keeps vectors. None takes the ``memory`` of an encoder that was
        given, or else a temporary folder for the search.
    verbose : bool or None, default=None
        Show progress bars, which tell the time that is left. None shows them on a terminal.

    Returns
    -------
    pipeline : sklearn.pipeline.Pipeline
        Fitted: steps "encode" and "calibrate", the latter a `Whitening` or "passthrough". Its
        attribute ``calibration_`` is the `Calibration`, the table of all candidates.

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
    views = views_of(texts, n_texts, random_state, "calibrate")
    encoder = as_encoder(model, "calibrate")
    if not isinstance(encoder, BertEncoder | TextEncoder) and is_fitted(encoder):
        encoder = FrozenEstimator(encoder)
    noise, n_components = _listed(noise), _listed(n_components)
    for level, k in product(noise, n_components):
        check_params(Whitening(k, noise=level))
        if not (k is None or isinstance(k, Integral)):
            raise ValueError(f"calibrate got n_components={k!r}; it takes ints and None.")
    states = [AS_GIVEN]
    if isinstance(encoder, BertEncoder):
        states = _hidden_states(encoder, _listed(pooling), layers)
    elif memory is not None or layers is not None:
        raise ValueError(
            f"calibrate takes layers and memory for a BertEncoder; this encoder is a "
            f"{type(encoder).__name__}. TextEncoder(model, name=..., memory=...) keeps vectors."
        )
    sample = _sample(views, random_state)
    with _searching(encoder, memory, verbose) as search:
        scored = _scores(search, sample, states, noise, n_components)
        chosen, ordered, lead = _choice(scored)
        # The search has encoded most of the texts, unless they are more than its sample.
        if len(distinct(texts)[0]) > len(sample.texts) and isinstance(search, BertEncoder):
            search.set_params(memory=encoder.memory if memory is None else memory)
        pipeline = _fitted(search, chosen, texts)
        some = views.sample[:MOST_COMPARED]
        shipped = pipeline["encode"]
        if chosen.state != states[0]:
            shipped = _at(states[0], search).fit(some)
        raw, calibrated = vectors_of(shipped, some), vectors_of(pipeline, some)
    if isinstance(encoder, BertEncoder):
        kept = encoder.memory if memory is None else memory
        pipeline["encode"].set_params(memory=kept, verbose=encoder.verbose)
    before, after, (near, typical) = compared(raw, calibrated)
    pipeline.calibration_ = Calibration(
        shipped=scored[0].candidate,
        chosen=chosen.candidate,
        candidates=tuple(c.candidate for c in ordered),
        n_texts=views.n_texts,
        **lead,
        before=before,
        after=after,
        examples=((some[near[0]], some[near[1]]), (some[typical[0]], some[typical[1]])),
        has_siblings=not siblings(unit_rows(calibrated)[0].astype(np.float32)).are_few,
        prompt=getattr(pipeline["encode"], "prompt_", ""),
    )
    return pipeline


@contextmanager
def _searching(encoder: Any, memory: Any, verbose: bool | None) -> Iterator[Any]:
    """Give an encoder for the search, which goes through the model once for each text."""
    if not isinstance(encoder, BertEncoder):
        yield encoder
        return
    memory = encoder.memory if memory is None else memory
    verbose = sys.stderr.isatty() if verbose is None else verbose
    temporary = partial(TemporaryDirectory, prefix="skcalib-", ignore_cleanup_errors=True)
    with temporary() if memory is None else nullcontext(memory) as store:
        yield clone(encoder).set_params(memory=store, verbose=verbose or encoder.verbose)


class _Sample(NamedTuple):
    """Texts of the search, each once, and two folds: views of a half, fits on the other."""

    texts: list[str]
    folds: list[tuple[Views, list[int], list[int]]]  # views, their rows, and rows to fit on


def _sample(views: Views, seed: int) -> _Sample:
    one, two = (Views(views.sample[i::2], n_texts=views.n_texts, seed=seed) for i in (0, 1))
    texts = list(dict.fromkeys([*views.sample, *one.texts, *two.texts]))
    row = {text: i for i, text in enumerate(texts)}
    folds = [
        (half, [row[text] for text in half.texts], [row[text] for text in other.sample])
        for half, other in ((one, two), (two, one))
    ]
    return _Sample(texts, folds)


class _Scored(NamedTuple):
    """A candidate, its scores, and each text's ranks by a fit that did not see it."""

    state: State
    calibrator: Whitening | None
    candidate: Candidate
    ranks: np.ndarray  # (2, n_texts), see `Views.reciprocal_ranks`


def _scores(
    encoder: Any,
    sample: _Sample,
    states: Sequence[State],
    noise: Sequence[float | str],
    n_components: Sequence[int | None],
) -> list[_Scored]:
    """Score all candidates; the first is the first hidden state, raw."""
    verbose = bool(getattr(encoder, "verbose", False))
    if isinstance(encoder, BertEncoder):
        _at(states[0], encoder).fit_transform(sample.texts)  # the store keeps all hidden states
        encoder = clone(encoder).set_params(verbose=False)
    scored = []
    with progress(len(states), unit="state", desc="search", verbose=verbose) as advance:
        for state in states:
            vectors = vectors_of(_at(state, encoder).fit(sample.texts, None), sample.texts)
            d = vectors.shape[1]
            kept = dict.fromkeys(None if k is None or k >= d else k for k in n_components)
            raw = [vectors[rows] for _, rows, _ in sample.folds]
            scored.append(_scored(state, None, sample, raw))
            for level in noise:
                whole = _whitened(vectors, sample, state, level)
                for k in kept:  # whose vectors are the first columns of the whole
                    found = [columns[:, :k] for columns in whole]
                    scored.append(_scored(state, Whitening(k, noise=level), sample, found))
            advance(1)
    return scored


def _whitened(
    vectors: np.ndarray, sample: _Sample, state: State, noise: float | str
) -> list[np.ndarray]:
    """Vectors of the views of each fold, whitened by a fit on the other half."""
    whitened = []
    for _, rows, fit_on in sample.folds:
        if np.allclose(vectors[fit_on], vectors[fit_on[0]]):
            raise ValueError(
                "calibrate got texts that have one and the same vector under "
                f"pooling={state[0]!r}, layers={state[1]}: the model knows none of their "
                "words. Choose a model for the language of these texts."
            )
        whitening = Whitening(noise=noise).fit(vectors[fit_on])
        whitened.append(np.asarray(whitening.transform(vectors[rows])))
    return whitened


def _scored(
    state: State, calibrator: Whitening | None, sample: _Sample, found: Sequence[np.ndarray]
) -> _Scored:
    folds = zip(sample.folds, found, strict=True)
    ranks = np.hstack([views.reciprocal_ranks(vectors) for (views, *_), vectors in folds])
    halves, thinned = ranks.mean(axis=1).tolist()
    name = "raw" if calibrator is None else repr(calibrator)
    candidate = Candidate(*state, name, score=combined(halves, thinned), halves=halves)
    return _Scored(state, calibrator, candidate, ranks)


def _choice(scored: Sequence[_Scored]) -> tuple[_Scored, list[_Scored], dict[str, float]]:
    """Return the best, all in the order of a `Calibration`, and its lead and margin.

    The first that was scored is as shipped. The best is of the shipped hidden state unless
    another one clearly wins.
    """
    by_score = sorted(scored, key=lambda c: -c.candidate.score)
    calibrated: dict[State, _Scored] = {}
    for c in by_score:
        calibrated.setdefault(c.state, c)  # the best of each hidden state
    ordered = sorted(by_score, key=lambda c: -calibrated[c.state].candidate.halves)
    best, at_home = ordered[0], calibrated[scored[0].state]
    gain = best.ranks[0] - at_home.ranks[0]
    standard_error = gain.std(ddof=1) / np.sqrt(len(gain))
    lead = {"lead": float(gain.mean()), "margin": float(MARGIN * standard_error)}
    return best if lead["lead"] > lead["margin"] else at_home, ordered, lead


def _fitted(encoder: Any, chosen: _Scored, texts: Sequence[str]) -> Pipeline:
    calibrator = chosen.calibrator or "passthrough"
    steps = [("encode", _at(chosen.state, encoder)), ("calibrate", calibrator)]
    return Pipeline(steps).fit(texts, None)


def _at(state: State, encoder: Any) -> Any:
    """Return an unfitted copy of the encoder for a hidden state."""
    if state == AS_GIVEN:
        return clone(encoder)
    pooling, layers = state
    return clone(encoder).set_params(pooling=pooling, layers=layers)


def _listed(values: Any) -> list[Any]:
    """Values to try: those of a sequence, or a single one."""
    return [values] if values is None or isinstance(values, str | Number) else list(values)


def _hidden_states(template: BertEncoder, poolings: Sequence[str], layers: Any) -> list[State]:
    """Pairs of pooling and layer to try, the pair that the model was shipped with first."""
    shipped = _at(("auto", -1), template).fit([""])
    backbone = shipped._backbone()
    n_layers = backbone.n_layers
    asked = [*range(n_layers + 1)] if layers is None else _listed(layers)
    for state in product(poolings, asked):
        check_params(_at(state, template))
    resolved = [resolve_layers(layer, n_layers) for layer in asked]
    indices = [several if len(several) > 1 else several[0] for several in resolved]
    roles = {"auto": shipped.pooling_} | ({"cls": "last"} if backbone.is_causal else {})
    named = (roles.get(name, name) for name in poolings)
    poolings = [name for name in named if name != "zipf" or backbone.has_zipf]
    # The embedding of a special token is the same in every text.
    states = [s for s in product(poolings, indices) if s not in (("cls", 0), ("last", 0))]
    return list(dict.fromkeys([(shipped.pooling_, n_layers), *states]))
