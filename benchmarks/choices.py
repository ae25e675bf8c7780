"""What `calibrate` chooses, scored by labels that it never saw: never worse than the raw model.

    SKCALIB_DATA=folder python benchmarks/choices.py MODEL [--prompt "query: "] --memory vectors

Beside the folder of ``SKCALIB_DATA`` there are the folders ``tasks`` (Banking77), ``topics``
(biomedical titles) and ``coarse`` (news). For each task and two seeds, `calibrate` chooses on
2,000 training texts; its pipeline maps up to 2,000 test texts, or ``--most`` of each. Each row
has R-precision (for a text with R others of its kind, their share of its R nearest texts), the
accuracy of the nearest mean of three labelled texts a class, a mean of ten draws, and the
average precision of all pairs, ranked by cosine, all as differences to the raw model, times
100. Beside "topics" stands the last layer, whitened and smoothed.
"""

import argparse
import csv
import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, NeighborSmoothing, Whitening, calibrate
from skcalib.datasets import minilm_path
from skcalib.evaluation._labelled import SCORES, few_labels
from skcalib.utils.vectors import unit_rows

DATA = Path(os.environ["SKCALIB_DATA"]).parent
SETS = {
    "Banking77": "tasks/banking77",
    "news": "coarse/news",
    "biomedical": "topics/biomedical",
    "intents": "narrow/intents",
    "spam": "narrow/spam",
    "emotions": "narrow/emotions",
}
TASKS = None, "duplicates", "topics"


def halves_of(name, seed, most):
    """Training texts, and texts and labels to score."""
    rng = np.random.default_rng(seed)
    fit, score = (
        pd.read_csv(DATA / f"{SETS[name]}-{half}.csv", keep_default_na=False)
        for half in ("train", "test")
    )
    chosen = np.sort(np.random.default_rng(0).permutation(len(score))[:most])
    texts, labels = (score.iloc[chosen, i].tolist() for i in (0, 1))
    return rng.permutation(fit.iloc[:, 0])[:most].tolist(), texts, np.array(labels)


def scores(vectors, labels):
    """R-precision, accuracy with three labels a class, average precision, times 100."""
    units = unit_rows(np.asarray(vectors, np.float64))[0]
    codes = np.unique(labels, return_inverse=True)[1]
    precision, pairs = (SCORES[name](units, codes, 0) for name in ("R-precision", "duplicates"))
    return 100 * np.array([precision, np.nanmean(few_labels(units, codes, draws=10)), pairs])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--prompt")
    parser.add_argument("--memory")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--most", type=int, default=2000)
    parser.add_argument(
        "--n-views", type=int, default=2000, help="texts that calibrate samples"
    )
    parser.add_argument("--output", default="choices.csv")
    options = parser.parse_args()
    model = minilm_path() if options.model == "minilm" else options.model
    kept = {"dtype": options.dtype, "memory": options.memory}
    encoder = BertEncoder(model, prompt=options.prompt, **kept)
    rows = []
    for name in SETS:
        for seed in (0, 1):
            fit_on, texts, labels = halves_of(name, seed, options.most)
            raw = scores(encoder.fit(fit_on).transform(texts), labels)
            steps = Whitening(noise="auto"), NeighborSmoothing()
            smoothed = make_pipeline(encoder, *steps).fit(fit_on)
            found = {"whitened, smoothed": scores(smoothed.transform(texts), labels)}
            for task in TASKS:
                pipeline = calibrate(
                    encoder, fit_on, task=task, n_texts=options.n_views, random_state=seed
                )
                found[str(task)] = scores(pipeline.transform(texts), labels)
            for row, value in found.items():
                cells = [name, seed, row, *np.round([*raw, *(value - raw)], 1)]
                print(*cells, sep="\t", flush=True)
                rows.append(cells)
    with open(options.output, "w", newline="", encoding="utf-8") as stream:
        header = ["set", "seed", "chosen", *("raw_rp", "raw_3", "raw_pairs")]
        header += ["rp", "three_labels", "pairs"]
        csv.writer(stream).writerows([header, *rows])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
