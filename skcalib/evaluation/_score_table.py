"""Tables of scores, with a row for each encoder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skcalib.encoders.pipelines import as_encoder


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores of encoders, times 100; ``str(table)`` is in Markdown, which a notebook renders.

    ``pandas.DataFrame(table.scores, table.rows, table.columns)`` is a frame of them.

    Parameters
    ----------
    rows : tuple of str
        Names of the encoders.
    columns : tuple of str
        Names of the benchmarks or measures.
    scores : ndarray of shape (n_rows, n_columns)
        Scores times 100.
    intervals : ndarray of shape (n_rows, n_columns, 2), or None
        Ends of the 95 % interval of each score minus that of the first row, if known.
    note : str
        What the table counts, below it.

    Examples
    --------
    With intervals, the difference to the first row is in brackets, before its interval.

    >>> import numpy as np
    >>> from skcalib.evaluation import ScoreTable
    >>> scores, intervals = np.array([[38.1], [39.5]]), np.array([[[0.0, 0.0]], [[0.2, 2.5]]])
    >>> print(ScoreTable(("raw", "calibrated"), ("nDCG@10",), scores, intervals))
    |            |                   nDCG@10 |
    |------------|--------------------------:|
    | raw        |                      38.1 |
    | calibrated | 39.5 (+1.4, +0.2 to +2.5) |
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    scores: np.ndarray
    intervals: np.ndarray | None = None
    note: str = ""

    def __str__(self) -> str:
        body = [[f"{score:.1f}" for score in row] for row in self.scores]
        if self.intervals is not None:
            for i, j in np.ndindex(len(self.rows) - 1, len(self.columns)):
                difference = self.scores[1 + i, j] - self.scores[0, j]
                low, high = self.intervals[1 + i, j]
                body[1 + i][j] += f" ({difference:+.1f}, {low:+.1f} to {high:+.1f})"
        named = [[name, *cells] for name, cells in zip(self.rows, body, strict=True)]
        table = _markdown([["", *self.columns], *named])
        return f"{table}\n\n{self.note}" if self.note else table

    def _repr_markdown_(self) -> str:
        return str(self)


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, its first column aligned left, the others right."""
    first, *others = (max(map(len, column)) for column in zip(*lines, strict=True))
    row_format = " | ".join([f"{{:<{first}}}", *(f"{{:>{width}}}" for width in others)])
    rule = "|".join(["-" * (first + 2), *("-" * (width + 1) + ":" for width in others)])
    head, *rest = (f"| {row_format.format(*cells)} |" for cells in lines)
    return "\n".join([head, f"|{rule}|", *rest])


def named_encoders(encoder: Any, read: Callable[[Any], Any] = as_encoder) -> dict[str, Any]:
    """Return encoders by the names of their rows, from one or a mapping."""
    if isinstance(encoder, Mapping):
        return {str(name): read(one) for name, one in encoder.items()}
    transformer = read(encoder)
    return {type(transformer).__name__: transformer}
