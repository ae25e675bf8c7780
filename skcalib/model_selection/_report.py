"""What `calibrate` tried and chose: a table, and the reason of the choice."""

from dataclasses import dataclass

from skcalib.model_selection._encoders import State
from skcalib.utils.bootstrap import Difference
from skcalib.utils.tables import markdown

# Why a candidate was chosen, by the name that `Calibration.reason` gives.
REASONS = {
    "layer": "Another layer and pooling leads that of the raw model by {lead} in halves, each "
    "calibrated; the interval accounts for the choice among many.",
    "whitening": "Whitening improves the score by {chosen.gain}, beyond chance.",
    "mean subtracted": "Subtracting the mean improves the score by {chosen.gain}, beyond "
    "chance; whitening changes it by {gain}.",
    "task": "Whitening follows from the task, the groups or n_groups, whose benefit the score "
    "does not show; it changes the score by {gain}.",
    "no gain": "The raw model stays: these texts show no gain beyond chance. Whitening changes "
    "the score by {gain}.",
    "few texts": "The raw model stays: the {n_texts} texts share most of their words and count "
    "as {n_groups} groups; fewer than 20 are too few for evidence.",
}


@dataclass(frozen=True)
class Candidate:
    """A row of a `Calibration`.

    Parameters
    ----------
    pooling : str
        Pooling, named as in `BertEncoder`.
    layers : int, tuple of int or None
        Layer, counted from 0; the encoder's `layer_merge` merges several.
    calibrator : str
        "raw", "mean subtracted", "PCA(128)", or a `Whitening` as it is written in code.
    score : float
        By `SelfRetrieval`, to compare calibrations of one layer and pooling.
    halves : float
        By ``SelfRetrieval(thinned=0)``, to compare layers and poolings.
    gain : Difference or None
        Gain in `score` over the raw model; None for other layers and poolings.
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
class Calibration:
    """What `calibrate` tried; ``str()`` gives a table and the reason in a sentence.

    The score does not measure whether texts of one topic are close, nor how many dimensions to
    keep. If you have labels, grades or judged queries, compare by `evaluate_labelled`,
    `BiEncoder.score` or `evaluate_retrieval`.

    Parameters
    ----------
    task : str or None
        The requested task.
    shipped : Candidate
        The raw model.
    chosen : Candidate
        The chosen candidate, which may be the raw model.
    reason : str
        Why: "layer" (another layer or pooling leads), "whitening", "mean subtracted" (each
        gains beyond chance), "task" (which requires a whitening), "no gain" or "few texts".
    candidates : tuple of Candidate
        All candidates, including these two: layers and poolings in order of their best
        `halves`, and the calibrations of each in order of `score`.
    n_texts, n_groups : int
        Number of texts that gave the scores, and of groups of near-duplicates among them.
    gain : Difference
        Gain of whitening in `score` over the raw model; simultaneous with the gains of the
        other `candidates` of its layer and pooling.
    lead : Difference
        Lead in `halves` of the best layer and pooling over that of the raw model, each
        calibrated.
    is_declared : bool
        Whether layer and pooling were not searched, since the model's folder declares them or
        the encoder has no others.
    """

    task: str | None
    shipped: Candidate
    chosen: Candidate
    reason: str
    candidates: tuple[Candidate, ...]
    n_texts: int
    n_groups: int
    gain: Difference
    lead: Difference
    is_declared: bool

    def __str__(self) -> str:
        return f"{self.table()}\n\n{self.explanation}"

    @property
    def explanation(self) -> str:
        """The `reason` in a sentence."""
        return REASONS[self.reason].format(**vars(self))

    def table(self, n_candidates: int | None = None) -> str:
        """Return a Markdown table, times 100: raw model, chosen candidate, and the others.

        Parameters
        ----------
        n_candidates : int or None, default=None
            Largest number of the others to show; None shows all.

        Returns
        -------
        table : str
        """
        rest = [c for c in self.candidates if c not in (self.shipped, self.chosen)]
        at_home = [c for c in rest if c.state == self.shipped.state]
        others = [c for c in rest if c.state != self.shipped.state][:n_candidates]
        rows = [("raw", self.shipped), ("chosen", self.chosen)]
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
