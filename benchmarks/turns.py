"""Contenders take turns: each round runs all of them, and ratios are taken within a round.

So a slow minute of the machine affects all of them. Used by the scripts beside this one.
"""

import os
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
from sklearn.preprocessing import normalize

from skcalib.datasets import fetch_sts

STS = "sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"


def turns(ways, rounds, given=lambda turn: turn, clock=time.perf_counter):
    """Return the seconds of each way by round, after a round that warms up.

    A way is a function of ``given(turn)``, which is prepared before the clock starts. Give
    other texts or rows in each turn, so that nothing comes from a memory of the turn before.
    """
    seconds = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            argument = given(turn)
            start = clock()
            way(argument)
            seconds[name].append(clock() - start)
    return {name: np.array(of_way[1:]) for name, of_way in seconds.items()}


def spread(values, form=".3g"):
    """Median and range of some figures."""
    low, middle, high = (format(x, form) for x in np.quantile(values, (0, 0.5, 1)))
    return f"{middle} ({low} to {high})"


def report(title, seconds, against, amount=None, more=None):
    """Print a table: seconds, or the rate of an amount, and ratios to one or the best of some.

    A ratio above 1 is faster than ``against``. ``more`` has further cells by name.
    """
    best = np.min([seconds[name] for name in np.atleast_1d(against)], axis=0)
    more = more or {}
    columns = list(dict.fromkeys(column for cells in more.values() for column in cells))
    head = [title, "seconds" if amount is None else "a second", "ratio", *columns]
    print("\n| " + " | ".join(head) + " |\n|---|" + "---|" * (len(head) - 1))
    for name, of_way in seconds.items():
        cells = more.get(name, {})
        figures = spread(of_way) if amount is None else spread(amount / of_way, ".0f")
        row = [name, figures, spread(best / of_way, ".2f")]
        row += [cells.get(column, "") for column in columns]
        print(f"| {' | '.join(row)} |", flush=True)


def sentences():
    """All distinct sentences of the STS sets, in random order."""
    both = [fetch_sts(task, return_X_y=True)[0].ravel() for task in STS]
    return np.random.default_rng(0).permutation(np.unique(np.concatenate(both).astype(str)))


def short_texts(n):
    """Return n sentences for a turn, others in each."""
    drawn = sentences()
    return lambda turn: [drawn[(turn * n + i) % len(drawn)] for i in range(n)]


def mixed_texts(n):
    """Return n texts of about 5 to 256 tokens for a turn, others in each."""
    words = " ".join(sentences()[:4000]).split()

    def given(turn):
        rng = np.random.default_rng(1 + turn)
        lengths = rng.integers(4, 190, size=n)
        starts = rng.integers(0, len(words) - 200, size=n)
        return [" ".join(words[s : s + m]) for s, m in zip(starts, lengths, strict=True)]

    return given


def largest_distance(vectors, reference):
    """Largest 1 - cosine of two vectors of one text."""
    a, b = normalize(np.float64(vectors)), normalize(np.float64(reference))
    return f"{np.max(1 - np.sum(a * b, axis=1)):.0e}"
