"""Tables of scores, with a row for each encoder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from skcalib.encoders.pipelines import as_encoder
from skcalib.markdown import markdown


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

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib.evaluation import ScoreTable
    >>> print(ScoreTable(("raw",), ("stsb", "average"), np.array([[55.64, 55.64]])))
    |     | stsb | average |
    |-----|-----:|--------:|
    | raw | 55.6 |    55.6 |
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    scores: np.ndarray

    def __str__(self) -> str:
        return markdown(["", *self.columns], self._cells())

    def _repr_markdown_(self) -> str:
        return str(self)

    def _cells(self) -> list[list[str]]:
        return [
            [name, *(f"{score:.1f}" for score in row)]
            for name, row in zip(self.rows, self.scores, strict=True)
        ]


def checked_encoders(
    encoder: Any, name: str = "encoder", accepts: Callable[[Any], bool] = lambda encoder: False
) -> dict[str, BaseEstimator]:
    """Return transformers of texts by name, from one encoder of texts or a mapping of them.

    What the caller ``accepts`` stays as it is.
    """
    if isinstance(encoder, list | tuple):
        raise TypeError(
            f"{name} is a {type(encoder).__name__}; expected one encoder, or a dict of "
            "encoders by name, such as {'raw': one, 'calibrated': other}."
        )
    by_name = encoder if isinstance(encoder, Mapping) else {"": encoder}
    named = {
        str(name): one if accepts(one) else as_encoder(one) for name, one in by_name.items()
    }
    if not named or len(named) < len(by_name):
        raise ValueError(
            f"{name} has the names {list(by_name)}; expected at least one, and "
            "names that differ as str."
        )
    return named if by_name is encoder else {type(named[""]).__name__: named[""]}
