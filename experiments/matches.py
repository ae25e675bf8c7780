"""Two lists matched: true and false pairs, without labels or a threshold.

Each draw has at most 150 records of the first list. "half" is one in which half of them have
their partner in the second list, "half of both" has as many others in the second list, "all"
has all partners, and "none" has others alone. "sentences" are 300 and 300 of scipy's, 100 of
them in both, with two words swapped twice. "whole" are both lists of two shops or of two
databases as they are, once, and "255 of both" have 255 partners in 377 products of either shop.
Listed pairs are means of the draws, and "false share" is the mean share of false pairs among
those listed, in percent.

"vectors" are all mutual nearest neighbors by the cosine of raw vectors, and "characters" all by
the TF-IDF of character n-grams with a cosine of 0.4 or more: three lines of scikit-learn each.
`Matcher` promises at most 5 % false pairs, and "Matcher, 10 %" twice as many. "low" and "high"
are the interval of 95 % of true minus false pairs, over the draws.
"""

import warnings

import numpy as np
from data import MATCHES, match, side
from duplicates import swapped
from measures import unit
from scipy.stats import t
from sklearn.feature_extraction.text import TfidfVectorizer

from skcalib import Matcher
from skcalib.datasets import load_docstrings

RECORDS, DRAWS = 150, 5
CASES = "half", "half of both", "all", "none"
SENTENCES, SHARED = 300, 100


def rows(encode, options):
    warnings.simplefilter("ignore", UserWarning)  # of no pair
    for name in options.only or (*MATCHES, "records"):
        first, second, A, B = partners(encode, name)
        for case in (*CASES, "255 of both") if name == "catalogues" else CASES:
            lists = []
            for seed in range(DRAWS):
                a, b, truth = draw(len(first), case, np.random.default_rng(seed))
                texts = [first[i] for i in a], [second[i] for i in b]
                lists.append((A[a], B[b], *texts, truth))
            yield from compared({"data": name, "case": case}, lists)
    if not options.only:
        drawn = [sentences(encode, seed) for seed in range(DRAWS)]
        yield from compared({"data": "sentences", "case": "third"}, drawn)
        for name in ("catalogues", "records"):
            known = side(name)
            truth = np.full(len(known["a"]), -1)
            for i, j in known["rel"]:
                truth[i] = j
            lists = encode(known["a"]), encode(known["b"]), known["a"], known["b"], truth
            yield from compared({"data": name, "case": "whole"}, [lists])


def compared(known, drawn):
    """Yield a row for each rule: pairs that it lists of the drawn lists."""
    counts = {}
    for *lists, truth in drawn:
        for step, listed in contenders(*lists).items():
            rows_of_a = np.flatnonzero(listed >= 0)
            true = (truth[rows_of_a] == listed[rows_of_a]).sum()
            false = len(rows_of_a) - true
            share = 100 * false / max(len(rows_of_a), 1)
            counts.setdefault(step, []).append((true, false, share))
    for step, found in counts.items():
        yield known | {"step": step} | described(found)


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
    elif case == "255 of both":
        others = (n - 255) // 2
        a = order[: 255 + others]
        b = np.concatenate([order[:255], order[255 + others :]])
    else:
        size = min(RECORDS, 2 * n // 3) if case == "half of both" else min(RECORDS, n // 2)
        a = order[:size]
        start = size // 2 if case == "half of both" else size
        b = order[start : start + size]
    b = rng.permutation(b)
    place = {row: k for k, row in enumerate(b)}
    return a, b, np.array([place.get(row, -1) for row in a])


def sentences(encode, seed):
    """Two lists of vectors and of texts, and the place of each partner in the second, or -1."""
    rng = np.random.default_rng(seed)
    texts = np.unique(load_docstrings().data)
    drawn = [str(text) for text in rng.permutation(texts)[: 2 * SENTENCES - SHARED]]
    first = drawn[:SENTENCES]
    second = [swapped(swapped(text, rng), rng) for text in drawn[:SHARED]] + drawn[SENTENCES:]
    truth = np.where(np.arange(SENTENCES) < SHARED, np.arange(SENTENCES), -1)
    return encode(first), encode(second), first, second, truth


def mutual_nearest(cosines):
    """Column of the largest cosine of each row, or -1 where it is not its column's largest."""
    best = cosines.argmax(axis=1)
    return np.where(cosines.argmax(axis=0)[best] == np.arange(len(cosines)), best, -1)


def contenders(A, B, first, second):
    """Place of the partner in B of each record of A, or -1, by several rules."""
    n_grams = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5)).fit([*first, *second])
    spelled = (n_grams.transform(first) @ n_grams.transform(second).T).toarray()
    vectors = dict(zip([*second, *first], [*B, *A], strict=True))
    matcher = Matcher(lambda texts: np.array([vectors[text] for text in texts]))
    matcher.fit(first, second)
    found = {
        "vectors": mutual_nearest(unit(A) @ unit(B).T),
        "characters": np.where(spelled.max(axis=1) >= 0.4, mutual_nearest(spelled), -1),
    }
    for step, rate in {"Matcher": 0.05, "Matcher, 10 %": 0.1}.items():
        i, j = matcher.mutual_pairs_[matcher.mutual_q_values_ <= rate].T
        found[step] = np.full(len(A), -1)
        found[step][i] = j
    return found
