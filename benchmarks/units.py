"""Thresholds that move between encoders, and how rarely new texts of one kind raise an alarm.

    SKCALIB_DATA=folder python benchmarks/units.py minilm E5 --memory vectors

Beside the folder of ``SKCALIB_DATA`` there are the folders ``tasks`` (banking77-test.csv) and
``topics`` (biomedical-test.csv). E5 is a folder with multilingual-e5-small. Three files are
written to ``docs/results``:

``units-thresholds.csv``: half of the test texts are stored, the others are the queries. A hit
is a query whose best stored text reaches the threshold. "before" is the share of hits with the
first encoder, "kept" with the same number on the second, "per pair" and "per query" with
`equivalent`; "right" are the hits of the same class, in percent of all queries. The whitening
is fitted on the stored texts.

``units-shift.csv``: `Whitening.shift` of 300 new texts after a fit on 1,000, in ten draws: new
texts of the same kind, with a share of another kind, of one class that was not fitted, of half
of the classes, fitted on the others. Alarms, of ten, are counted by p-values below 0.05 and
0.01, and by a distance of the means of 0.15.

``units-mahalanobis.csv``: percent of new texts beyond `mahalanobis_threshold` and beyond the
quantile of the fitted texts' own distances, in ten draws.
"""

import argparse
import csv
import os
import warnings
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from skcalib import BertEncoder, SimilarityScale, Whitening
from skcalib.datasets import fetch_sts, minilm_path
from skcalib.utils.vectors import unit_rows

DATA = Path(os.environ["SKCALIB_DATA"])
RESULTS = Path(__file__).parents[1] / "docs" / "results"
FITTED, NEW, DRAWS = 1000, 300, 10


def texts():
    """Texts of each kind, and the class of each; sentences of STS have none."""
    found = {}
    for name, file in (("Banking77", "tasks/banking77"), ("biomedical", "topics/biomedical")):
        frame = pd.read_csv(DATA.parent / f"{file}-test.csv").drop_duplicates("text")
        found[name] = frame["text"].to_numpy(), frame["category"].to_numpy()
    sentences = np.unique(fetch_sts("stsb", "test").data.ravel().astype(str))
    found["STS-B"] = sentences, None
    return found


def best(Z, classes, stored):
    """Best cosine of each query among the stored texts, and whether it has the same class."""
    unit = unit_rows(Z)[0]
    cosines = unit[~stored] @ unit[stored].T
    nearest = cosines.argmax(axis=1)
    same = None if classes is None else classes[stored][nearest] == classes[~stored]
    return cosines.max(axis=1), same


def thresholds(vectors, kinds):
    """Yield a row for each data set, calibration and threshold."""
    for name, (_, classes) in kinds.items():
        n = len(vectors[0][name])
        stored = np.random.default_rng(0).permutation(n) < n // 2
        for step in ("raw", "calibrated"):
            scales, found = [], []
            for X in (of_encoder[name] for of_encoder in vectors):
                Z = X if step == "raw" else Whitening(noise="auto").fit(X[stored]).transform(X)
                scales.append(SimilarityScale().fit(Z[stored]))
                found.append(best(Z, classes, stored))
            for old in (0.6, 0.75):
                moved = {
                    per: scales[1].equivalent(old, of=scales[0], per=per)
                    for per in ("pair", "query")
                }
                row = {"data": name, "vectors": step, "threshold": old}
                asked = {"before": (0, old), "kept": (1, old)}
                asked |= {f"per {per}": (1, value) for per, value in moved.items()}
                for column, (encoder, threshold) in asked.items():
                    cosines, same = found[encoder]
                    hits = cosines >= threshold
                    row[f"{column}: threshold"] = f"{threshold:.2f}"
                    row[f"{column}: hits"] = f"{100 * hits.mean():.0f}"
                    if same is not None:
                        row[f"{column}: right"] = f"{100 * (hits & same).mean():.0f}"
                yield row


