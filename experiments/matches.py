"""Two lists matched: true and false pairs, without labels or a threshold.

Each draw has at most 150 records of the first list. "half" is one in which half of them have
their partner in the second list, "half of both" has as many others in the second list, "all"
has all partners, and "none" has others alone. Listed pairs are means of ten draws, and "false
share" is the mean share of false pairs among those listed, in percent (promised: 5). "mutual,
raw" lists all mutual nearest neighbors by the cosine of raw vectors, "above .8" those of them
with a cosine above 0.8, "mutual, means subtracted" all after the mean of each list is
subtracted, and `NearestAnswer` has a false-positive rate of 5 %.
"""

import warnings

import numpy as np
from data import MATCHES, match
from measures import unit

from skcalib import Matcher, NearestAnswer

RECORDS, DRAWS = 150, 10
CASES = "half", "half of both", "all", "none"


def rows(encode, options):
    warnings.simplefilter("ignore", UserWarning)  # of no pair, and of few stored answers
    for name in options.only or MATCHES:
        first, second, A, B = partners(encode, name)
        found = {}
        for case in CASES:
            for seed in range(DRAWS):
                a, b, truth = draw(len(first), case, np.random.default_rng(seed))
                texts = [first[i] for i in a], [second[i] for i in b]
                for step, listed in contenders(A[a], B[b], *texts).items():
                    rows_of_a = np.flatnonzero(listed >= 0)
                    true = (truth[rows_of_a] == listed[rows_of_a]).sum()
                    false = len(rows_of_a) - true
                    share = 100 * false / max(len(rows_of_a), 1)
                    found.setdefault((case, step), []).append((true, false, share))
        for (case, step), counts in found.items():
            true, false, share = np.mean(counts, axis=0)
            row = {"data": name, "case": case, "step": step, "true": f"{true:.0f}"}
            yield row | {"false": f"{false:.1f}", "false share": f"{share:.0f}"}


def partners(encode, name):
    """Texts and vectors of two lists of partners, one to one, each text once."""
    lists, are_documents = match(name), name in ("questions-code", "passages")
    pairs = [(lists.sides[0][i], lists.sides[1][j]) for i, j in np.argwhere(lists.belong)]
    if name == "translations":  # whose texts to fit on are translations, too
        pairs += zip(*lists.fit, strict=True)
    pairs = list({first: (first, second) for first, second in reversed(pairs)}.values())
    pairs = list({second: (first, second) for first, second in pairs}.values())
    first, second = map(list, zip(*pairs, strict=True))
    return first, second, encode(first), encode(second, documents=are_documents)


def draw(n, case, rng):
    """Rows of both lists, and the place of each partner in the second, or -1."""
    order = rng.permutation(n)
    if case == "half":
        a = order[:RECORDS]
        b = a[: len(a) // 2]
    elif case == "all":
        a = b = order[:RECORDS]
    else:
        size = min(RECORDS, 2 * n // 3) if case == "half of both" else min(RECORDS, n // 2)
        a = order[:size]
        start = size // 2 if case == "half of both" else size
        b = order[start : start + size]
    b = rng.permutation(b)
    place = {row: k for k, row in enumerate(b)}
    return a, b, np.array([place.get(row, -1) for row in a])


def mutual_nearest(cosines):
    """Column of the largest cosine of each row, or -1 where it is not its column's largest."""
    best = cosines.argmax(axis=1)
    return np.where(cosines.argmax(axis=0)[best] == np.arange(len(cosines)), best, -1)


def contenders(A, B, first, second):
    """Place of the partner in B of each record of A, or -1, by several rules."""
    cosines = unit(A) @ unit(B).T
    mutual = mutual_nearest(cosines)
    centered = unit(A - A.mean(axis=0)) @ unit(B - B.mean(axis=0)).T
    pairs = Matcher().fit(A, B).pairs_
    matched = np.full(len(A), -1)
    matched[pairs[:, 0]] = pairs[:, 1]
    vectors = dict(zip([*second, *first], [*B, *A], strict=True))
    answers = NearestAnswer(
        lambda texts: np.array([vectors[t] for t in texts]), false_positive_rate=0.05
    )
    given = answers.fit(second, [*map(str, range(len(second)))]).predict(first)
    return {
        "mutual, raw": mutual,
        "above .8": np.where(cosines.max(axis=1) > 0.8, mutual, -1),
        "mutual, means subtracted": mutual_nearest(centered),
        "NearestAnswer": np.array([-1 if answer is None else int(answer) for answer in given]),
        "Matcher": matched,
    }
