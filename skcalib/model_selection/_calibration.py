"""What `calibrate` tried and chose."""

from __future__ import annotations

from dataclasses import dataclass

from skcalib._tables import markdown

__all__ = ["Calibration", "Candidate"]


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
class Calibration:
    """What `calibrate` tried; ``str()`` of it is a table.

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
    """

    shipped: Candidate
    chosen: Candidate
    candidates: tuple[Candidate, ...]
    n_texts: int

    def __str__(self) -> str:
        return self.table()

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
                [note, c.pooling, str(c.layers), c.calibrator]
                + [f"{100 * value:.1f}" for value in (c.score, c.halves)]
                for note, c in rows
            ],
        )
