"""Clusterings of scikit-learn on raw, calibrated and smoothed vectors of news.

Each step is fitted on the 2,000 texts that are clustered, without labels. "NMI" is the
normalized mutual information with the four topics, times 100; that of k-means is a mean of five
seeds, and that of HDBSCAN counts texts of no cluster as one cluster. The threshold on distances
is the cosine that one random pair in a hundred exceeds.
"""

import numpy as np
from contenders import some
from data import labeled
from measures import unit
from sklearn.cluster import HDBSCAN, AgglomerativeClustering, KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import normalized_mutual_info_score

from skcalib import SimilarityScale


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


def rows(encode, options):
    texts, topics = labeled("news", "test", options.most or 2000)
    k, vectors = len(np.unique(topics)), encode(texts)
    names = "raw", "whitened", "n_groups", "smoothed", "n_groups and smoothed"
    for step, map_ in (some(names, k) | {"PCA(5)": PCA(5, random_state=0)}).items():
        units = unit(map_.fit_transform(vectors))
        for name, found in clusterings(units, k):
            agreement = [normalized_mutual_info_score(topics, labels) for labels in found]
            yield {
                "step": step,
                "clustering": name,
                "NMI": f"{100 * np.mean(agreement):.1f}",
                "clusters": found[0].max() + 1,
                "without": f"{np.mean(found[0] == -1):.2f}",
            }
