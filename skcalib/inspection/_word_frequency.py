"""How word frequency biases the positions of word vectors (section 2.2 of BERT-flow)."""

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from skcalib.inputs.containers import unmasked
from skcalib.inputs.vectors import check_vectors
from skcalib.markdown import markdown

# Bins of ranks in table 1 of the BERT-flow paper.
BINS = {
    "0-100": (0, 100),
    "100-500": (100, 500),
    "500-5K": (500, 5000),
    "5K-10K": (5000, 10000),
}
NEIGHBORS = (3, 5, 7)
# How tokenizers mark the beginning of a word; WordPiece marks its other pieces, by "##".
BEGINNINGS = ("Ġ", "▁")


@dataclass(frozen=True, eq=False)
class FrequencyBias:
    """Norms of word vectors and distances to their neighbors, by frequency rank.

    ``str(bias)`` is a Markdown table. Values in a bin without words are NaN.

    Parameters
    ----------
    bins : tuple of str
        Names of the bins of ranks, from frequent to rare.
    n_words : ndarray of shape (n_bins,)
        Words in each bin.
    mean_norm : ndarray of shape (n_bins,)
        Mean l2 norm.
    n_neighbors : tuple of int
        Values of k.
    knn_distance : ndarray of shape (n_values_of_k, n_bins)
        Mean l2 distance of a word to its k nearest neighbors.
    knn_dot : ndarray of shape (n_values_of_k, n_bins)
        Mean dot product of a word with the same neighbors.
    """

    bins: tuple[str, ...]
    n_words: np.ndarray
    mean_norm: np.ndarray
    n_neighbors: tuple[int, ...]
    knn_distance: np.ndarray
    knn_dot: np.ndarray

    def __str__(self) -> str:
        named = {"mean l2 norm": self.mean_norm}
        for what, values in (("l2 distance", self.knn_distance), ("dot product", self.knn_dot)):
            for k, row in zip(self.n_neighbors, values, strict=True):
                named[f"mean k-NN {what}, k={k}"] = row
        body = [[name, *(f"{value:.2f}" for value in row)] for name, row in named.items()]
        body.insert(0, ["words", *map(str, self.n_words)])
        return markdown(["frequency rank", *self.bins], body)


def word_frequency_bias(vectors: ArrayLike, ranks: ArrayLike) -> FrequencyBias:
    """Mean norm of word vectors, and distance to their neighbors, by frequency rank.

    In a space that word frequency biases [1]_, frequent words lie near the origin and close
    together, rare ones far out and far apart: each row of the table increases from left to
    right.

    Parameters
    ----------
    vectors : array-like of shape (n_words, d)
        A vector per word, from `word_embeddings` or any other source.
    ranks : array-like of shape (n_words,)
        Frequency rank of each word in a corpus, 0 for the most frequent. The bins are 0 to
        100, 100 to 500, 500 to 5000 and 5000 to 10000, upper ends excluded; words beyond are in
        no bin, but may be neighbors.

    Returns
    -------
    bias : FrequencyBias
        Both tables of the paper, for k of 3, 5 and 7; neighbors are those by l2 distance.

    Raises
    ------
    ValueError
        If lengths differ, a rank is negative, there are fewer than 8 words, or no rank is
        below 10000.

    References
    ----------
    .. [1] Li et al. (2020), "On the Sentence Embeddings from Pre-trained Language Models",
           EMNLP, arXiv:2011.05864, section 2.2 and table 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib.inspection import word_frequency_bias
    >>> rng = np.random.default_rng(0)
    >>> ranks = np.arange(1000)
    >>> vectors = rng.normal(size=(1000, 8)) * np.log2(2 + ranks)[:, None]
    >>> bias = word_frequency_bias(vectors, ranks)
    >>> bool(bias.mean_norm[0] < bias.mean_norm[1] < bias.mean_norm[2])
    True
    >>> bias.n_words
    array([100, 400, 500,   0])
    """
    dtypes, least = [np.float64, np.float32], max(NEIGHBORS) + 1
    words = check_vectors(vectors, name="vectors", dtype=dtypes, ensure_min_samples=least)
    places = checked_ranks(ranks, words)
    counted = np.flatnonzero(places < BINS["5K-10K"][1])
    if not len(counted):
        raise ValueError(
            f"word_frequency_bias got ranks from {places.min():g} up; expected one below 10000."
        )
    everything = words.astype(np.float64)
    # The search expands squares of distances, which a large common mean would cancel.
    centered = (everything - everything.mean(axis=0)).astype(words.dtype)
    search = NearestNeighbors(n_neighbors=max(NEIGHBORS) + 1, algorithm="brute").fit(centered)
    # The first is the word itself, or one with an equal vector.
    distances, neighbors = (nearest[:, 1:] for nearest in search.kneighbors(centered[counted]))
    binned, places = everything[counted], places[counted]
    columns = [np.einsum("ij,ij->i", binned, everything[column]) for column in neighbors.T]
    dots = np.stack(columns, axis=1)
    members = [(low <= places) & (places < high) for low, high in BINS.values()]

    def by_bin(values: np.ndarray) -> np.ndarray:
        return np.array([values[m].mean() if m.any() else np.nan for m in members])

    return FrequencyBias(
        bins=tuple(BINS),
        n_words=np.array([m.sum() for m in members]),
        mean_norm=by_bin(np.linalg.norm(binned, axis=1)),
        n_neighbors=NEIGHBORS,
        knn_distance=np.array([by_bin(distances[:, :k]) for k in NEIGHBORS]),
        knn_dot=np.array([by_bin(dots[:, :k]) for k in NEIGHBORS]),
    )


