"""What the kept dimensions of a raw language model cost and gain.

The features are SmolLM2's first and last layer. "similarity" is Spearman's rho of STS-B's test
pairs after a fit on their sentences, "answers" the area under the ROC curve of questions of
QNLI with sentences that may answer them, fitted on these, and "groups" the R-precision of
Banking77. Each first k dimensions are those of ``Whitening(k, power="auto",
n_groups="many")``; "PCA" is ``PCA(k, whiten=True)`` on the same vectors, for similarity. "MB"
is the memory of a million vectors, and "queries" how many queries a second one thread answers
by exact search with faiss among 100,000 random vectors.
"""

import time
from itertools import islice

import faiss
import numpy as np
import raw_recipes
from data import distinct, texts_of
from measures import of_groups, unit
from raw_recipes import score
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.preprocessing import FunctionTransformer

from skcalib import Whitening

KEPT = 2, 4, 8, 16, 32, 64, 128, 256, 384, 576
STORED, ASKED = 100_000, 200


def rows(encode, options):
    of_pairs = {}
    for use, _, both, grades in islice(raw_recipes.of_pairs(), 2):
        texts, places = distinct(both)
        vectors = raw_recipes.encoded(encode, options, "first_last", texts)[0]
        of_pairs[use] = vectors, places, grades
    fit_on, texts, codes = texts_of("Banking77")
    fitted, scored = (
        raw_recipes.encoded(encode, options, "first_last", of)[0] for of in (fit_on, texts)
    )
    steps = {f"first {k}": Whitening(k, power="auto", n_groups="many") for k in KEPT}
    for k, step in {"raw": FunctionTransformer(), **steps}.items():
        row = {"dimensions": k}
        for use, (X, *judged) in of_pairs.items():
            row[use] = f"{score(use, unit(clone(step).fit_transform(X)), *judged):.1f}"
        mapped = clone(step).fit(fitted).transform(scored)
        row["groups"] = f"{100 * of_groups(mapped, codes).mean():.1f}"
        if k != "raw":
            pca = PCA(step.n_components, whiten=True, random_state=0)
            X, *judged = of_pairs["similarity"]
            row["PCA"] = f"{score('similarity', unit(pca.fit_transform(X)), *judged):.1f}"
        d = mapped.shape[1]
        yield row | {"MB": f"{4 * d:,}", "queries": f"{queries_a_second(d):,.0f}"}


def queries_a_second(d):
    """Return the largest rate of five runs, in processor time."""
    faiss.omp_set_num_threads(1)
    vectors = np.random.default_rng(0).standard_normal((STORED, d), np.float32)
    index, times = faiss.IndexFlatIP(d), []
    index.add(vectors)
    for _ in range(5):
        start = time.process_time()
        for query in vectors[:ASKED]:
            index.search(query[None], 10)
        times.append(time.process_time() - start)
    return ASKED / min(times)
