"""Hidden states and calibration of a model, chosen by texts without labels."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import product
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from skcalib._base import progress
from skcalib._encoder.estimator import BertEncoder, resolve_layers
from skcalib._encoder.model_files import declared_pooling
from skcalib._tables import markdown
from skcalib._texts import distinct, texts_of
from skcalib._whitening.estimator import Whitening
from skcalib.model_selection._self_retrieval import views_of
from skcalib.model_selection._views import Views, combined

__all__ = ["Calibration", "Candidate", "calibrate", "declared_pooling"]

# Standard errors by which another hidden state must beat the one the model was shipped with.
MARGIN = 2.0


State = tuple[str, int]  # pooling and layer
Key = tuple[str, int, Whitening | None]  # the same, and the calibrator


@dataclass(frozen=True)
class Candidate:
    """A row of a `Calibration`.

    Parameters
    ----------
    pooling : str
        Pooling, named as in `BertEncoder`.
    layers : int
        Hidden state, counted from 0.
    calibrator : str
        "raw", or a `Whitening` as it is written in code.
    score : float
        Mean reciprocal rank, as `SelfRetrieval` gives it: compares calibrations of one hidden
        state.
    between_parts : float
        As ``SelfRetrieval(thinned=0)`` gives it: compares hidden states.
    """

    pooling: str
    layers: int
    calibrator: str
    score: float
    between_parts: float


@dataclass(frozen=True)
class Calibration:
    """What `calibrate` tried; ``str()`` of it is a table.

    Parameters
    ----------
    shipped : Candidate
        The model as shipped.
    chosen : Candidate
        The candidate that was chosen; it may be the same.
    candidates : tuple of Candidate
        All candidates, also those two: hidden states by the `between_parts` of their best
        calibration, and the calibrations of each by `score`.
    n_texts : int
        Number of texts in the sample that gave the scores.
    """

    shipped: Candidate
    chosen: Candidate
    candidates: tuple[Candidate, ...]
    n_texts: int

    def __str__(self) -> str:
        return self.table()

    def table(self, n_candidates: int | None = None) -> str:
        """Return a Markdown table: as shipped, chosen, and the others in order.

        Its scores are times 100: "within" compares calibrations of one hidden state, "between"
        compares hidden states.

        Parameters
        ----------
        n_candidates : int or None, default=None
            Most of the others to show; None shows all.

        Returns
        -------
        table : str
        """
        others = [c for c in self.candidates if c not in (self.shipped, self.chosen)]
        rows = [("as shipped", self.shipped), ("chosen", self.chosen)]
        rows += [("", candidate) for candidate in others[:n_candidates]]
        return markdown(
            ["", "pooling", "layer", "calibrator", "within", "between"],
            [
                [note, c.pooling, str(c.layers), c.calibrator]
                + [f"{100 * value:.1f}" for value in (c.score, c.between_parts)]
                for note, c in rows
            ],
        )


def calibrate(
    model: str | os.PathLike[str] | BertEncoder,
    texts: Any,
    *,
    pooling: Sequence[str] = ("mean", "cls", "max", "zipf"),
    layers: Sequence[int] | None = None,
    n_components: Sequence[int | None] = (None, 256, 128),
    noise: Sequence[float | str] = ("auto",),
    n_texts: int = 2000,
    random_state: int = 0,
    memory: Any = None,
    verbose: bool = False,
) -> Pipeline:
    """Choose hidden states and calibration of a model by texts without labels.

    Every hidden state under every pooling is a candidate, raw and whitened with a noise floor.
    `SelfRetrieval` chooses the calibration of each; with ``thinned=0`` it then chooses among
    the hidden states thus calibrated. The one that the model was shipped with is kept unless
    another is better by more than two standard errors.

    Parameters
    ----------
    model : str, path-like or BertEncoder
        As `BertEncoder` takes it, or an encoder whose other parameters (device, dtype,
        max_length, special tokens) all candidates share.
    texts : texts of shape (n_texts,), or pairs of shape (n_pairs, 2)
        Of the kind that will be compared. The search sees a sample; the calibrator that it
        chooses is fitted on all of them.
    pooling : sequence of str, default=("mean", "cls", "max", "zipf")
        Poolings to try. "zipf" is left out where the vocabulary tells no frequencies.
    layers : sequence of int or None, default=None
        Hidden states to try; None tries all.
    n_components : sequence, default=(None, 256, 128)
        Kept dimensions to try, those below the width of the vectors.
    noise : sequence, default=("auto",)
        Noise of `Whitening` to try.
    n_texts : int, default=2000
        Most texts to sample, as in `SelfRetrieval`.
    random_state : int, default=0
        Seed of sample and views, as in `SelfRetrieval`.
    memory : None, path-like, joblib.Memory or VectorStore, default=None
        Where `BertEncoder` keeps vectors. None takes the ``memory`` of an encoder that was
        given, or else a temporary folder for the search.
    verbose : bool, default=False
        Show progress bars.

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
        If fewer than 20 distinct texts have six words, or a parameter does not fit.

    Notes
    -----
    "As shipped" is the last hidden state under the pooling that a sentence-transformers folder
    declares, and under "mean" where none is declared.

    Examples
    --------
    >>> from skcalib.datasets import load_toy_sts, minilm_path
    >>> from skcalib.model_selection import calibrate
    >>> sentences = load_toy_sts().data.ravel()[:300]
    >>> pipeline = calibrate(minilm_path(), sentences, layers=[0, 6], pooling=["mean"])
    >>> pipeline.calibration_.chosen.layers
    6
    >>> len(pipeline.transform(["A new sentence."]))
    1
    """
    texts = texts_of(texts, caller="calibrate")
    views = views_of(texts, n_texts, random_state, "calibrate")
    encoder = clone(model) if isinstance(model, BertEncoder) else BertEncoder(model)
    memory = encoder.memory if memory is None else memory
    returned = {"memory": memory, "verbose": encoder.verbose}
    verbose = bool(verbose or encoder.verbose)
    states, shipped_state = _hidden_states(encoder, pooling, layers)
    # Each half of the sample is scored by a calibrator fitted on the other.
    halves = [Views(views.sample[i::2], n_texts=n_texts, seed=random_state) for i in (0, 1)]
    seen, rows = distinct([t for half in halves for t in (*half.sample, *half.texts)])
    lengths = [len(part) for half in halves for part in (half.sample, half.texts)]
    first, first_views, second, second_views = np.split(rows, np.cumsum(lengths)[:-1])
    folds = [(second, halves[0], first_views), (first, halves[1], second_views)]
    ranks: dict[Key, np.ndarray] = {}
    temporary = partial(TemporaryDirectory, prefix="skcalib-", ignore_cleanup_errors=True)
    with temporary() if memory is None else nullcontext(memory) as store:
        pooled, layer = shipped_state
        encoder.set_params(pooling=pooled, layers=layer, memory=store, verbose=verbose)
        encoder.fit_transform(seen)  # what follows reads every hidden state back
        encoder.set_params(verbose=False)
        with progress(len(states), unit="state", desc="search", verbose=verbose) as advance:
            for pooled, layer in states:
                vectors = encoder.set_params(pooling=pooled, layers=layer).fit_transform(seen)
                for calibrator, values in _ranks(vectors, folds, noise, n_components).items():
                    ranks[pooled, layer, calibrator] = values
                advance(1)
        chosen = _choice(ranks, shipped_state)
        pooled, layer, calibrator = chosen
        encoder.set_params(pooling=pooled, layers=layer)
        # Otherwise the search has encoded most of the texts.
        if len(distinct(texts)[0]) > len(seen):
            encoder.set_params(memory=memory, verbose=verbose)
        steps = [("encode", encoder), ("calibrate", calibrator or "passthrough")]
        pipeline = Pipeline(steps).fit(texts)
    encoder.set_params(**returned)
    candidates = {
        key: Candidate(
            pooling=key[0],
            layers=key[1],
            calibrator="raw" if key[2] is None else repr(key[2]),
            score=_score(values),
            between_parts=values[0].mean().item(),
        )
        for key, values in ranks.items()
    }
    pipeline.calibration_ = Calibration(
        shipped=candidates[(*shipped_state, None)],
        chosen=candidates[chosen],
        candidates=_ordered(candidates.values()),
        n_texts=views.n_texts,
    )
    return pipeline


def _ordered(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Candidates in the order of a `Calibration`."""
    by_score = sorted(candidates, key=lambda c: -c.score)
    between: dict[State, float] = {}
    for c in by_score:
        between.setdefault((c.pooling, c.layers), c.between_parts)  # of the best calibration
    return tuple(sorted(by_score, key=lambda c: -between[c.pooling, c.layers]))


