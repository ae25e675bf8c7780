"""Self-retrieval scores of layers, poolings and calibrations, and the choice by them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone

from skcalib.base import progress
from skcalib.encoders.pipelines import encoded
from skcalib.model_selection._candidates import RAW, Candidate, Evidence, not_trained
from skcalib.model_selection._encoders import AsGiven, HiddenStates, State
from skcalib.model_selection._self_retrieval import FEWEST_TEXTS
from skcalib.model_selection._views import Views, combined, compares_layers
from skcalib.statistics.bootstrap import Difference, leads

Fold = tuple[Views, np.ndarray, np.ndarray]  # vectors of the views, and those to fit on

UNKNOWN = Difference(np.nan, np.nan, np.nan)
SURE = 1e-3  # how near a mean rank may be to 0 or 1, where a logit has no slope


@dataclass(eq=False)
class Scored:
    """A candidate on a layer and pooling; each text's ranks come from a fit without it."""

    state: State
    candidate: Candidate
    # (2, n_texts), see `Views.reciprocal_ranks`; no texts if nothing was compared
    ranks: np.ndarray = field(default_factory=lambda: np.empty((2, 0)))
    gain: Difference = UNKNOWN  # in score, over the raw vectors of that layer and pooling
    lead: Difference = UNKNOWN  # in halves, over the raw model's layer and pooling, if chosen

    def halves(self) -> float:
        """Split-half score, which compares layers and poolings."""
        return self._means()[0]

    def score(self) -> float:
        """Both kinds of ranks, which compares calibrations of one layer and pooling."""
        return combined(*self._means())

    def _means(self) -> tuple[float, float]:
        if not self.ranks.size:
            return np.nan, np.nan
        halves, thinned = np.minimum(self.ranks.mean(axis=1), 1.0)  # rounding may exceed 1
        return float(halves), float(thinned)

    def halves_of_texts(self) -> np.ndarray:
        """Values of texts whose mean is `halves`."""
        return self.ranks[0]

    def scores_of_texts(self) -> np.ndarray:
        """Values of texts whose mean is `score`, linear in the ranks of each text."""
        means, score = np.clip(self._means(), SURE, 1 - SURE), self.score()
        slopes = score * (1 - score) / (2 * means * (1 - means))  # of `combined`
        return score + slopes @ (self.ranks - self.ranks.mean(axis=1)[:, None])


class Found(NamedTuple):
    """What a search has found."""

    states: list[list[Scored]]  # of each layer and pooling, raw vectors first
    is_trained: bool  # whether the first, the raw model's, was trained for similarity
    are_long: bool  # whether halves of the texts say what these are about


def search(
    encoders: AsGiven | HiddenStates, halves: Sequence[Views], candidates: Sequence[Candidate]
) -> Found:
    """Score every layer under every pooling, raw and calibrated.

    The views of each half of the texts are scored by a fit on the other half. The first state
    is the raw model's.
    """
    is_trained = True
    scored = []
    n_states = len(encoders.states)
    with progress(n_states, unit="state", desc="search", verbose=encoders.verbose) as advance:
        for state in encoders.states:
            folds = [_fold(encoders, state, *pair) for pair in (halves, halves[::-1])]
            is_shipped, fitted_on = state == encoders.states[0], [fold[2] for fold in folds]
            if is_shipped:
                is_trained = not not_trained(is_shipped, fitted_on)
            tried = [c for c in candidates if c.is_tried(is_shipped, fitted_on)]
            scored.append([Scored(state, c, _ranks(folds, c)) for c in tried])
            advance(1)
    return Found(scored, is_trained, all(views.are_long for views in halves))


def _fold(encoders: AsGiven | HiddenStates, state: State, views: Views, others: Views) -> Fold:
    """Return views, their vectors, and those of the other texts, which the fit may see."""
    encoder = encoders.fitted(state, others.sample)
    fit_on = encoded(encoder, others.sample)
    if np.allclose(fit_on, fit_on[0], atol=1e-5 * np.abs(fit_on).max()):
        raise ValueError(
            "CalibrationSearch got texts that all have the same vector with "
            f"pooling={state[0]!r}, layers={state[1]}: the model knows none of their words. "
            "Choose a model for the language of these texts."
        )
    return views, encoded(encoder, views.texts), fit_on


def _ranks(folds: Sequence[Fold], candidate: Candidate) -> np.ndarray:
    """Rank the texts of each fold by a fit on the other."""
    ranks = []
    for views, vectors, fit_on in folds:
        if candidate.calibrator != "passthrough":
            try:  # some calibrators change the vectors that they get
                fitted = clone(candidate.calibrator).fit(fit_on.copy())
                found = fitted.transform(vectors.copy())
            except Exception as error:
                error.add_note(f"The candidate {candidate.name!r} of the search raised this.")
                raise
            vectors = _checked(found, len(vectors), candidate)
        ranks.append(views.reciprocal_ranks(vectors))
    return np.hstack(ranks)


def _checked(vectors: Any, n: int, candidate: Candidate) -> np.ndarray:
    """Return what a candidate makes of n vectors, or raise a ValueError that names it."""
    if issparse(vectors) or np.ndim(vectors) != 2 or len(vectors) != n:
        came = f"a {type(vectors).__name__} of shape {np.shape(vectors)}"
    elif not np.isfinite(array := np.asarray(vectors, dtype=np.float64)).all():
        came = "vectors that are not finite"
    else:
        return array
    raise ValueError(
        f"The candidate {candidate.name!r} returned {came}; expected a dense array of {n} rows "
        f"of finite numbers. Correct {candidate.calibrator!r:.80}, or leave it out."
    )


