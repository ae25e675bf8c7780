"""How frequency orders MiniLM's word embeddings, before and after exact whitening.

As table 1 of BERT-flow (Li et al., 2020), whose rows of BERT are quoted. The paper counts ranks
on Wikipedia; these are places in the vocabulary, which is sorted by frequency.
"""

from skcalib import Whitening
from skcalib.datasets import minilm_path
from skcalib.inspection import word_embeddings, word_frequency_bias

BINS = "0-100", "100-500", "500-5K", "5K-10K"
MEASURES = "mean l2 norm", "mean k-NN l2 distance, k=3", "mean k-NN dot product, k=3"
PAPER = [(0.95, 1.04, 1.22, 1.45), (0.77, 0.93, 1.16, 1.30), (0.73, 0.92, 1.20, 1.63)]


def rows(encode, options):
    vectors, ranks, _ = word_embeddings(minilm_path())
    found = {"BERT, in the paper": PAPER}
    whitened = Whitening().fit_transform(vectors)
    for name, X in (("MiniLM", vectors), ("MiniLM, whitened", whitened)):
        bias = word_frequency_bias(X, ranks)
        found[name] = bias.norm, bias.distance[0], bias.dot_product[0]
    for name, lines in found.items():
        for measure, values in zip(MEASURES, lines, strict=True):
            row = {"row": f"{name}: {measure}" if measure == MEASURES[0] else measure}
            yield row | {b: f"{value:.2f}" for b, value in zip(BINS, values, strict=True)}
