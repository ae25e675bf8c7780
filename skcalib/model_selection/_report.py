"""What `calibrate` tried and chose, as a table and in sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten

import numpy as np

from skcalib.model_selection._encoders import State
from skcalib.model_selection._self_retrieval import FEWEST_TEXTS
from skcalib.model_selection._tasks import TASKS
from skcalib.model_selection._views import tells_layers
from skcalib.utils.bootstrap import Difference
from skcalib.utils.tables import markdown
from skcalib.utils.vectors import unit_rows

CANNOT_TELL = """\
The score does not show whether texts of one topic come together, nor how many dimensions
to keep: it prefers all of them even if labels prefer fewer. If you have labels, grades
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
        Layer, counted from 0; the encoder's `layer_merge` merges several.
    calibrator : str
        "raw", "mean subtracted", "PCA(128)", or a `Whitening` as it is written in code.
    score : float
        By `SelfRetrieval`: compares calibrations of one layer and pooling.
    halves : float
        By ``SelfRetrieval(thinned=0)``: compares layers and poolings.
    gain : Difference or None
        Of the `score` over that of the raw model; None for other layers and poolings.
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
    """Cosines between texts, by the raw model and by the chosen pipeline.

    Parameters
    ----------
    mean : tuple of float
        Mean cosine of two texts.
    threshold : tuple of float
        Cosine that one pair of texts in a hundred reaches.
    nearest, typical : tuple of float
        Of the nearest pair and a pair of median cosine, by calibrated vectors.
    examples : tuple of pairs of str
        Texts of these two pairs.
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
        return "\n".join(["Cosines, raw and calibrated:", *lines])


@dataclass(frozen=True)
class Calibration:
    """What `calibrate` tried; ``str()`` gives a table and its explanation.

    Parameters
    ----------
    task : str or None
        The requested task.
    shipped : Candidate
        The raw model.
    chosen : Candidate
        The chosen candidate, which may be the raw model.
    candidates : tuple of Candidate
        All candidates, including these two: layers and poolings in order of their best
        `halves`, and the calibrations of each in order of `score`.
    n_texts, n_groups : int
        Number of texts that gave the scores, and of groups of near-duplicates among them.
    gain : Difference
        Of whitening, in the `score` over the raw model; simultaneous with the gains of the
        other `candidates` of its layer and pooling.
    lead : Difference
        Of the best layer and pooling over the raw model's, in `halves`, each calibrated.
    prompt : str
        What the encoder puts before each text.
    cosines : Cosines
        Of the raw model and of the chosen pipeline.
    is_declared : bool
        Whether layer and pooling were not searched, since the model's folder declares them or
        the encoder has no others.
    """

    task: str | None
    shipped: Candidate
    chosen: Candidate
    candidates: tuple[Candidate, ...]
    n_texts: int
    n_groups: int
    gain: Difference
    lead: Difference
    prompt: str
    cosines: Cosines
    is_declared: bool

    def __str__(self) -> str:
        return f"{self.table()}\n\n{self.summary()}"

    def summary(self) -> str:
        """Return, in sentences, why the candidate was chosen and what its cosines mean.

        Returns
        -------
        summary : str
        """
        prompt = f"The prompt {self.prompt!r} is put before each text." if self.prompt else ""
        task = TASKS[self.task]
        last = f"{CANNOT_TELL}\n{task.decision}"
        evidence = self._on_texts(), self._on_layers(), self._on_whitening()
        verdict = "\n".join(filter(None, evidence))
        parts = prompt, verdict, task.advice, str(self.cosines), last
        return "\n\n".join(filter(None, parts))

    def _on_texts(self) -> str:
        if 2 * self.n_groups > self.n_texts:
            return ""
        few = " Fewer than 20 are no evidence." if self.n_groups < FEWEST_TEXTS else ""
        return (
            "Most texts share most of their words with others. So the intervals count the\n"
            f"{self.n_texts} texts as {self.n_groups} groups.{few}"
        )

    def _on_layers(self) -> str:
        if self.is_declared:
            stays = "Layer and pooling stay as the model's folder declares them."
            return "" if self.shipped.layers is None else stays
        if self.chosen.state != self.shipped.state:
            return (
                "Another layer and pooling than the raw model's is chosen: its split-half\n"
                f"score (halves) is better by {self.lead}; the interval, above\n"
                "zero, allows for the chance of the best of many."
            )
        best = max(candidate.halves for candidate in self.candidates)
        if not tells_layers(best, self.n_texts // 2):
            return (
                "These texts are too short to compare layers and poolings: halves of them "
                f"hardly\nfind each other (halves: {100 * best:.1f} at most). Those of the raw "
                "model stay."
            )
        if self.lead.mean == 0:
            return "The raw model's layer and pooling stay: no other has better halves."
        return (
            "The raw model's layer and pooling stay. The best of the others changes halves by\n"
            f"{self.lead}, which may be the chance of the best of many."
        )

    def _on_whitening(self) -> str:
        if self.chosen.state != self.shipped.state:
            return ""
        if self.chosen == self.shipped:
            return (
                "Keep the raw model: these texts show no gain beyond chance. Whitening changes "
                f"the\nscore by {self.gain}."
            )
        if self.chosen.calibrator == "mean subtracted":
            return (
                f"Subtracting the mean improves the score by {self.chosen.gain}, beyond\n"
                f"chance. Whitening changes it by {self.gain}."
            )
        if self.chosen.gain and self.chosen.gain.is_gain:
            return f"Whitening improves the score by {self.chosen.gain}, beyond chance."
        return (
            f"Whitening changes the score by {self.gain}. It is used because of the task,\n"
            "the groups or their number, whose benefit the score does not show."
        )

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