def checked_ranks(ranks: ArrayLike, vectors: np.ndarray) -> np.ndarray:
    """Return the frequency rank of each vector's word as float64, (n_words,)."""
    check_consistent_length(vectors, ranks)
    limits = {"ensure_2d": False, "dtype": np.float64, "input_name": "ranks"}
    places = check_array(column_or_1d(unmasked(ranks)), **limits)
    if (places < 0).any():
        raise ValueError(
            f"Got ranks from {places.min():g} up; expected the place of each word in a list "
            "sorted by decreasing frequency: 0 or more."
        )
    return places


def word_embeddings(
    model: str | os.PathLike[str],
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Read the embeddings of the words of a model's vocabulary, by decreasing frequency.

    These are rows of the embedding matrix, as in the BERT-flow paper. BERT's vocabulary is
    sorted by frequency, so that a word's place is its rank. Words of one character are left
    out: they come first, in alphabetical order.

    Parameters
    ----------
    model : str
        Hub id or local folder, as in `BertEncoder`.

    Returns
    -------
    vectors : ndarray of shape (n_words, d), float32
    ranks : ndarray of shape (n_words,)
        0, 1, ... n_words - 1.
    words : list of str

    Raises
    ------
    OSError
        If there is no such model.
    ValueError
        If its vocabulary is not sorted by frequency.

    Examples
    --------
    >>> from skcalib.datasets import minilm_path
    >>> from skcalib.inspection import word_embeddings
    >>> vectors, ranks, words = word_embeddings(minilm_path())
    >>> words[:5]
    ['the', 'of', 'and', 'in', 'to']
    >>> vectors.shape[1]
    384
    """
    import torch

    from skcalib.encoders.model.files import load, locate

    backbone = load(locate(os.fspath(model)), "cpu", "float32")
    if not backbone.has_zipf:
        raise ValueError(
            f"The vocabulary of {str(model)!r} is not sorted by frequency, so its words have "
            "no ranks. Pass your own vectors and ranks to word_frequency_bias."
        )
    tokenizer = backbone.tokenizer
    weighted = np.flatnonzero(backbone.zipf)  # from the first whole word on
    tokens = tokenizer.convert_ids_to_tokens(weighted.tolist())
    marked = any(token.startswith(BEGINNINGS) for token in tokens)
    is_whole = [t.startswith(BEGINNINGS) or not (marked or t.startswith("##")) for t in tokens]
    whole = np.flatnonzero(is_whole)
    matrix = backbone.module.get_input_embeddings().weight
    vectors = matrix[torch.from_numpy(weighted[whole]).to(matrix.device)].cpu().numpy()
    words = [tokens[i].lstrip("".join(BEGINNINGS)) for i in whole]
    return vectors, np.arange(len(whole)), words
