"""Pieces of documents, which stand in for queries where there are none."""

import re

import numpy as np

# Words; of scripts without spaces, single letters.
WORD = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]"
    "|[^\\s\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]+"
)
SHORTEST, LONGEST = 4, 12  # words of a window
N_WINDOWS = 1000


def windows(texts: list[str]) -> list[str]:
    """Return distinct windows of 4 to 12 words, `N_WINDOWS` at most, of texts drawn at random.

    A shorter text is a window as a whole.
    """
    rng = np.random.default_rng(0)
    windows: dict[str, None] = {}
    for row in rng.integers(len(texts), size=N_WINDOWS):
        spans = [word.span() for word in WORD.finditer(texts[row])]
        if spans:
            length = min(int(rng.integers(SHORTEST, LONGEST + 1)), len(spans))
            start = int(rng.integers(len(spans) - length + 1))
            windows[texts[row][spans[start][0] : spans[start + length - 1][1]]] = None
    return [*windows]
