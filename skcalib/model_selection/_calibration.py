"""What `calibrate` tried and chose, as a table and in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten

import numpy as np

from skcalib._tables import markdown
from skcalib._vectors import unit_rows
from skcalib.model_selection._bootstrap import Difference
from skcalib.model_selection._encoders import State
from skcalib.model_selection._search import Choice, Scored
from skcalib.model_selection._tasks import TASKS

__all__ = ["Calibration", "Candidate", "Cosines", "calibration_of", "cosines_of"]

CANNOT_TELL = """\
The score cannot tell whether texts of one topic come together, nor how many dimensions
to keep: it prefers all of them where labels prefer fewer. Where you have labels, grades
or judged queries, decide by them:
"""


@dataclass(frozen=True)
class Candidate:
    """A row of a `Calibration`.

    Parameters
    ----------
    pooling : str
        Pooling, named as in `BertEncoder`.
    layers : int, tuple of int or None
        Hidden state, counted from 0; several are merged as by the encoder's `layer_merge`.
    calibrator : str
        "raw", "mean subtracted", "PCA(128)", or a `Whitening` as it is written in code.
    score : float
        Mean reciprocal rank, as `SelfRetrieval` gives it: compares calibrations of one hidden
        state.
    halves : float
        The same of odd and even words alone, as ``SelfRetrieval(thinned=0)`` gives it:
        compares hidden states.
    gain : Difference or None
        Of the `score` over that of the model as shipped; None for other hidden states.
    """

    pooling: str
    layers: int | tuple[int, ...] | None
    calibrator: str
    score: float
    halves: float
    gain: Difference | None

    @property
    def state(self) -> State:
        """Pooling and layers."""
        return self.pooling, self.layers


@dataclass(frozen=True)
class Cosines:
    """How similar texts are, most of which have nothing to do with each other.

    Each figure is a pair: as shipped, and by the chosen pipeline.

    Parameters
    ----------
    mean : tuple of float
        Mean cosine of two texts.
    threshold : tuple of float
        Cosine that one pair of texts in a hundred reaches.
    nearest, typical : tuple of float
        Cosines of two examples: the nearest two texts and two of median cosine, by calibrated
        vectors.
    examples : tuple of pairs of str
        The texts of these.
    """

    mean: tuple[float, float]
    threshold: tuple[float, float]
    nearest: tuple[float, float]
    typical: tuple[float, float]
    examples: tuple[tuple[str, str], tuple[str, str]]

    def __str__(self) -> str:
        quoted = [
            " and ".join(repr(shorten(text, 50, placeholder="...")) for text in pair)
            for pair in self.examples
        ]
        rows = [
            (self.mean, "two random texts, on average"),
            (self.threshold, "reached by one random pair in a hundred"),
            (self.nearest, quoted[0]),
            (self.typical, quoted[1]),
        ]
        lines = [f"  {a:z.2f}  {b:z.2f}  {text}" for (a, b), text in rows]
        return "\n".join(["Cosines, as shipped and calibrated:", *lines])


@dataclass(frozen=True)
class Calibration:
    """What `calibrate` tried; ``str()`` of it is a table and what it means.

    Parameters
    ----------
    task : str or None
        The task that was asked for.
    shipped : Candidate
        The model as shipped.
    chosen : Candidate
        The candidate that was chosen; it may be the same.
    candidates : tuple of Candidate
        All candidates, also those two: hidden states by the best `halves` of each, and the
        calibrations of each by `score`.
    n_texts : int
        Number of texts in the sample that gave the scores.
    gain : Difference
        By how much the `score` of the shipped hidden state is better whitened than raw.
    lead : Difference
        By how much the `halves` of the best hidden state are better than those of the shipped
        one, each calibrated.
    prompt : str
        Prompt of the encoder, in front of each text; "" where there is none.
    cosines : Cosines
        Cosines of the model as shipped, and of the chosen pipeline.
    """

    task: str | None
    shipped: Candidate
    chosen: Candidate
    candidates: tuple[Candidate, ...]
    n_texts: int
    gain: Difference
    lead: Difference
    prompt: str
    cosines: Cosines

    def __str__(self) -> str:
        return f"{self.table()}\n\n{self.summary()}"

    def summary(self) -> str:
        """Return, in sentences, why the chosen one was chosen and what its cosines mean.

        Returns
        -------
        summary : str
        """
        prompt = f"The prompt {self.prompt!r} is in front of each text." if self.prompt else ""
        task = TASKS[self.task]
        last = f"{CANNOT_TELL}\n{task.decision}"
        parts = [prompt, self._verdict(), task.advice, str(self.cosines), last]
        return "\n\n".join(part for part in parts if part)

    def _verdict(self) -> str:
        """Say what was chosen, and how clearly."""
        if self.chosen.state != self.shipped.state:
            return (
                f"Another hidden state than the shipped one is chosen: its halves are better "
                f"by\n{self.lead}, where the interval of 95 % is above zero."
            )
        if self.chosen == self.shipped:
            return (
                "Keep the model as it is: these texts show no gain by whitening, which changes "
                f"the\nscore by {self.gain}."
            )
        if self.gain.is_gain:
            return f"Whitening gains {self.gain} in score, beyond chance."
        return (
            f"Whitening changes the score by {self.gain}; it is there because of the task\n"
            "or the groups, which the score cannot tell."
        )

    def table(self, n_candidates: int | None = None) -> str:
        """Return a Markdown table: as shipped, chosen, the peers, and the others in order.

        `score` compares calibrations of one hidden state, `halves` compares hidden states; both
        are times 100, and so are the gain of the score and the ends of its 95 % interval.

        Parameters
        ----------
        n_candidates : int or None, default=None
            Most of the others to show; None shows all.

        Returns
        -------
        table : str
        """
        rest = [c for c in self.candidates if c not in (self.shipped, self.chosen)]
        at_home = [c for c in rest if c.state == self.shipped.state]
        others = [c for c in rest if c.state != self.shipped.state][:n_candidates]
        rows = [("as shipped", self.shipped), ("chosen", self.chosen)]
        rows += [("", candidate) for candidate in [*at_home, *others]]
        return markdown(
            ["", "pooling", "layer", "calibrator", "score", "halves", "gain"],
            [
                [note, c.pooling, "" if c.layers is None else str(c.layers), c.calibrator]
                + [f"{100 * value:.1f}" for value in (c.score, c.halves)]
                + ["" if c.gain is None or c == self.shipped else str(c.gain)]
                for note, c in rows
            ],
        )


def calibration_of(
    choice: Choice, task: str | None, n_texts: int, prompt: str, cosines: Cosines
) -> Calibration:
    """Report a choice."""
    states = sorted(choice.scored, key=lambda state: -max(c.halves() for c in state))
    ordered = [c for state in states for c in sorted(state, key=lambda c: -c.score())]
    return Calibration(
        task=task,
        shipped=_candidate(choice.shipped, choice),
        chosen=_candidate(choice.chosen, choice),
        candidates=tuple(_candidate(c, choice) for c in ordered),
        n_texts=n_texts,
        gain=choice.gains[-1],
        lead=choice.lead,
        prompt=prompt,
        cosines=cosines,
    )


def cosines_of(texts: Sequence[str], raw: np.ndarray, calibrated: np.ndarray) -> Cosines:
    """Compare the cosines of all pairs of texts by both vectors."""
    i, j = np.triu_indices(len(texts), k=1)
    units = (unit_rows(vectors)[0] for vectors in (raw, calibrated))
    both = np.stack([(unit @ unit.T)[i, j] for unit in units])
    order = np.argsort(both[1])
    pairs = order[-1], order[len(order) // 2]
    figures = both.mean(axis=1), np.quantile(both, 0.99, axis=1), *both[:, pairs].T
    mean, threshold, nearest, typical = ((float(a), float(b)) for a, b in figures)
    one, other = ((texts[i[pair]], texts[j[pair]]) for pair in pairs)
    return Cosines(mean, threshold, nearest, typical, (one, other))


def _candidate(scored: Scored, choice: Choice) -> Candidate:
    """Return the row of what was scored."""
    at_home = choice.scored[0]
    gain = choice.gains[at_home.index(scored)] if scored in at_home else None
    scores = float(scored.score()), float(scored.halves())
    return Candidate(*scored.state, scored.name, *scores, gain)
