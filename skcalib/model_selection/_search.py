"""Self-retrieval scores of layers, poolings and calibrations, with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from skcalib.calibration.whitening.estimator import Whitening
from skcalib.encoders.any_encoder import encoded
from skcalib.model_selection._encoders import AsGiven, HiddenStates, State
from skcalib.model_selection._report import Candidate
from skcalib.model_selection._self_retrieval import FEWEST_TEXTS
from skcalib.model_selection._views import Views, combined, compares_layers
from skcalib.utils.base import progress
from skcalib.utils.bootstrap import Difference, leads, resamples

Fold = tuple[Views, np.ndarray, np.ndarray]  # vectors of the views, and those to fit on

RAW, MEAN_SUBTRACTED, PCA = "raw", "mean subtracted", "PCA(128)"
WHITENED, STRONG = "whitened", "strongly whitened"
DIMENSIONS = 128  # of the PCA


@dataclass(eq=False)
class Scored:
    """A calibration of a layer and pooling; each text's ranks come from a fit without it."""

    state: State
    name: str
    calibrator: Whitening | None
    ranks: np.ndarray  # (2, n_texts), see `Views.reciprocal_ranks`
    power: float = 0.0  # of the whitening, the greatest of the fits
    gain: Any = None  # a Difference in score, over the raw vectors of that layer and pooling

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

    def row(self, has_gain: bool) -> Candidate:
        """Return the row of the report."""
        scores = float(self.score()), float(self.halves())
        name = repr(self.calibrator) if self.name in (WHITENED, STRONG) else self.name
        return Candidate(*self.state, name, *scores, self.gain if has_gain else None)


def score_calibrations(
    state: State, folds: Sequence[Fold], whitening: Whitening, is_shipped: bool
) -> list[Scored]:
    """Score the vectors of a layer and pooling, raw and calibrated.

    Subtracting the mean and PCA are tried for the raw model only, PCA just for comparison. The
    strong whitening is that of the papers, with noise. A given noise or number of groups
    specifies the strength, and leaves it out. So does an output that was trained for cosines,
    of which the neutral power is 0: there a strong whitening finds each text by what nothing
    else has, which the score rewards, and loses topics, which it does not see.
    """
    candidates: dict[str, Whitening | None] = {RAW: None}
    if is_shipped and whitening.n_components is None:
        candidates[MEAN_SUBTRACTED] = Whitening(power=0)
    if is_shipped and min(min(fit_on.shape) for *_, fit_on in folds) > DIMENSIONS:
        candidates[PCA] = Whitening(DIMENSIONS, power=0)
    candidates[WHITENED] = whitening
    scored = [_scored(state, folds, *candidate) for candidate in candidates.items()]
    is_free = whitening.noise == "auto" and whitening.n_groups is None
    if is_free and scored[-1].power > 0:
        strong = clone(whitening).set_params(power=1.0)
        scored.append(_scored(state, folds, STRONG, strong))
    return scored


def search(
    encoders: AsGiven | HiddenStates, halves: Sequence[Views], whitening: Whitening
) -> list[list[Scored]]:
    """Score every layer under every pooling, raw and calibrated.

    The views of each half of the texts are scored by a fit on the other half. The first state
    is the raw model's.
    """
    found = []
    n_states = len(encoders.states)
    with progress(n_states, unit="state", desc="search", verbose=encoders.verbose) as advance:
        for state in encoders.states:
            folds = [_fold(encoders, state, *pair) for pair in (halves, halves[::-1])]
            is_shipped = state == encoders.states[0]
            found.append(score_calibrations(state, folds, whitening, is_shipped))
            advance(1)
    return found


def _fold(encoders: AsGiven | HiddenStates, state: State, views: Views, others: Views) -> Fold:
    """Return views, their vectors, and those of the other texts, which the fit may see."""
    encoder = encoders.fitted(state, others.sample)
    fit_on = encoded(encoder, others.sample)
    if np.allclose(fit_on, fit_on[0], atol=1e-5 * np.abs(fit_on).max()):
        raise ValueError(
            f"calibrate got texts that all have the same vector with pooling={state[0]!r}, "
            f"layers={state[1]}: the model knows none of their words. Choose a model for the "
            "language of these texts."
        )
    return views, encoded(encoder, views.texts), fit_on


