"""Fewer dimensions: the leading ones of the model, a PCA, and a whitening.

The score is R-precision on 2,000 test texts after a fit on 4,000 training texts. "leading"
keeps the first dimensions, as ``truncate_dim`` does. Neither MiniLM nor e5 was trained to be
cut ("Matryoshka"), so this shows what cutting does to a model that does not declare it.
"""

from data import FITTED, labeled
from measures import r_precision
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skcalib import Whitening

SETS = "Banking77", "biomedical", "news", "intents"
DIMENSIONS = 64, 128, 256, 384


def steps(n):
    leading = FunctionTransformer(lambda X: X[:, :n])
    return {
        "leading": leading,
        "leading, whitened": make_pipeline(leading, Whitening(noise="auto")),
        "PCA": PCA(n, random_state=0),
        "whitened": Whitening(n, noise="auto"),
    }


def rows(encode, options):
    for name in options.only or SETS:
        X = encode(labeled(name, "train", FITTED)[0])
        texts, labels = labeled(name, "test", options.most or 2000)
        T = encode(texts)
        for step in steps(1):
            row = {"data": name, "vectors": step}
            for n in DIMENSIONS:
                found = r_precision(steps(n)[step].fit(X).transform(T), labels)
                row[str(n)] = f"{found:.1f}"
            yield row
