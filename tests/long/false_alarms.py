"""False alarms of ShiftMonitor in long streams without a change.

    python tests/long/false_alarms.py 50 copied --streams 1000

draws a reference of 50 rows and a stream of a hundred times as many, 1,000 times, and prints
the shares of streams with an alarm at rates of 0.05 and 0.01. Kinds of rows: "normal", "heavy"
(Student's t with one degree of freedom), "pool" (a few rows, some often, some rarely, whose
frequency depends on where they lie), "copied" (that number of rows,
each four times in a row), "scattered" (each four times, in random order).
"""

import argparse

import numpy as np

from skcalib import Whitening
from skcalib.inspection import ShiftMonitor

D = 6
RATES = 0.05, 0.01


def drawn(kind, n, rng, pool):
    if kind == "pool":
        return pool[rng.choice(len(pool), n, p=1 / np.arange(1, len(pool) + 1) / total(pool))]
    rows = rng.standard_t(1 if kind == "heavy" else 1e9, size=(n, D))
    if kind in ("copied", "scattered"):
        rows = np.repeat(rows, 4, axis=0)
    return rng.permutation(rows) if kind == "scattered" else rows


def total(pool):
    return np.sum(1 / np.arange(1, len(pool) + 1))


def ranked_pool(rng):
    rows = rng.normal(size=(500, D))
    return rows[np.argsort((rows**2).sum(axis=1))]  # the frequent ones are near the mean


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reference", type=int)
    kinds = ["normal", "heavy", "pool", "copied", "scattered"]
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--length", type=int, default=100, help="in references")
    options = parser.parse_args()
    alarms = []
    for seed in range(options.streams):
        rng = np.random.default_rng(seed)
        pool = ranked_pool(rng)
        whitening = Whitening().fit(drawn(options.kind, 400, rng, pool))
        n = options.reference
        reference = drawn(options.kind, n, rng, pool)
        stream = drawn(options.kind, n * options.length, rng, pool)
        alarms.append([False] * len(RATES))
        for i, rate in enumerate(RATES):  # an alarm at a lower rate is one at the higher, too
            monitor = ShiftMonitor(whitening, false_alarm_rate=rate).fit(reference)
            if not monitor.update(stream).is_shifted_:
                break
            alarms[-1][i] = True
    shares = np.mean(alarms, axis=0)
    found = ", ".join(
        f"{share:.4f} at {rate}" for share, rate in zip(shares, RATES, strict=True)
    )
    print(f"{options.kind}, {options.reference}: {found}, in {options.streams} streams")


if __name__ == "__main__":
    main()
