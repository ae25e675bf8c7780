"""Self-retrieval scores of layers, poolings and calibrations, with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from skcalib._base import progress
from skcalib._encoder.any_encoder import encoded
from skcalib._whitening.estimator import Whitening
from skcalib.model_selection._bootstrap import Difference, interval, lead_of_best, resamples
from skcalib.model_selection._encoders import AsGiven, HiddenStates, State
from skcalib.model_selection._report import Candidate
from skcalib.model_selection._self_retrieval import FEWEST_TEXTS
from skcalib.model_selection._views import Views, combined, tells_layers

Fold = tuple[Views, np.ndarray, np.ndarray]  # vectors of the views, and those to fit on

# The simplest alternatives to whitening, shown for comparison.
PEERS = [
    ("mean subtracted", Whitening(power=0)),
    ("PCA(128)", Whitening(128, power=0)),
]


@dataclass(eq=False)
class Scored:
    """A calibration of a layer and pooling; each text's ranks come from a fit without it."""

    state: State
    name: str
    calibrator: Whitening | None
    ranks: np.ndarray  # (2, n_texts), see `Views.reciprocal_ranks`
    gain: Any = None  # a Difference in score, of a calibration of the raw model over it

    def halves(self, weights: np.ndarray | None = None) -> Any:
        """Split-half score, which compares layers and poolings."""
        return self._means(weights)[0]

    def score(self, weights: np.ndarray | None = None) -> Any:
        """Both kinds of ranks, which compares calibrations of one layer and pooling."""
        return combined(*self._means(weights))

    def _means(self, weights: np.ndarray | None) -> np.ndarray:
        if weights is None:
            return self.ranks.mean(axis=1)
        return np.minimum(self.ranks @ weights, 1.0)  # rounding may exceed 1

    def row(self) -> Candidate:
        """Return the row of the report."""
        scores = float(self.score()), float(self.halves())
        return Candidate(*self.state, self.name, *scores, self.gain)


def search(
    encoders: AsGiven | HiddenStates, halves: Sequence[Views], whitening: Whitening
) -> list[list[Scored]]:
    """Score every layer under every pooling, raw and whitened.

    The views of each half of the texts are scored by a fit on the other half. The first state
    is the raw model's; the alternatives come between its raw and its whitened scores.
    """
    found = []
    n_states = len(encoders.states)
    with progress(n_states, unit="state", desc="search", verbose=encoders.verbose) as advance:
        for state in encoders.states:
            folds = [_fold(encoders, state, *pair) for pair in (halves, halves[::-1])]
            calibrators = [("raw", None), (repr(whitening), whitening)]
            if state == encoders.states[0]:
                most = min(min(fit_on.shape) for *_, fit_on in folds)
                calibrators[1:1] = [
                    peer for peer in PEERS if (peer[1].n_components or 0) < most
                ]
            found.append([Scored(state, *one, _ranks(folds, one[1])) for one in calibrators])
            advance(1)
    return found


def _fold(encoders: AsGiven | HiddenStates, state: State, views: Views, others: Views) -> Fold:
    """Return views, their vectors, and those of the other texts, which the fit may see."""
    encoder = encoders.fitted(state, others.sample)
    fit_on = encoded(encoder, others.sample)
    if np.allclose(fit_on, fit_on[0], atol=1e-5 * np.abs(fit_on).max()):
        raise ValueError(
            "calibrate got texts that all have the same vector under "
            f"pooling={state[0]!r}, layers={state[1]}: the model knows none of their words. "
            "Choose a model for the language of these texts."
        )
    return views, encoded(encoder, views.texts), fit_on


def _ranks(folds: list[Fold], calibrator: Whitening | None) -> np.ndarray:
    """Ranks of the texts of each fold, by a fit on the other."""
    ranks = []
    for views, mapped, fit_on in folds:
        if calibrator is not None:
            mapped = np.asarray(clone(calibrator).fit(fit_on).transform(mapped))
        ranks.append(views.reciprocal_ranks(mapped))
    return np.hstack(ranks)


def choose(
    scored: list[list[Scored]], groups: np.ndarray, calibrates: bool, seed: int
) -> tuple[Scored, dict[str, Any]]:
    """Choose a state, whitened if that improves its score, or always if ``calibrates``.

    ``groups`` holds the group of each text: near-duplicates are one piece of evidence. Returns
    also what a `Calibration` says of the choice.
    """
    shipped, whitened = scored[0][0], scored[0][-1]
    weights, n_groups = resamples(groups, seed), int(groups.max()) + 1
    # Of a few groups, which are no evidence, only the range of scores is certain.
    unknown = {"low": -1.0, "high": 1.0} if n_groups < FEWEST_TEXTS else {}
    for one in scored[0]:
        ends = interval(one.score(weights) - shipped.score(weights)).tolist()
        gain = Difference(float(one.score() - shipped.score()), *ends)
        one.gain = replace(gain, **unknown)
    states = [whitened if calibrates or whitened.gain.is_gain else shipped]
    for raw, last in scored[1:]:
        states.append(last if calibrates or last.score() > raw.score() else raw)
    halves = np.array([one.halves() for one in states])
    best, lead = lead_of_best(halves, np.array([one.halves(weights) for one in states]))
    lead = replace(lead, **unknown)
    tells = tells_layers(halves.max(), shipped.ranks.shape[1] // 2)
    chosen = states[best if tells and lead.is_gain else 0]
    in_order = sorted(scored, key=lambda state: -max(one.halves() for one in state))
    rows = [one.row() for state in in_order for one in sorted(state, key=lambda c: -c.score())]
    return chosen, {
        "shipped": shipped.row(),
        "chosen": chosen.row(),
        "candidates": tuple(rows),
        "n_groups": n_groups,
        "gain": whitened.gain,
        "lead": lead,
    }
