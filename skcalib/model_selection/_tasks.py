"""Steps that follow an encoder for a task that the user names."""

from typing import NamedTuple


class Task(NamedTuple):
    """What `calibrate` does for a task."""

    calibrates: bool = False  # always, as self-retrieval cannot judge this task
    smooths: bool = False


# docs/results.md has the measurements for this table.
TASKS: dict[str | None, Task] = {
    None: Task(),
    "similarity": Task(),
    "duplicates": Task(calibrates=True),
    "topics": Task(calibrates=True, smooths=True),
    "search": Task(calibrates=True),
}