def shifts(encoder, vectors, kinds):
    """Yield a row for each kind of new texts."""
    others = {"Banking77": "biomedical", "biomedical": "Banking77", "STS-B": "biomedical"}
    for name, (_, classes) in kinds.items():
        X, Y = vectors[name], vectors[others[name]]
        cases = {
            "same kind": 0.0,
            "5 % foreign": 0.05,
            "10 % foreign": 0.1,
            "20 % foreign": 0.2,
        }
        if classes is not None:
            cases |= {"one class": 1.0, "other classes": 1.0}
        for case, share in cases.items():
            found = []
            for seed in range(DRAWS):
                rng = np.random.default_rng(seed)
                rows, foreign = rng.permutation(len(X)), Y
                if "class" in case:
                    names = rng.permutation(np.unique(classes))
                    away = names[: 1 if case == "one class" else len(names) // 2]
                    rows = rows[~np.isin(classes[rows], away)]
                    foreign = X[np.isin(classes, away)]
                k = min(round(NEW * share), len(foreign))
                new = X[rows[FITTED : FITTED + round(NEW * (1 - share))]]
                new = np.vstack([new, rng.permutation(foreign)[:k]])
                fitted = Whitening(noise="auto").fit(X[rows[:FITTED]])
                shift = fitted.shift(new)
                found.append((shift.p_value, shift.mean_distance, shift.mahalanobis_ratio))
            p, distance, ratio = np.transpose(found)
            yield {
                "encoder": encoder,
                "data": name,
                "new": case,
                "p below .05": np.sum(p < 0.05),
                "p below .01": np.sum(p < 0.01),
                "by 0.15": np.sum(distance >= 0.15),
                "distance": f"{distance.mean():.2f}",
                "ratio": f"{ratio.mean():.2f}",
            }


def distances(encoder, vectors):
    """Yield a row for each calibration and number of fitted texts."""
    kinds = {"exact": {}, "auto": {"noise": "auto"}}
    kinds |= {"128 axes": {"noise": "auto", "n_components": 128}}
    for name, X in vectors.items():
        for kind, params in kinds.items():
            for n in (600, 1200):
                rates = []
                for seed in range(DRAWS):
                    old, new = np.split(np.random.default_rng(seed).permutation(X), [n])
                    whitening = Whitening(**params).fit(old)
                    D, own = whitening.mahalanobis(new), whitening.mahalanobis(old)
                    asked = [whitening.mahalanobis_threshold(old, r) for r in (0.01, 0.05)]
                    rates.append([np.mean(t < D) for t in (*asked, np.quantile(own, 0.99))])
                one, five, by_own = 100 * np.mean(rates, axis=0)
                yield {
                    "encoder": encoder,
                    "data": name,
                    "whitening": kind,
                    "fitted": n,
                    "1 %": f"{one:.1f}",
                    "5 %": f"{five:.1f}",
                    "own 1 %": f"{by_own:.0f}",
                }


def write(name, rows):
    rows = list(rows)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with open(RESULTS / f"units-{name}.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", metavar="OLD", help="a folder, or minilm")
    parser.add_argument("new", metavar="NEW", help="a folder with multilingual-e5-small")
    parser.add_argument("--memory", metavar="FOLDER")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # of few samples for an exact whitening
    kinds = texts()
    old = minilm_path() if options.old == "minilm" else options.old
    encoders = {
        "MiniLM": BertEncoder(old, memory=options.memory),
        "e5": BertEncoder(options.new, prompt="query: ", memory=options.memory),
    }
    vectors = {
        encoder: {name: model.fit_transform(each) for name, (each, _) in kinds.items()}
        for encoder, model in encoders.items()
    }
    write("thresholds", thresholds(list(vectors.values()), kinds))
    write("shift", chain(*(shifts(*each, kinds) for each in vectors.items())))
    write("mahalanobis", chain(*(distances(*each) for each in vectors.items())))
