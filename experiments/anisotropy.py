"""What is wrong with raw vectors, as section 2 of BERT-flow describes it, in two models.

"words" has the embeddings of the 10,000 most frequent words by rank of frequency, as table 1 of
Li et al. (2020): mean length, and mean distance and inner product to the three nearest words.
The rank is the place in the vocabulary, whose tokens are in the order of their frequency.
Pieces of words, and words of one character or with other characters than letters, are left out.
"rho" is Spearman's correlation of rank and measure over all of them. The mean context is the
mean vector of the last layer, which predicts words.

"sentences" has STS-B's test sentences by feature and step, fitted on these sentences: "mean
cosine" of two of them, "first" the percentage of squared length along the direction that has
most, and Spearman's rho of the pairs' cosines with the grades and with the negative edit
distance of their characters.

"map" has the first two principal coordinates of random words, for a picture.
"""

from itertools import pairwise

import numpy as np
import raw_sts
from data import pairs
from measures import correlations, unit
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.preprocessing import FunctionTransformer
from transformers import AutoModel, AutoTokenizer

from skcalib import NormalizingFlow, VectorStore, Whitening
from skcalib.datasets import minilm_path

ENDS = {"0-100": 100, "100-500": 500, "500-5K": 5000, "5K-10K": 10_000}  # of ranks
BINS = dict(zip(ENDS, pairwise([0, *ENDS.values()]), strict=True))
STEPS = {
    "raw": FunctionTransformer(),
    "flow": NormalizingFlow(random_state=0),
    "whitening": Whitening(),
}
DRAWN = 100  # words of a bin in the picture


def rows(encode, options):
    folder = minilm_path() if encode.name == "minilm" else encode.bert().model
    vectors = word_vectors(folder)
    yield from words(vectors, last_layer(encode, options))
    yield from sentences(encode, options)
    yield from drawn(vectors)


def word_vectors(folder):
    """Return the embeddings of the most frequent whole words, in this order."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    by_id = sorted((id_, token) for token, id_ in tokenizer.get_vocab().items())
    pieces = any(token.startswith("##") for _, token in by_id)
    start = "" if pieces else "Ġ"  # how a token that begins a word is marked
    whole = [
        id_
        for id_, token in by_id
        if token.startswith(start) and token.removeprefix(start).isalpha() and len(token) > 2
    ]
    embedding = AutoModel.from_pretrained(folder).get_input_embeddings().weight
    return embedding.detach().double().numpy()[whole[: max(ENDS.values())]]


def last_layer(encode, options):
    """Return the mean vector of the sentences' last layer."""
    return features(encode, options)["last layer"].mean(axis=0)


def words(vectors, context):
    for step, map_ in STEPS.items():
        mapped = clone(map_).fit_transform(vectors)
        for measure, values in measured(mapped).items():
            yield of_ranks(step, measure, values)
        if step == "raw":
            yield of_ranks(step, "inner product with the mean context", vectors @ context)


def of_ranks(step, measure, values):
    """Return the means of the bins, and the correlation of rank and measure."""
    row = {"part": "words", "step": step, "measure": measure}
    row |= {name: f"{values[a:b].mean():.2f}" for name, (a, b) in BINS.items()}
    rho = np.corrcoef(np.arange(len(values)), rankdata(values))[0, 1]
    return row | {"rho": f"{100 * rho:.0f}"}


def measured(X, k=3):
    """Return length, and mean distance and inner product to the nearest others, of each row."""
    squares = (X**2).sum(axis=1)
    distances, products = [], []
    for rows in np.array_split(np.arange(len(X)), 1 + len(X) // 1000):
        inner = X[rows] @ X.T
        between = squares[rows, None] + squares - 2 * inner
        between[np.arange(len(rows)), rows] = np.inf
        nearest = np.argpartition(between, k, axis=1)[:, :k]
        lengths = np.sqrt(np.maximum(np.take_along_axis(between, nearest, axis=1), 0))
        distances.append(lengths.mean(axis=1))
        products.append(np.take_along_axis(inner, nearest, axis=1).mean(axis=1))
    return {
        "length": np.sqrt(squares),
        "distance to the 3 nearest": np.concatenate(distances),
        "inner product with the 3 nearest": np.concatenate(products),
    }


def features(encode, options):
    """Return vectors of STS-B's distinct test sentences, by feature."""
    texts = list(np.unique(pairs("stsb")[0]))
    if encode.name == "minilm":
        plain = {"normalize": False}
        of = {
            "embedding": plain | {"layers": 0},
            "layer 3": plain | {"layers": 3},
            "layer 3, Zipf-weighted": plain | {"layers": 3, "pooling": "zipf"},
            "last layer": {},
        }
    else:
        of = {
            "embedding": raw_sts.FEATURES["embedding"][0],
            "first and last layer": raw_sts.FEATURES["first_last"][0],
            "first and last layer, Zipf-weighted": raw_sts.FEATURES["first_last"][0]
            | {"pooling": "zipf"},
            "last layer": raw_sts.FEATURES["last"][0],
            "last token, words around": raw_sts.FEATURES["last token, prompt"][0],
        }
    kept = {"layers": (0, 1, 3, -1), "pooling": ("mean", "last", "zipf")}
    store = VectorStore(options.memory / f"anisotropy-{encode.name}", **kept)
    return {
        name: encode.bert(memory=store, **params).fit_transform(texts)
        for name, params in of.items()
    }


def sentences(encode, options):
    both, grades = pairs("stsb")
    first, second = np.unique(both, return_inverse=True)[1].reshape(both.shape).T
    closeness = [-edits(*pair) for pair in both]
    with_edits = {"with edits": f"{100 * correlations(closeness, [grades])[0]:.1f}"}
    yield {"part": "sentences", "feature": "grades", "step": "-"} | with_edits
    for feature, vectors in features(encode, options).items():
        for step, map_ in STEPS.items():
            units = unit(clone(map_).fit_transform(vectors))
            n, mean = len(units), units.mean(axis=0)
            cosines = (units[first] * units[second]).sum(axis=1)
            values = np.linalg.svd(units, compute_uv=False) ** 2
            row = {"part": "sentences", "feature": feature, "step": step}
            row["mean cosine"] = f"{(n * mean @ mean - 1) / (n - 1):z.2f}"
            row["first"] = f"{100 * values[0] / values.sum():.0f}"
            row["with grades"] = f"{100 * correlations(grades, [cosines])[0]:.1f}"
            yield row | {"with edits": f"{100 * correlations(closeness, [cosines])[0]:.1f}"}


def edits(a, b):
    """Return the edit distance (Levenshtein) of two texts, in characters."""
    column = np.arange(len(a) + 1)
    letters = np.array(list(a))
    steps = np.arange(len(a) + 1)
    for letter in b:
        kept = np.minimum(column[1:] + 1, column[:-1] + (letters != letter))
        kept = np.concatenate([column[:1] + 1, kept])
        column = np.minimum.accumulate(kept - steps) + steps  # deletions in a
    return int(column[-1])


def drawn(vectors):
    """Yield the first two principal coordinates of random words of each bin."""
    frequent = vectors[: max(end for _, end in BINS.values())]
    coordinates, rng = (
        PCA(2, svd_solver="full").fit_transform(frequent),
        np.random.default_rng(0),
    )
    for name, (a, b) in BINS.items():
        for rank in np.sort(rng.permutation(np.arange(a, b))[:DRAWN]):
            x, y = coordinates[rank]
            yield {"part": "map", "measure": name, "x": f"{x:.3f}", "y": f"{y:.3f}"}