def choose(found: Found, groups: np.ndarray, seed: int) -> tuple[Scored, str]:
    """Choose a layer and pooling, and its calibration; return it, and the reason in words.

    ``groups`` holds the group of each text: near-duplicates are one piece of evidence.
    """
    n_groups = int(groups.max()) + 1
    # With few groups, which are no evidence, only the range of scores is certain.
    unknown = {"low": -1.0, "high": 1.0} if n_groups < FEWEST_TEXTS else {}

    def lead(candidates: list[Scored], measure: Callable[..., Any]) -> list[Difference]:
        values = np.array([measure(one) for one in candidates])
        return [replace(difference, **unknown) for difference in leads(values, groups, seed)]

    best = [_best_calibration(state, lead) for state in found.states]
    for one, difference in zip(best, lead(best, Scored.halves_of_texts), strict=True):
        one.lead = difference
    if len(best) > 1 and not found.is_trained and n_groups >= FEWEST_TEXTS:
        return _best_of_raw_model(best, found.are_long)
    leader, n_texts = max(best, key=lambda one: one.lead.mean), best[0].ranks.shape[1]
    most = max(one.halves() for one in best)
    comparable = compares_layers(most, n_texts // 2)
    chosen = leader if comparable and leader.lead.is_gain else best[0]
    return chosen, _reason(chosen, found.states[0], n_texts, n_groups)


def _best_of_raw_model(best: list[Scored], are_long: bool) -> tuple[Scored, str]:
    """Choose a layer and pooling of a model of which none was trained for similarity.

    So the last layer is no better than others before the texts have been seen, and the best
    score decides. Halves of short texts say little; copies with words dropped favor the
    embedding layer, which shares words with everything, so it is no candidate there.
    """
    measure = Scored.halves if are_long else Scored.score
    others = [one for one in best if are_long or one.state[1] != 0]
    kind = "halves" if are_long else "score, since halves of short texts say little"
    return max(others or best, key=measure), (
        "No layer of this model was trained for similarity, so that none is preferred: the "
        f"layer and pooling have the best {kind}."
    )


def _best_calibration(state: list[Scored], lead: Any) -> Scored:
    """Choose the calibration of a layer and pooling by evidence; without any it stays raw.

    Copies with words dropped share rare words with their text. A calibrator may find the text
    by these words and still lose similar texts, so strong ones must be better by halves, too.
    """
    for one, gain in zip(state, lead(state, Scored.scores_of_texts), strict=True):
        one.gain = gain
    of_kind = {kind: [s for s in state if s.candidate.evidence is kind] for kind in Evidence}
    better = [one for one in of_kind[Evidence.SCORE] if one.gain.is_gain]
    chosen = max(better, key=Scored.score, default=state[0])
    chosen = next(iter(of_kind[Evidence.NONE]), chosen)
    rivals = [chosen, *of_kind[Evidence.BOTH]]
    measures = Scored.scores_of_texts, Scored.halves_of_texts
    kinds = [lead(rivals, measure) for measure in measures]
    better = [
        one for one, *gains in zip(rivals, *kinds, strict=True) if all(g.is_gain for g in gains)
    ]
    return max(better, key=Scored.score, default=chosen)


def _reason(chosen: Scored, shipped: list[Scored], n_texts: int, n_groups: int) -> str:
    """Return why a candidate was chosen."""
    candidate, gain = chosen.candidate, chosen.gain
    if chosen not in shipped:
        return (
            "Another layer and pooling leads that of the raw model by "
            f"{chosen.lead} in halves, each calibrated; the interval accounts for the choice "
            "among many."
        )
    if candidate.evidence is Evidence.NONE:
        return (
            f"{candidate.name!r} follows from {candidate.asked_by}. It changes the score of "
            f"raw vectors, which does not see what they are for, by {gain}."
        )
    if candidate.name != RAW:
        also = " and the halves," if candidate.evidence is Evidence.BOTH else ","
        by = f"by {gain}{also} beyond chance"
        return f"{candidate.name!r} improves the score of raw vectors {by}."
    if n_groups < FEWEST_TEXTS:
        return (
            f"The raw model stays: the {n_texts} texts share most of their words and count as "
            f"{n_groups} groups; fewer than {FEWEST_TEXTS} are too few for evidence."
        )
    others = (s for s in shipped[1:] if s.candidate.evidence is not Evidence.NEVER)
    best = max(others, key=Scored.score)
    return (
        "The raw model stays: no candidate gains beyond chance. The best, "
        f"{best.candidate.name!r}, changes the score of raw vectors by {best.gain}."
    )


def results_of(scored: Sequence[Scored]) -> dict[str, np.ndarray]:
    """Return the candidates as columns of a table, see `CalibrationSearch`."""
    rows = [
        {
            "pooling": one.state[0],
            "layers": one.state[1],
            "candidate": one.candidate.name,
            "calibrator": " ".join(str(one.candidate.calibrator).split()),
            "score": one.score(),
            "halves": one.halves(),
            **_ends("gain", one.gain),
            **_ends("lead", one.lead),
        }
        for one in scored
    ]
    columns = {}
    for name, value in rows[0].items():
        # An array of objects, one by one, since layers may be tuples.
        column = np.empty(len(rows), float if isinstance(value, float) else object)
        for i, row in enumerate(rows):
            column[i] = row[name]
        columns[name] = column
    return columns


def _ends(name: str, difference: Difference) -> dict[str, float]:
    values = difference.mean, difference.low, difference.high
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))
