"""Names with typing errors: a language model or their characters.

600 of 3,000 titles of papers, 600 of 3,000 questions of customers, or 300 product names of two
shops come once more, misspelt. A row has the number of planted pairs, and of those and of other
pairs that one way lists. Shops sell the same products, and "same" are pairs that people judged
to be one product; "others" are all further pairs, also of a series ("8 GB, blue" and "8 GB,
pink"), or of two texts that nobody has compared.

"characters" are n-grams of `TfidfVectorizer(analyzer="char_wb")` in the dimensions of a
`TruncatedSVD`; "above" are three lines of scikit-learn, thresholds on the cosine without it.
"""

import numpy as np
from data import labeled, side
from duplicates import GUARD, misspelt
from scipy.sparse import triu
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from skcalib import Duplicates, TextEncoder

N_TEXTS, N_PLANTED = 3000, 600
SETS = {"titles": "biomedical", "questions": "Banking77", "products": None}
BUDGETS = 20, 1000, 20_000


def rows(encode, options):
    for name in options.only or SETS:
        names, product = products() if SETS[name] is None else of_set(SETS[name])
        rng = np.random.default_rng(0)
        chosen = rng.permutation(len(names))[: min(N_PLANTED, 300 * len(names) // 1100)]
        copies = {misspelt(names[row], rng): row for row in chosen}
        new = {copy: row for copy, row in copies.items() if copy not in set(names)}
        texts, original = [*names, *new], [*range(len(names)), *new.values()]
        planted = {(row, len(names) + i) for i, row in enumerate(new.values())}
        product = product[original]
        for way, false_pairs, threshold, listed in ways(encode, texts):
            listed = {tuple(sorted(pair)) for pair in listed.tolist()}
            rest = listed - planted
            same = sum(product[i] == product[j] for i, j in rest)
            yield {
                "data": name,
                "pairs": len(planted),
                "way": way,
                "false_pairs": false_pairs,
                "threshold": f"{threshold:.3f}",
                "found": len(listed & planted),
                "same": same,
                "others": len(rest) - same,
            }


def of_set(name):
    """Return distinct texts of a set, and a number of each."""
    texts = np.unique([text.strip() for text in labeled(name, "train", 2 * N_TEXTS)[0]])
    drawn = np.random.default_rng(0).permutation(len(texts))[: N_TEXTS - N_PLANTED]
    return texts[drawn].tolist(), np.arange(len(drawn))


def products():
    """Return the product names of two shops, and the number of the product of each."""
    found = side("catalogues")
    names = list(dict.fromkeys([*found["a"], *found["b"]]))
    product = np.arange(len(names))
    for i, j in found["rel"]:
        first, second = (product[names.index(found[x][k])] for x, k in (("a", i), ("b", j)))
        product[product == second] = first
    return names, product


def ways(encode, texts):
    """Yield a name, the false pairs allowed, the threshold, and the listed pairs, (n, 2)."""
    raw, row = encode(texts), {text: i for i, text in enumerate(texts)}
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4))
    encoders = {
        "model": TextEncoder(lambda asked: raw[[row[text] for text in asked]]),
        "characters": make_pipeline(vectorizer, TruncatedSVD(256, random_state=0)),
    }
    for name, encoder in encoders.items():
        model = Duplicates(encoder, false_pairs=max(BUDGETS)).fit(texts)
        for false_pairs in BUDGETS:
            found = model.at(false_pairs)
            same = [GUARD.compatible(texts[i], texts[j]) for i, j in found.pairs_]
            for way, kept in ((name, slice(None)), (f"{name}, guard", same)):
                yield way, false_pairs, found.threshold_, found.pairs_[kept]
    X = vectorizer.fit_transform(texts)
    cosines = triu(X @ X.T, 1).tocoo()
    pairs = np.column_stack([cosines.row, cosines.col])
    for least in (0.6, 0.7, 0.8):
        way = f"characters above {least}".replace("0.", ".")
        yield way, "", least, pairs[cosines.data > least]
