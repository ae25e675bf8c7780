"""Words that distinguish some texts from others."""

from collections.abc import Sequence

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer


def words_of(texts: Sequence[str], others: Sequence[str], n_words: int) -> list[str]:
    """Return words of some texts that are rarer in others, the most telling first.

    A word weighs the share of the texts that have it, times the logarithm of this share over
    that of the others: a class-based TF-IDF in which words that both use alike weigh nothing.
    Numbers, single characters and scikit-learn's English stop words, such as "its", are left
    out: they show another style, but not what is new.
    """
    word = r"(?u)\b(?=\w*[^\W\d_])\w\w+\b"  # with a letter in it
    counter = CountVectorizer(binary=True, stop_words="english", token_pattern=word)
    try:
        found = counter.fit_transform(texts)
    except ValueError:  # no text has a word
        return []
    shares = [
        (np.asarray(X.sum(axis=0)).ravel() + 0.5) / (X.shape[0] + 1)
        for X in (found, counter.transform(others))
    ]
    weights = shares[0] * np.log(shares[0] / shares[1])
    best = np.argsort(-weights, kind="stable")[:n_words]
    return [*counter.get_feature_names_out()[best[weights[best] > 0]]]
