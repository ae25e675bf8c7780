"""Two lists matched: true and false pairs, without labels or a threshold.

Each draw has at most 150 records of the first list. "half" is one in which half of them have
their partner in the second list, "half of both" has as many others in the second list, "all"
has all partners, and "none" has others alone. Listed pairs are means of ten draws, and "false
share" is the mean share of false pairs among those listed, in percent (promised: 5). "mutual,
raw" lists all mutual nearest neighbors by the cosine of raw vectors, "mutual, means subtracted"
all after the mean of each list is subtracted. "characters" are the three
lines of scikit-learn: all of them by the TF-IDF of character n-grams with a cosine of 0.4 or
more. "low" and "high" are the interval of 95 % of true minus false pairs, over the draws.
"whole" are both lists of two shops or of two databases as they are, once.
"""

import warnings

import numpy as np
from data import MATCHES, match, side
from measures import unit
from scipy.stats import t
from sklearn.feature_extraction.text import TfidfVectorizer

from skcalib import Matcher

RECORDS, DRAWS = 150, 10
CASES = "half", "half of both", "all", "none"


def rows(encode, options):
    warnings.simplefilter("ignore", UserWarning)  # of no pair
    for name in options.only or (*MATCHES, "records"):
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
            yield {"data": name, "case": case, "step": step} | described(counts)
    for name in () if options.only else ("catalogues", "records"):
        known = side(name)
        A, B = encode(known["a"]), encode(known["b"])
        for step, listed in contenders(A, B, known["a"], known["b"]).items():
            pairs = {(i, listed[i]) for i in np.flatnonzero(listed >= 0)}
            true = len(pairs & {*map(tuple, known["rel"])})
            counts = [(true, len(pairs) - true, 100 * (1 - true / max(len(pairs), 1)))]
            yield {"data": name, "case": "whole", "step": step} | described(counts)


def described(counts):
    """Means of true and false pairs, and the interval of their difference."""
    true, false, share = np.mean(counts, axis=0)
    gain = [yes - f for yes, f, _ in counts]
    half = (
        t.ppf(0.975, len(gain) - 1) * np.std(gain, ddof=1) / len(gain) ** 0.5
        if len(gain) > 1
        else 0
    )
    return {
        "true": f"{true:.0f}",
        "false": f"{false:.1f}",
        "false share": f"{share:.0f}",
        "low": f"{np.mean(gain) - half:.0f}",
        "high": f"{np.mean(gain) + half:.0f}",
    }


def partners(encode, name):
    """Texts and vectors of two lists of partners, one to one, each text once."""
    if name == "records":
        known = side(name)
        first, second = zip(
            *((known["a"][i], known["b"][j]) for i, j in known["rel"]), strict=True
        )
        return [*first], [*second], encode(first), encode(second)
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
    n_grams = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4)).fit([*first, *second])
    spelled = (n_grams.transform(first) @ n_grams.transform(second).T).toarray()
    vectors = dict(zip([*second, *first], [*B, *A], strict=True))
    matcher = Matcher(lambda texts: np.array([vectors[text] for text in texts]))
    pairs = matcher.fit(first, second).pairs_
    matched = np.full(len(A), -1)
    matched[pairs[:, 0]] = pairs[:, 1]
    centered = unit(A - A.mean(axis=0)) @ unit(B - B.mean(axis=0)).T
    return {
        "mutual, raw": mutual_nearest(unit(A) @ unit(B).T),
        "mutual, means subtracted": mutual_nearest(centered),
        "characters": np.where(spelled.max(axis=1) >= 0.4, mutual_nearest(spelled), -1),
        "Matcher": matched,
    }