def _hidden_states(
    template: BertEncoder, pooling: Sequence[str], layers: Sequence[int] | None
) -> tuple[list[State], State]:
    """Pairs of pooling and layer to try, and the pair that the model was shipped with."""
    backbone = clone(template).set_params(pooling="mean", layers=-1).fit([""])._backbone()
    n_layers = backbone.n_layers
    asked = range(n_layers + 1) if layers is None else layers
    indices = [resolve_layers(layer, n_layers)[0] for layer in asked]
    poolings = [name for name in pooling if name != "zipf" or backbone.has_zipf]
    shipped = declared_pooling(backbone.folder), n_layers
    # The first token's embedding is the same in every text.
    states = [s for s in product(poolings, indices) if s != ("cls", 0)]
    return list(dict.fromkeys([shipped, *states])), shipped


def _ranks(
    vectors: np.ndarray,
    folds: Sequence[tuple[np.ndarray, Views, np.ndarray]],
    noise: Sequence[float | str],
    n_components: Sequence[int | None],
) -> dict[Whitening | None, np.ndarray]:
    """`Views.reciprocal_ranks` by calibrator, none of which was fitted on the text.

    The key None stands for raw vectors.
    """
    d = vectors.shape[1]
    kept = [k for k in n_components if k is None or k < d]
    ranks: dict[Whitening | None, list[np.ndarray]] = {None: []}
    whitenings = {level: [Whitening(k, noise=level) for k in kept] for level in noise}
    for fit_on, views, rows in folds:
        ranks[None].append(views.reciprocal_ranks(vectors[rows]))
        for level, candidates in whitenings.items():
            whole = Whitening(noise=level).fit(vectors[fit_on]).transform(vectors[rows])
            for candidate in candidates:  # the first columns of the whole are its own
                values = views.reciprocal_ranks(whole[:, : candidate.n_components])
                ranks.setdefault(candidate, []).append(values)
    return {candidate: np.hstack(parts) for candidate, parts in ranks.items()}


def _score(ranks: np.ndarray) -> float:
    """`SelfRetrieval` with its default weight."""
    return float(combined(*ranks.mean(axis=1)))


def _choice(ranks: dict[Key, np.ndarray], shipped_state: State) -> Key:
    """Key of the best candidate; of the shipped hidden state unless another clearly wins."""
    calibrated: dict[State, Key] = {}
    for key in sorted(ranks, key=lambda key: -_score(ranks[key])):
        calibrated.setdefault(key[:2], key)  # the best of each hidden state
    at_home = calibrated[shipped_state]
    best = max(calibrated.values(), key=lambda key: ranks[key][0].mean())
    gain = ranks[best][0] - ranks[at_home][0]
    standard_error = gain.std(ddof=1) / np.sqrt(len(gain))
    return best if gain.mean() > MARGIN * standard_error else at_home
