"""What `calibrate` tried and chose."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import shorten

import numpy as np

from skcalib._tables import markdown
from skcalib._vectors import unit_rows

__all__ = ["Calibration", "Candidate", "Cosines", "compared"]


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
        "raw", or a `Whitening` as it is written in code.
    score : float
        Mean reciprocal rank, as `SelfRetrieval` gives it: compares calibrations of one hidden
        state.
    halves : float
        The same of odd and even words alone, as ``SelfRetrieval(thinned=0)`` gives it:
        compares hidden states.
    """

    pooling: str
    layers: int | tuple[int, ...] | None
    calibrator: str
    score: float
    halves: float


@dataclass(frozen=True)
class Cosines:
    """How similar texts are, most of which have nothing to do with each other.

    Parameters
    ----------
    mean : float
        Mean cosine of two texts.
    threshold : float
        Cosine that one pair of texts in a hundred reaches.
    nearest, typical : float
        Cosines of two examples: the nearest two texts and two of median cosine, by calibrated
        vectors.
    """

    mean: float
    threshold: float
    nearest: float
    typical: float


@dataclass(frozen=True)
class Calibration:
    """What `calibrate` tried; ``str()`` of it is a table and what it means.

    Parameters
    ----------
    shipped : Candidate
        The model as shipped.
    chosen : Candidate
        The candidate that was chosen; it may be the same.
    candidates : tuple of Candidate
        All candidates, also those two: hidden states by the `halves` of their best
        calibration, and the calibrations of each by `score`.
    n_texts : int
        Number of texts in the sample that gave the scores.
    lead, margin : float
        By how much the `halves` of the best hidden state are better than those of the shipped
        one, and by how much they must be: two standard errors.
    before, after : Cosines
        Cosines of the model as shipped, and of the chosen pipeline.
    examples : tuple of pairs of str
        Two texts near each other, and two that are typical, whose cosines those are.
    has_siblings : bool
        Whether many texts say the same in other words, by calibrated vectors, so that
        `NeighborSmoothing` may help.
    prompt : str
        Prompt of the encoder, in front of each text; "" where there is none.
    """

    shipped: Candidate
    chosen: Candidate
    candidates: tuple[Candidate, ...]
    n_texts: int
    lead: float
    margin: float
    before: Cosines
    after: Cosines
    examples: tuple[tuple[str, str], tuple[str, str]]
    has_siblings: bool
    prompt: str

    def __str__(self) -> str:
        return f"{self.table()}\n\n{self.summary()}"

    def summary(self) -> str:
        """Return, in sentences, why the chosen one was chosen and what its cosines mean.

        Returns
        -------
        summary : str
        """
        before, after = self.before, self.after
        (one, two), (three, four) = (
            [repr(shorten(text, 50, placeholder="...")) for text in pair]
            for pair in self.examples
        )
        choice = "The score chooses the calibrator of a hidden state, halves the hidden state."
        if self.lead:
            verdict = "so it replaces it" if self.lead > self.margin else "so it does not"
            choice += (
                "\nAnother one replaces that as shipped if its halves are better by two\n"
                f"standard errors, {100 * self.margin:.1f} here. The best is better by "
                f"{100 * self.lead:.1f}, {verdict}."
            )
        else:
            choice += "\nBy its halves the shipped hidden state is the best of those tried."
        siblings = "few siblings: smoothing over neighbours would blur them"
        if self.has_siblings:
            siblings = "siblings: NeighborSmoothing behind it may help search and clusters"
        prompt = f"The prompt {self.prompt!r} is in front of each text.\n\n"
        return (
            f"{prompt if self.prompt else ''}{choice}\n\n"
            "Cosines, as shipped and calibrated:\n"
            f"  {before.mean:z.2f}  {after.mean:z.2f}  two random texts, on average\n"
            f"  {before.threshold:z.2f}  {after.threshold:z.2f}  reached by one random "
            "pair in a hundred\n"
            f"  {before.nearest:z.2f}  {after.nearest:z.2f}  {one} and {two}\n"
            f"  {before.typical:z.2f}  {after.typical:z.2f}  {three} and {four}\n\n"
            f"The texts have {siblings}."
        )

    def table(self, n_candidates: int | None = None) -> str:
        """Return a Markdown table: as shipped, chosen, and the others in order.

        `score` compares calibrations of one hidden state, `halves` compares hidden states; both
        are times 100.

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
            ["", "pooling", "layer", "calibrator", "score", "halves"],
            [
                [note, c.pooling, "" if c.layers is None else str(c.layers), c.calibrator]
                + [f"{100 * value:.1f}" for value in (c.score, c.halves)]
                for note, c in rows
            ],
        )


def compared(
    raw: np.ndarray, calibrated: np.ndarray
) -> tuple[Cosines, Cosines, list[tuple[int, int]]]:
    """Cosines of all pairs of texts by both vectors, and the rows of the two examples."""
    i, j = np.triu_indices(len(raw), k=1)
    units = (unit_rows(vectors)[0] for vectors in (raw, calibrated))
    before, after = ((unit @ unit.T)[i, j] for unit in units)
    order = np.argsort(after)
    examples = order[[-1, len(order) // 2]]
    first, second = (
        Cosines(float(c.mean()), float(np.quantile(c, 0.99)), *c[examples].tolist())
        for c in (before, after)
    )
    rows = zip(i[examples].tolist(), j[examples].tolist(), strict=True)
    return first, second, list(rows)
