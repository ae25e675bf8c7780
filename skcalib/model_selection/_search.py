"""Self-retrieval scores of layers, poolings and calibrations, with intervals."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import clone

from skcalib._base import progress
from skcalib._encoder.any_encoder import encoded
from skcalib._whitening.estimator import Whitening
from skcalib.model_selection._bootstrap import Difference, interval, lead_of_best, resamples
from skcalib.model_selection._encoders import State
from skcalib.model_selection._self_retrieval import FEWEST_TEXTS
from skcalib.model_selection._views import Views, combined, near_duplicates

Fold = tuple[Views, np.ndarray, np.ndarray]  # vectors of the views, and those to fit on

# How far beyond chance halves of the texts must find each other, for layers to be compared. In
# questions of ten words they hardly do, except by shared words, and a layer that is better at
# that can lose ten points of R-precision.
LEAST_HALVES = 0.03

# The simplest alternatives to whitening, shown for comparison.
PEERS = [
    ("mean subtracted", Whitening(power=0)),
    ("PCA(128)", Whitening(128, power=0)),
]


class Sample(NamedTuple):
    """Distinct texts of a search, and two folds: views of one half, fits on the other."""

    groups: np.ndarray  # of near-duplicates: the group of each text that has views
    texts: list[str]
    folds: list[tuple[Views, list[int], list[int]]]  # views, their rows, and rows to fit on

    @classmethod
    def of(cls, views: Views, seed: int) -> Self:
        """Split the texts of these views."""
        one, two = (Views(views.sample[i::2], n_texts=views.n_texts, seed=seed) for i in (0, 1))
        texts = list(dict.fromkeys([*views.sample, *one.texts, *two.texts]))
        row = {text: i for i, text in enumerate(texts)}
        folds = [
            (half, [row[text] for text in half.texts], [row[text] for text in other.sample])
            for half, other in ((one, two), (two, one))
        ]
        return cls(near_duplicates([*one.sample, *two.sample]), texts, folds)


@dataclass(frozen=True, eq=False)
class Scored:
    """A calibration of a layer and pooling; each text's ranks come from a fit without it."""

    state: State
    name: str
    calibrator: Whitening | None
    ranks: np.ndarray  # (2, n_texts), see `Views.reciprocal_ranks`

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


def search(encoders: Any, sample: Sample, whitening: Whitening) -> list[list[Scored]]:
    """Score every layer under every pooling, raw and whitened.

    The first state is the raw model's; the alternatives come between its raw and its whitened
    scores.
    """
    found = []
    n_states = len(encoders.states)
    with progress(n_states, unit="state", desc="search", verbose=encoders.verbose) as advance:
        for state in encoders.states:
            folds = list(_folds(encoders, state, sample))
            _check_distinct(folds, state)
            calibrators = [("raw", None), (repr(whitening), whitening)]
            if state == encoders.states[0]:
                most = min(min(fitted_on.shape) for *_, fitted_on in folds)
                calibrators[1:1] = [
                    peer for peer in PEERS if (peer[1].n_components or 0) < most
                ]
            found.append([Scored(state, *one, _ranks(folds, one[1])) for one in calibrators])
            advance(1)
    return found


def _folds(encoders: Any, state: State, sample: Sample) -> Iterator[Fold]:
    """Yield the views of each fold, their vectors, and the vectors that a fit may see."""
    vectors = None
    if not encoders.learns:
        vectors = encoded(encoders.fitted(state, sample.texts), sample.texts)
    for views, rows, fit_on in sample.folds:
        if vectors is not None:
            yield views, vectors[rows], vectors[fit_on]
        else:  # it must not see the texts that it is scored on
            texts = [sample.texts[i] for i in fit_on]
            encoder = encoders.fitted(state, texts)
            yield views, encoded(encoder, views.texts), encoded(encoder, texts)


class Choice(NamedTuple):
    """What was chosen, and how clearly."""

    shipped: Scored
    chosen: Scored
    scored: list[list[Scored]]
    gains: list[Difference]  # in score, of calibrations of the raw model over itself
    lead: Difference  # in halves, of the best state over the raw model's, each calibrated
    n_groups: int  # of near-duplicates


def choose(
    scored: list[list[Scored]], groups: np.ndarray, calibrates: bool, seed: int
) -> Choice:
    """Choose a state, whitened if that improves its score, or always if ``calibrates``.

    ``groups`` holds the group of each text: near-duplicates are one piece of evidence.
    """
    shipped, whitened = scored[0][0], scored[0][-1]
    weights = resamples(groups, seed)
    gains = [_difference(one, shipped, weights) for one in scored[0]]
    at_home = whitened if calibrates or gains[-1].is_gain else shipped
    elsewhere = [
        whitened if calibrates or whitened.score() > raw.score() else raw
        for raw, whitened in scored[1:]
    ]
    states = [at_home, *elsewhere]
    halves = np.array([one.halves() for one in states])
    best, lead = lead_of_best(halves, np.array([one.halves(weights) for one in states]))
    n_groups = int(groups.max()) + 1
    if n_groups < FEWEST_TEXTS:  # no evidence, so that only the range of scores is certain
        *gains, lead = (replace(one, low=-1.0, high=1.0) for one in (*gains, lead))
    tells = tells_layers(halves.max(), shipped.ranks.shape[1] // 2)
    chosen = states[best] if tells and lead.is_gain else at_home
    return Choice(shipped, chosen, scored, gains, lead, n_groups)


def tells_layers(halves: float, n: int) -> bool:
    """Whether halves of texts find each other among n beyond chance, a rank from 1 to n."""
    chance = np.sum(1 / np.arange(1, n + 1)) / n
    return bool(halves - chance >= LEAST_HALVES * (1 - chance))


def _difference(one: Scored, other: Scored, weights: np.ndarray) -> Difference:
    """Difference of the score, by the weights of `resamples`."""
    low, high = interval(one.score(weights) - other.score(weights))
    return Difference(float(one.score() - other.score()), float(low), float(high))


def _ranks(folds: list[Fold], calibrator: Whitening | None) -> np.ndarray:
    """Ranks of the texts of each fold, by a fit on the other."""
    ranks = []
    for views, mapped, fit_on in folds:
        if calibrator is not None:
            mapped = np.asarray(clone(calibrator).fit(fit_on).transform(mapped))
        ranks.append(views.reciprocal_ranks(mapped))
    return np.hstack(ranks)


def _check_distinct(folds: list[Fold], state: State) -> None:
    for *_, fit_on in folds:
        if np.allclose(fit_on, fit_on[0], atol=1e-5 * np.abs(fit_on).max()):
            raise ValueError(
                "calibrate got texts that all have the same vector under "
                f"pooling={state[0]!r}, layers={state[1]}: the model knows none of their "
                "words. Choose a model for the language of these texts."
            )
