"""What follows an encoder for a task that the user names."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.base import clone

from skcalib._whitening.estimator import Whitening

__all__ = ["TASKS", "Task", "fitted"]

BY_LABELS = """\
evaluate_labelled(
    {"raw": pipeline["encode"], "calibrated": FrozenEstimator(pipeline)}, texts, labels
)"""
BY_GRADES = """\
[
    BiEncoder(FrozenEstimator(encoder)).fit(pairs).score(pairs, grades)
    for encoder in (pipeline["encode"], pipeline)
]"""
BY_JUDGEMENTS = """\
evaluate_retrieval(
    {"raw": pipeline["encode"], "calibrated": pipeline},
    folder,
    queries_encoder={
        "raw": pipeline.queries_["encode"], "calibrated": pipeline.queries_
    },
)"""


class Task(NamedTuple):
    """What `calibrate` does for a task, and what it says of it."""

    calibrates: bool = False  # whatever self-retrieval says, which cannot tell this task
    smooths: bool = False
    noise: float = 1.0  # times that of noise="auto"
    advice: str = ""
    decision: str = BY_LABELS  # code that compares the pipeline with the encoder


# The figures behind this table are in docs/results.md.
TASKS: dict[str | None, Task] = {
    None: Task(),
    "similarity": Task(
        noise=0.5,
        advice="Graded similarity wants half the noise of the default, and no smoothing.",
        decision=BY_GRADES,
    ),
    "duplicates": Task(
        advice="Choose the threshold by the number of false pairs, with SimilarityScale. By\n"
        "its corrected similarity one threshold serves dense and sparse regions.",
        decision=BY_GRADES,
    ),
    "topics": Task(
        calibrates=True,
        smooths=True,
        advice="NeighborSmoothing moves each text toward its nearest ones. Topics, intents,\n"
        "classes and clusters gain by it; graded similarity loses, and\n"
        "a search for single answers may.",
    ),
    "search": Task(
        calibrates=True,
        advice="Queries and documents lie apart; GroupErasure takes out what their means\n"
        "differ by. Map documents by this pipeline, and queries by its attribute queries_.",
        decision=BY_JUDGEMENTS,
    ),
}


def fitted(calibrator: Whitening, X: np.ndarray, noise: float) -> Whitening:
    """Return a calibrator fitted on vectors, with so many times the noise of ``"auto"``."""
    automatic = clone(calibrator).fit(X)
    if noise == 1 or calibrator.noise != "auto":
        return automatic
    return automatic.set_params(noise=noise * automatic.noise_, shrinkage="auto").fit(X)
