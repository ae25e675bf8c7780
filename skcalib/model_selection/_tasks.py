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
        "Choose the threshold by the number of false pairs, with SimilarityScale; its corrected\n"
        "similarity lets one threshold serve dense and sparse regions.",
    ),
    "topics": Task(
        True,
        True,
        "NeighborSmoothing moves each text toward its nearest ones: topics, intents, classes and\n"
        "clusters gain by it; graded similarity and questions with a single answer lose.",
    ),
    "search": Task(
        True,
        False,
        "Queries and documents lie apart. GroupErasure takes the difference of their means out:\n"
        "map documents by this pipeline, and queries by its attribute queries_.",
    ),
}
