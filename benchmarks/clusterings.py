"""Clusterings of scikit-learn on raw, calibrated and smoothed vectors of news.

    SKCALIB_DATA=folder python benchmarks/clusterings.py MODEL --memory vectors
        [--prompt "query: "] --output docs/results/clusterings-minilm.csv

Beside the folder of ``SKCALIB_DATA`` is the folder ``coarse`` (news, of four topics). Each step
is fitted on the 2,000 texts that are clustered, without labels. "NMI" is the normalized mutual
information with the topics, times 100; that of k-means is a mean of five seeds, and that of
HDBSCAN counts texts of no cluster as one cluster. The threshold on distances is the cosine that
one random pair in a hundred exceeds.
"""

import argparse
import csv
import warnings

import numpy as np
from coarse import read
from sklearn.cluster import HDBSCAN, AgglomerativeClustering, KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import normalized_mutual_info_score
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, NeighborSmoothing, SimilarityScale, Whitening
from skcalib.datasets import minilm_path
from skcalib.utils.vectors import unit_rows


def steps(k):
    """Yield what comes behind the encoder, by name."""
    neutral, told = Whitening(noise="auto"), Whitening(noise="auto", n_groups=k)
    yield "raw", None
    yield "PCA(5)", PCA(5, random_state=0)
    yield "whitened", neutral
    yield "told", told
    yield "smoothed", make_pipeline(neutral, NeighborSmoothing())
    yield "told and smoothed", make_pipeline(told, NeighborSmoothing())


def clusterings(units, k):
    """Yield labels of clusters, by the name of the clustering."""
    yield "k-means", [KMeans(k, n_init=3, random_state=s).fit_predict(units) for s in range(5)]
    average = {"linkage": "average", "metric": "cosine"}
    yield "average linkage", [AgglomerativeClustering(k, **average).fit_predict(units)]
    yield "Ward", [AgglomerativeClustering(k).fit_predict(units)]
    yield "HDBSCAN", [HDBSCAN(min_cluster_size=10, copy=True).fit_predict(units)]
    threshold = 1 - SimilarityScale().fit(units).threshold(0.01)
    cut = AgglomerativeClustering(None, distance_threshold=threshold, **average)
    yield "threshold", [cut.fit_predict(units)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--prompt")
    parser.add_argument("--memory")
    parser.add_argument("--output", default="clusterings.csv")
    options = parser.parse_args()
    model = minilm_path() if options.model == "minilm" else options.model
    texts, topics = read("news", "test", 2000)
    k = len(np.unique(topics))
    vectors = BertEncoder(model, prompt=options.prompt, memory=options.memory).fit_transform(
        texts
    )
    rows = []
    for step, map_ in steps(k):
        units = unit_rows(np.float64(vectors if map_ is None else map_.fit_transform(vectors)))[
            0
        ]
        for name, found in clusterings(units, k):
            agreement = 100 * np.mean([normalized_mutual_info_score(topics, c) for c in found])
            n, without = found[0].max() + 1, np.mean(found[0] == -1)
            rows.append([step, name, f"{agreement:.1f}", n, f"{without:.2f}"])
            print(*rows[-1], sep="\t", flush=True)
    with open(options.output, "w", newline="", encoding="utf-8") as stream:
        header = ["step", "clustering", "NMI", "clusters", "without"]
        csv.writer(stream).writerows([header, *rows])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
