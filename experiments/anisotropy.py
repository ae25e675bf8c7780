"""What is wrong with raw vectors, as section 2 of BERT-flow describes it, in two models.

"words" has the embeddings of the 10,000 most frequent whole words of three letters or more, as
table 1 of Li et al. (2020): mean length, and mean distance and inner product to the three
nearest words, by rank of frequency, which is the place in the vocabulary. "rho" is Spearman's
correlation of rank and measure. The mean context is the mean vector of the last layer, which
predicts words.

"sentences" has STS-B's test sentences by feature and step, fitted on these sentences: "mean
cosine" of two of them, "first" the percentage of squared length along the direction that has
most, and Spearman's rho of the pairs' cosines with the grades and with the negative edit
distance of their characters. "map" has the first two principal coordinates of random words.
"""

from itertools import pairwise

import numpy as np
import raw_sts
from contenders import chosen
from data import distinct, pairs
from measures import correlation, of_places, unit
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from transformers import AutoModel, AutoTokenizer

from skcalib import NormalizingFlow, VectorStore, Whitening
from skcalib.datasets import minilm_path

ENDS = {"0-100": 100, "100-500": 500, "500-5K": 5000, "5K-10K": 10_000}  # of ranks
BINS = dict(zip(ENDS, pairwise([0, *ENDS.values()]), strict=True))
FLOW = {"flow": NormalizingFlow(random_state=0), "whitening": Whitening()}
STEPS = chosen("raw") | FLOW
DRAWN = 100  # words of a bin in the picture


def rows(encode, options):
    folder = minilm_path() if encode.name == "minilm" else encode.bert().model
    vectors = word_vectors(folder)
    yield from words(vectors, features(encode, options)["last layer"].mean(axis=0))
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
    distances, nearest = NearestNeighbors(n_neighbors=k).fit(X).kneighbors()
    return {
        "length": np.linalg.norm(X, axis=1),
        "distance to the 3 nearest": distances.mean(axis=1),
        "inner product with the 3 nearest": (X * X[nearest].mean(axis=1)).sum(axis=1),
    }


def features(encode, options):
    """Return vectors of STS-B's distinct test sentences, by feature."""
    texts, _ = distinct(pairs("stsb")[0])
    if encode.name == "minilm":
        plain = {"normalize": False}
        of = {
            "embedding": plain | {"layers": 0},
            "layer 3": plain | {"layers": 3},
            "layer 3, Zipf-weighted": plain | {"layers": 3, "pooling": "zipf"},
            "last layer": {},
        }
    else:
        params = {name: parts[0] for name, parts in raw_sts.FEATURES.items()}
        of = {
            "embedding": params["embedding"],
            "first and last layer": params["first_last"],
            "first and last layer, Zipf-weighted": params["first_last"] | {"pooling": "zipf"},
            "last layer": params["last"],
            "last token, words around": params["last token, prompt"],
        }
    kept = {"layers": (0, 1, 3, -1), "pooling": ("mean", "last", "zipf")}
    store = VectorStore(options.memory / f"anisotropy-{encode.name}", **kept)
    return {
        name: encode.bert(memory=store, **params).fit_transform(texts)
        for name, params in of.items()
    }


def sentences(encode, options):
    both, grades = pairs("stsb")
    _, places = distinct(both)
    closeness = [-edits(*pair) for pair in both]
    row = {"part": "sentences", "feature": "grades", "step": "-"}
    yield row | {"with edits": f"{correlation(closeness, grades):.1f}"}
    for feature, vectors in features(encode, options).items():
        for step, map_ in STEPS.items():
            units = unit(clone(map_).fit_transform(vectors))
            n, mean = len(units), units.mean(axis=0)
            cosines = of_places(units, places)
            values = np.linalg.svd(units, compute_uv=False) ** 2
            row = {"part": "sentences", "feature": feature, "step": step}
            row["mean cosine"] = f"{(n * mean @ mean - 1) / (n - 1):z.2f}"
            row["first"] = f"{100 * values[0] / values.sum():.0f}"
            row["with grades"] = f"{correlation(grades, cosines):.1f}"
            yield row | {"with edits": f"{correlation(closeness, cosines):.1f}"}


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
    coordinates = PCA(2, svd_solver="full").fit_transform(vectors)
    rng = np.random.default_rng(0)
    for name, (a, b) in BINS.items():
        for rank in np.sort(rng.permutation(np.arange(a, b))[:DRAWN]):
            x, y = coordinates[rank]
            yield {"part": "map", "measure": name, "x": f"{x:.3f}", "y": f"{y:.3f}"}