def _scored(
    state: State, folds: Sequence[Fold], name: str, calibrator: Whitening | None
) -> Scored:
    """Rank the texts of each fold by a fit on the other."""
    ranks, power = [], 0.0
    for views, mapped, fit_on in folds:
        if calibrator is not None:
            fitted = clone(calibrator).fit(fit_on)
            power = max(power, fitted.power_)
            mapped = np.asarray(fitted.transform(mapped))
        ranks.append(views.reciprocal_ranks(mapped))
    return Scored(state, name, calibrator, np.hstack(ranks), power)


def choose(
    scored: list[list[Scored]], groups: np.ndarray, calibrates: bool, seed: int
) -> tuple[Scored, dict[str, Any]]:
    """Choose a layer and pooling, and its calibration; if ``calibrates``, a whitening.

    ``groups`` holds the group of each text: near-duplicates are one piece of evidence. Also
    returns fields of a `Calibration`.
    """
    weights, n_groups = resamples(groups, seed), int(groups.max()) + 1
    # With few groups, which are no evidence, only the range of scores is certain.
    unknown = {"low": -1.0, "high": 1.0} if n_groups < FEWEST_TEXTS else {}

    def lead(candidates: list[Scored], measure: Any) -> list[Difference]:
        values = np.array([measure(one, None) for one in candidates])
        means = np.array([measure(one, weights) for one in candidates])
        return [replace(found, **unknown) for found in leads(values, means)]

    states = [_best_calibration(state, lead, calibrates) for state in scored]
    shipped, halves = scored[0][0], lead(states, Scored.halves)
    best = max(range(len(states)), key=lambda i: halves[i].mean)
    most = max(one.halves() for one in states)
    comparable = compares_layers(most, shipped.ranks.shape[1] // 2)
    chosen = states[best if comparable and halves[best].is_gain else 0]
    in_order = sorted(scored, key=lambda state: -max(one.halves() for one in state))
    rows = [
        one.row(has_gain=state is scored[0])
        for state in in_order
        for one in sorted(state, key=lambda c: -c.score())
    ]
    whitened = next(one for one in scored[0] if one.name == WHITENED)
    return chosen, {
        "reason": _reason(chosen, scored[0], n_groups),
        "shipped": shipped.row(has_gain=True),
        "chosen": chosen.row(has_gain=chosen in scored[0]),
        "candidates": tuple(rows),
        "n_groups": n_groups,
        "gain": whitened.gain,
        "lead": halves[best],
    }


def _reason(chosen: Scored, shipped: list[Scored], n_groups: int) -> str:
    """Return why a candidate was chosen, see `Calibration`."""
    if chosen not in shipped:
        return "layer"
    if chosen.name == RAW:
        return "few texts" if n_groups < FEWEST_TEXTS else "no gain"
    if not chosen.gain.is_gain:
        return "task"
    return "mean subtracted" if chosen.name == MEAN_SUBTRACTED else "whitening"


def _best_calibration(state: list[Scored], lead: Any, calibrates: bool) -> Scored:
    """Choose the calibration of a layer and pooling by evidence; without any it stays raw.

    Copies with words dropped share rare words with their text. A strong whitening finds the
    text by these, and may still lose similar texts: it must be better by halves, too.
    """
    for one, gain in zip(state, lead(state, Scored.score), strict=True):
        one.gain = gain
    by_name = {one.name: one for one in state}
    simple = (by_name.get(name) for name in (MEAN_SUBTRACTED, WHITENED))
    better = [one for one in simple if one and one.gain.is_gain]
    chosen = max(better, key=Scored.score, default=state[0])
    if calibrates:
        chosen = by_name[WHITENED]
    strong = by_name.get(STRONG, chosen)
    kinds = (lead([chosen, strong], measure)[1] for measure in (Scored.score, Scored.halves))
    return strong if all(kind.is_gain for kind in kinds) else chosen
