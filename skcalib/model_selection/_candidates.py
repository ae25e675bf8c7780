"""What a `CalibrationSearch` tries on a layer and pooling, and what it takes to choose it."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from skcalib.calibration.strength import MANY
from skcalib.calibration.whitening import Whitening

RAW, MEAN, WHITENING, STRONG = "raw", "mean", "whitening", "strong"
DIMENSIONS = 128  # of the PCA

Vectors = Sequence[np.ndarray]  # on which a candidate is fitted, one array for each fold


class Evidence(Enum):
    """What it takes to choose a candidate."""

    NONE = "it follows from the task or n_groups"
    SCORE = "a better score than raw vectors, beyond chance"
    BOTH = "a better score and better halves than the choice without it, beyond chance"
    NEVER = "it is only compared"


class Task(NamedTuple):
    """What a task asks for, since self-retrieval cannot judge it."""

    calibrator: str | None = None  # name of a candidate; None if evidence decides
    smooths: bool = False


# docs/tuning.md has the measurements for this table.
TASKS: dict[str | None, Task] = {
    None: Task(),
    "similarity": Task(STRONG),
    "duplicates": Task(MEAN),
    "matches": Task(MEAN),
    "topics": Task(WHITENING, smooths=True),
}


def _everywhere(is_shipped: bool, vectors: Vectors) -> bool:
    return True


def _where_shipped(is_shipped: bool, vectors: Vectors) -> bool:
    return is_shipped


def _where_wide(is_shipped: bool, vectors: Vectors) -> bool:
    return is_shipped and min(min(array.shape) for array in vectors) > DIMENSIONS


def not_trained(is_shipped: bool, vectors: Vectors) -> bool:
    """Whether the vectors come from a layer that was not trained for similarity.

    There a strong whitening amplifies what is unique to each text, which the score rewards,
    and loses topics, which the score cannot see.
    """
    return any(Whitening(power="auto").fit(array).power_ > 0 for array in vectors)


class Candidate(NamedTuple):
    """A calibrator to try, or "passthrough" for none."""

    name: str
    calibrator: Any
    evidence: Evidence  # that it takes to choose it
    # Where it is tried, by whether this is the raw model's layer and pooling, and by vectors.
    is_tried: Callable[[bool, Vectors], bool] = _everywhere
    asked_by: str = ""  # the parameter from which it follows, if it needs no evidence


def candidates_of(
    task: str | None,
    n_groups: int | None,
    own: Sequence[tuple[str, Any]] | None,
) -> list[Candidate]:
    """Return the candidates for parameters of a `CalibrationSearch`, raw vectors first.

    What the task or the number of groups asks for needs no evidence, and is compared with
    little else. The strong whitening is that of the papers, with noise. It is left out where it
    is known to harm: for topics, groups of a known number, and equal texts.
    """
    asked, asked_by = TASKS[task].calibrator, f"task={task!r}"
    if asked is None and n_groups is not None:
        asked, asked_by = WHITENING, f"n_groups={n_groups}"
    whitening = Whitening(power="auto", n_groups=n_groups)
    strong = Whitening(power="auto", n_groups=MANY)
    pca = Whitening(DIMENSIONS, power=0)
    candidates = [
        Candidate(RAW, "passthrough", Evidence.SCORE),
        Candidate(MEAN, Whitening(power=0), Evidence.SCORE, _where_shipped),
        Candidate(f"PCA({DIMENSIONS})", pca, Evidence.NEVER, _where_wide),
        Candidate(WHITENING, whitening, Evidence.SCORE),
        Candidate(STRONG, strong, Evidence.BOTH, not_trained),
    ]
    if asked == MEAN or TASKS[task].smooths or n_groups is not None:
        candidates.pop()
    if asked is not None:
        candidates = [c for c in candidates if c.name in (RAW, asked, STRONG)]
    named = {c.name: c for c in candidates}
    if asked is not None:
        calibrator = named[asked].calibrator
        named[asked] = Candidate(asked, calibrator, Evidence.NONE, asked_by=asked_by)
    for name, calibrator in own or []:
        replaced = named.get(name, Candidate(name, calibrator, Evidence.BOTH))
        if replaced.evidence is Evidence.NEVER:
            replaced = replaced._replace(evidence=Evidence.BOTH)
        # One's own is tried everywhere.
        named[name] = replaced._replace(calibrator=calibrator, is_tried=_everywhere)
    return [*named.values()]


def check_candidates(own: Any) -> None:
    """Raise an error unless these are pairs of a name and a transformer of vectors."""
    names: set[str] = set()
    for entry in own or []:
        is_pair = isinstance(entry, list | tuple) and len(entry) == 2
        name, calibrator = entry if is_pair else (None, None)
        is_step = hasattr(calibrator, "fit") and hasattr(calibrator, "transform")
        if not (isinstance(name, str) and is_step) or isinstance(calibrator, type):
            raise TypeError(
                f"candidates has {entry!r:.80}; expected pairs of a name and a transformer of "
                'vectors, such as ("pca", PCA(64)).'
            )
        if name in {RAW, *names}:
            raise ValueError(
                f"candidates has the name {name!r}, which another candidate has. Choose names "
                f"that differ from each other and from {RAW!r}, that of vectors as they are."
            )
        names.add(name)
