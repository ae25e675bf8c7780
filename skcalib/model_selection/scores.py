"""Self-retrieval of candidates on layers, poolings and prompts, and the choice by it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_array
from sklearn.utils.validation import check_consistent_length

from skcalib.calibration.whitening import Whitening
from skcalib.callbacks import part_task, subtask
from skcalib.encoders.pipelines import encoded
from skcalib.model_selection.encoders import AsGiven, HiddenStates, State
from skcalib.model_selection.self_retrieval import FEWEST_TEXTS
from skcalib.model_selection.views import Views
from skcalib.statistics.bootstrap import Difference, leads

KINDS = "halves", "thinned"
UNKNOWN = Difference(np.nan, np.nan, np.nan)

Fold = tuple[Views, np.ndarray, np.ndarray]  # vectors of the views, and those to fit on


class Candidate(NamedTuple):
    """A calibrator to try, or "passthrough" for none."""

    name: str
    calibrator: Any


@dataclass(eq=False)
class Scored:
    """A candidate in a state of the encoder; ranks of each text are by a fit without it."""

    state: State
    candidate: Candidate
    # (2, n_texts), see `Views.reciprocal_ranks`; no texts if nothing was compared
    ranks: np.ndarray = field(default_factory=lambda: np.empty((2, 0)))
    is_raw_output: bool = False  # of vectors that were not trained for cosines
    # Of each kind, over the reference; unknown if nothing was compared.
    leads: tuple[Difference, ...] = (UNKNOWN, UNKNOWN)

    def least_lead(self) -> float:
        """Lead in the kind of score in which it is smaller."""
        return min(lead.mean for lead in self.leads)

    def is_better(self) -> bool:
        """Whether both kinds of the score are better than the reference's beyond chance."""
        return all(lead.is_gain for lead in self.leads)

    def gain(self) -> str:
        """Both leads in words."""
        return "{} in halves and {} in thinned copies".format(*self.leads)

    def __str__(self) -> str:
        pooling, layers, prompt = self.state
        parts = [] if layers is None else [f"pooling={pooling!r}", f"layers={layers}"]
        parts += [] if prompt is None else [f"prompt={prompt!r}"]
        return repr(self.candidate.name) + (f" with {', '.join(parts)}" if parts else "")


def scored(
    encoders: AsGiven | HiddenStates, halves: Sequence[Views], candidates: Sequence[Candidate]
) -> list[Scored]:
    """Score each candidate in each state on views of each half, by a fit on the other half."""
    rows = []
    with part_task("compare", n_subtasks=len(encoders.states) * len(candidates)):
        for state in encoders.states:
            folds = [_fold(encoders, state, *pair) for pair in (halves, halves[::-1])]
            neutral = [Whitening(power="auto").fit(fit_on) for *_, fit_on in folds]
            is_raw_output = any(whitening.power_ > 0 for whitening in neutral)
            for candidate in candidates:
                end = subtask("candidate")
                rows.append(Scored(state, candidate, _ranks(folds, candidate), is_raw_output))
                end()
    return rows


def _fold(encoders: AsGiven | HiddenStates, state: State, views: Views, others: Views) -> Fold:
    """Return views, their vectors, and those of the other texts, which the fit may see."""
    encoder = encoders.at(state, others.sample).fit(others.sample, None)
    fit_on = encoded(encoder, others.sample)
    if np.allclose(fit_on, fit_on[0], atol=1e-5 * np.abs(fit_on).max()):
        raise ValueError(
            "CalibrationSearch got texts that all have the same vector with "
            f"pooling={state.pooling!r}, layers={state.layers}: the model knows none of their "
            "words. Choose a model for the language of these texts."
        )
    return views, encoded(encoder, views.texts), fit_on


def _ranks(folds: Sequence[Fold], candidate: Candidate) -> np.ndarray:
    """Rank the texts of each fold by a fit on the other."""
    ranks = []
    for views, vectors, fit_on in folds:
        if candidate.calibrator != "passthrough":
            try:  # some calibrators change the vectors that they get
                fitted = clone(candidate.calibrator).fit(fit_on.copy())
                vectors = check_array(fitted.transform(vectors.copy()), dtype=np.float64)
                check_consistent_length(vectors, views.texts)
            except Exception as error:
                error.add_note(f"The candidate {candidate.name!r} of the search raised this.")
                raise
        ranks.append(views.reciprocal_ranks(vectors))
    return np.hstack(ranks)


def choose(
    rows: Sequence[Scored], groups: np.ndarray, seed: int, determined_by: str = ""
) -> tuple[Scored, str]:
    """Choose a candidate in a state of the encoder; return it, and the reason in words.

    ``rows`` begin with raw vectors in the first state. The reference is the encoder as it is
    given: with the default calibration, the second row, if a parameter determines it or if the
    vectors were not trained for cosines, and raw otherwise. ``groups`` are of near-duplicates.
    """
    n_groups = int(groups.max()) + 1
    rivals = [
        row
        for row in rows
        if row.candidate.calibrator != "passthrough" or not (determined_by or row.is_raw_output)
    ]
    reference = rivals[0]
    ordered = [reference, *(row for row in rows if row is not reference)]
    for i, _ in enumerate(KINDS):
        ranks = np.array([row.ranks[i] for row in ordered])
        for row, lead in zip(ordered, leads(ranks, groups, seed), strict=True):
            if n_groups < FEWEST_TEXTS:  # no evidence: only the range of scores is certain
                lead = replace(lead, low=-1.0, high=1.0)
            row.leads = *row.leads[:i], lead
    better = [row for row in rivals if row.is_better()]
    if better:
        chosen = max(better, key=Scored.least_lead)
        return chosen, (
            f"{chosen} leads {reference} by {chosen.gain()}; the intervals account for the "
            "choice among many."
        )
    if determined_by:
        reason = f"{reference} follows from {determined_by}."
    elif reference.is_raw_output:
        reason = f"{reference} stays, the default where no vectors were trained for similarity."
    else:
        reason = "The raw model stays."
    if n_groups < FEWEST_TEXTS:
        return reference, (
            f"{reason} The {len(groups)} texts share most of their words and count as "
            f"{n_groups} groups; fewer than {FEWEST_TEXTS} are too few for evidence."
        )
    others = [row for row in rivals if row is not reference]
    if others:
        best = max(others, key=Scored.least_lead)
        reason += f" No candidate leads beyond chance. The best, {best}: {best.gain()}."
    return reference, reason


def results_of(rows: Sequence[Scored]) -> dict[str, np.ndarray]:
    """Return the candidates as columns of a table, see `CalibrationSearch`."""
    described = [
        row.state._asdict()
        | {
            "candidate": row.candidate.name,
            "calibrator": " ".join(str(row.candidate.calibrator).split()),
        }
        for row in rows
    ]
    table = {
        name: np.fromiter((row[name] for row in described), object, len(rows))
        for name in described[0]
    }
    for i, kind in enumerate(KINDS):
        table[kind] = np.array(
            [row.ranks[i].mean() if row.ranks.size else np.nan for row in rows]
        )
        for name, end in (("lead", "mean"), ("low", "low"), ("high", "high")):
            table[f"{kind}_{name}"] = np.array([getattr(row.leads[i], end) for row in rows])
    return table
