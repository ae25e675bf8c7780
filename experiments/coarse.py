"""The dial from fine to coarse: gain over raw vectors by n_groups, for few and for many groups.

Each fit takes up to 4,000 training texts, or STS-B's training sentences; scores are of up to
2,000 test texts. The cells are the labeled sets and the pairs of topics of the news, scored by
R-precision, and STS-B's test pairs, by Spearman's rho. ``n_groups`` is given whatever the true
number of groups is, and `docs/draw.py` draws the gains.
"""

from itertools import combinations

import numpy as np
from data import FITTED, SETS, labeled, pairs, sentences
from measures import of_pairs, r_precision

from skcalib import Whitening

NUMBERS = 2, 8, 32, 128, 512, 2048


def rows(encode, options):
    for name, n_groups, fitted, score in cells(encode, options):
        raw = score(np.asarray)
        for n in NUMBERS:
            gain = score(Whitening(power="auto", n_groups=n).fit(fitted).transform) - raw
            yield {"cell": name, "groups": n_groups, "n_groups": n, "gain": f"{gain:+z.1f}"}


def cells(encode, options):
    """Yield a name, the true number of groups, vectors to fit on, and a score of a map."""

    def grouped(vectors, labels):
        return lambda transform: r_precision(transform(vectors), labels)

    for name in options.only or SETS:
        fit_on, of_fit = labeled(name, "train", FITTED)
        texts, labels = labeled(name, "test", options.most or 2000)
        A, B, names = encode(fit_on), encode(texts), np.unique(labels)
        yield name, len(names), A, grouped(B, labels)
        for pair in combinations(names, 2) if name == "news" else ():
            kept, part = np.isin(labels, pair), A[np.isin(of_fit, pair)]
            yield " and ".join(pair), 2, part, grouped(B[kept], labels[kept])
    both, grades = pairs("stsb")
    sides = [encode(side) for side in both.T]
    score = lambda transform: of_pairs(*map(transform, sides), grades)  # noqa: E731
    yield "STS-B", "", encode(sentences()), score
