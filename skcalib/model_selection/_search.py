"""Self-retrieval of hidden states and their calibrations, with error bars."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from skcalib._base import progress
from skcalib._bi_encoder import vectors_of
from skcalib._whitening.estimator import Whitening
from skcalib.model_selection._bootstrap import Difference, interval, resamples
from skcalib.model_selection._encoders import State
from skcalib.model_selection._tasks import fitted
from skcalib.model_selection._views import Views, combined

__all__ = ["Choice", "Sample", "Scored", "choose", "search"]

# The simplest things to put behind an encoder, which stand beside its calibration.
PEERS = [
    ("mean subtracted", Whitening(power=0)),
    ("PCA(128)", Whitening(128, power=0)),
]


class Sample(NamedTuple):
    """Texts of a search, each once, and two folds: views of a half, fits on the other."""

    texts: list[str]
    folds: list[tuple[Views, list[int], list[int]]]  # views, their rows, and rows to fit on

    @classmethod
    def of(cls, views: Views, seed: int) -> Sample:
        """Split the texts of these views."""
        one, two = (Views(views.sample[i::2], n_texts=views.n_texts, seed=seed) for i in (0, 1))
        texts = list(dict.fromkeys([*views.sample, *one.texts, *two.texts]))
        row = {text: i for i, text in enumerate(texts)}
        folds = [
            (half, [row[text] for text in half.texts], [row[text] for text in other.sample])
            for half, other in ((one, two), (two, one))
        ]
        return cls(texts, folds)


@dataclass(frozen=True, eq=False)
class Scored:
    """A calibration of a hidden state, and each text's ranks by a fit that did not see it."""

    state: State
    name: str
    calibrator: Whitening | None
    ranks: np.ndarray  # (2, n_texts), see `Views.reciprocal_ranks`

    def halves(self, weights: np.ndarray | None = None) -> Any:
        """Mean reciprocal rank of halves, which compares hidden states."""
        return self._means(weights)[0]

    def score(self, weights: np.ndarray | None = None) -> Any:
        """Mean reciprocal rank of both kinds, which compares calibrations of a hidden state."""
        return combined(*self._means(weights))

    def _means(self, weights: np.ndarray | None) -> np.ndarray:
        if weights is None:
            return self.ranks.mean(axis=1)
        return np.minimum(self.ranks @ weights, 1.0)  # as no mean is larger, but for rounding


def search(
    encoders: Any, sample: Sample, whitening: Whitening, noise: float
) -> list[list[Scored]]:
    """Score every hidden state, raw and whitened.

    ``noise`` is that of a `Task`. The first hidden state is the one that the model was shipped
    with; the peers stand between its two.
    """
    found = []
    n_states = len(encoders.states)
    with progress(n_states, unit="state", desc="search", verbose=encoders.verbose) as advance:
        for state in encoders.states:
            vectors = vectors_of(encoders.fitted(state, sample.texts), sample.texts)
            _check_distinct(vectors, sample, state)
            name = repr(whitening) if noise == 1 else f"Whitening, {noise:g} times the noise"
            calibrators = [("raw", None), (name, whitening)]
            if state == encoders.states[0]:
                most = min(vectors.shape[1], *(len(fit_on) for *_, fit_on in sample.folds))
                calibrators[1:1] = [
                    peer for peer in PEERS if (peer[1].n_components or 0) < most
                ]
            found.append(
                [
                    Scored(state, name, calibrator, _ranks(vectors, sample, calibrator, noise))
                    for name, calibrator in calibrators
                ]
            )
            advance(1)
    return found


class Choice(NamedTuple):
    """What was chosen among the hidden states, and how clearly."""

    shipped: Scored
    chosen: Scored
    scored: list[list[Scored]]
    gains: list[Difference]  # of the shipped hidden state's scores over its raw one
    lead: Difference  # of the best hidden state over the shipped one, each calibrated


def choose(scored: list[list[Scored]], calibrates: bool, seed: int) -> Choice:
    """Choose among hidden states, whitened where that gains, or always if ``calibrates``."""
    shipped, whitened = scored[0][0], scored[0][-1]
    weights = resamples(shipped.ranks.shape[1], seed)
    gains = [_difference(one, shipped, Scored.score, weights) for one in scored[0]]
    at_home = whitened if calibrates or gains[-1].is_gain else shipped
    elsewhere = [
        whitened if calibrates or whitened.score() > raw.score() else raw
        for raw, whitened in scored[1:]
    ]
    best = max([at_home, *elsewhere], key=Scored.halves)
    lead = _difference(best, at_home, Scored.halves, weights)
    return Choice(shipped, best if lead.is_gain else at_home, scored, gains, lead)


def _difference(
    one: Scored, other: Scored, of: Callable[..., Any], weights: np.ndarray
) -> Difference:
    """Difference of a score, by the weights of `resamples`."""
    low, high = interval(of(one, weights) - of(other, weights))
    return Difference(float(of(one) - of(other)), float(low), float(high))


def _ranks(
    vectors: np.ndarray, sample: Sample, calibrator: Whitening | None, noise: float
) -> np.ndarray:
    """Ranks of the texts of each fold, by a fit on the other."""
    ranks = []
    for views, rows, fit_on in sample.folds:
        mapped = vectors[rows]
        if calibrator is not None:
            mapped = np.asarray(fitted(calibrator, vectors[fit_on], noise).transform(mapped))
        ranks.append(views.reciprocal_ranks(mapped))
    return np.hstack(ranks)


def _check_distinct(vectors: np.ndarray, sample: Sample, state: State) -> None:
    for _, _, fit_on in sample.folds:
        if np.allclose(vectors[fit_on], vectors[fit_on[0]]):
            raise ValueError(
                "calibrate got texts that have one and the same vector under "
                f"pooling={state[0]!r}, layers={state[1]}: the model knows none of their "
                "words. Choose a model for the language of these texts."
            )
