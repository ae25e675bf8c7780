"""What follows an encoder for a task that the user names."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["TASKS", "Task"]


class Task(NamedTuple):
    """What `calibrate` does for a task, and what it says of it."""

    calibrates: bool  # whatever self-retrieval says, which cannot tell this task
    smooths: bool
    advice: str


TASKS: dict[str | None, Task] = {
    None: Task(False, False, ""),
    "similarity": Task(
        False,
        False,
        "A tuned encoder gains little in graded similarity, at most a point in our benchmarks.",
    ),
    "duplicates": Task(
        False,
        False,
        "Choose the threshold by the number of false pairs, with SimilarityScale. By its\n"
        "corrected similarity one threshold serves dense and sparse regions.",
    ),
    "topics": Task(
        True,
        True,
        "NeighborSmoothing moves each text toward its nearest ones. Topics, intents, classes\n"
        "and clusters gain by it; graded similarity and single answers lose.",
    ),
    "search": Task(
        True,
        False,
        "Queries and documents lie apart; GroupErasure takes out what their means differ by.\n"
        "Map documents by this pipeline, and queries by its attribute queries_.",
    ),
}
