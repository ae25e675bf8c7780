r"""Fewer dimensions: the leading ones of the model, a PCA, and a whitening.

    SKCALIB_DATA=folder python benchmarks/dimensions.py E5 --memory vectors \
        --output docs/results/dimensions.csv

Texts and fits are those of ``two_encoders.py``, the score is R-precision. "leading" keeps the
first dimensions, as ``truncate_dim`` does. Neither model was trained to be cut ("Matryoshka"),
so this shows what cutting does to a model that does not declare it.
"""

import argparse
import csv
from pathlib import Path

import pandas as pd
from comparison import DATA, SETS, precisions
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer
from two_encoders import TEXTS, encoders

from skcalib import VectorStore, Whitening

DIMENSIONS = 64, 128, 256, 384


def steps(n):
    return {
        "leading": FunctionTransformer(lambda X: X[:, :n]),
        "leading, whitened": make_pipeline(
            FunctionTransformer(lambda X: X[:, :n]), Whitening(noise="auto")
        ),
        "PCA": PCA(n, random_state=0),
        "whitened": Whitening(n, noise="auto"),
    }


def main(options):
    store = VectorStore(options.memory, layers=(-1,), pooling="mean")
    models = encoders(options.e5, store)
    with open(options.output, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["data", "encoder", "vectors", *map(str, DIMENSIONS)])
        for name, path in SETS.items():
            halves = (pd.read_csv(DATA / f"{path}-{half}.csv") for half in ("train", "test"))
            fit, test = (half.sample(TEXTS, random_state=0) for half in halves)
            codes = pd.factorize(test.iloc[:, 1])[0]
            for encoder in ("MiniLM", "e5"):
                X = models[encoder].fit_transform(fit["text"].to_numpy())
                T = models[encoder].transform(test["text"].to_numpy())
                for step in steps(1):
                    scores = []
                    for n in DIMENSIONS:
                        unit = Normalizer().transform(steps(n)[step].fit(X).transform(T))
                        found = precisions(unit @ unit.T, codes[:, None] == codes)
                        scores.append(f"{100 * found.mean():.1f}")
                    print(name, encoder, step, *scores, flush=True)
                    writer.writerow([name, encoder, step, *scores])
                    file.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("e5", metavar="E5", help="a folder with multilingual-e5-small")
    parser.add_argument("--memory", required=True, help="folder for vectors")
    parser.add_argument("--output", type=Path, required=True, help="table (CSV)")
    main(parser.parse_args())
