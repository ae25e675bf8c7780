"""What `CalibrationSearch` chooses, scored by labels that it never saw: not worse than raw.

For each task and two seeds, it chooses on 600 training texts, with 300 of them as its queries;
its pipeline maps up to 600 test texts. Scores are R-precision, the accuracy with
three labels a class, and the average precision of pairs, as differences to the raw model, times
100. Beside "topics" stands the last layer, whitened and smoothed.
"""

import numpy as np
from contenders import steps
from data import SETS, labeled
from measures import of_groups
from sklearn.pipeline import make_pipeline

from skcalib import CalibrationSearch

TASKS = None, "duplicates", "topics"
COLUMNS = "raw_rp", "raw_3", "raw_pairs", "rp", "three_labels", "pairs"


def rows(encode, options):
    most = options.most or 600
    encoder = encode.bert()
    for name in options.only or SETS:
        texts, labels = labeled(name, "test", most)
        train = labeled(name, "train")[0]
        raw = of_groups(encode(texts), labels)
        for seed in (0, 1):
            fit_on = np.random.default_rng(seed).permutation(train)[:most].tolist()
            smoothed = make_pipeline(encode.bert(), steps()["smoothed"]).fit(fit_on)
            found = {"whitened, smoothed": of_groups(smoothed.transform(texts), labels)}
            for task in TASKS:
                chosen = CalibrationSearch(
                    encoder, task=task, n_texts=most // 2, random_state=seed
                ).fit(fit_on)
                found[str(task)] = of_groups(chosen.transform(texts), labels)
            for step, scores in found.items():
                values = (f"{value:.1f}" for value in (*raw, *(scores - raw)))
                known = {"set": name, "seed": seed, "chosen": step}
                yield known | dict(zip(COLUMNS, values, strict=True))
