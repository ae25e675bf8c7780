"""SetFit and stormtrooper beside ours, on three labelled titles of each topic of news.

    pip install setfit stormtrooper datasets accelerate  # in an environment of their own
    SKCALIB_DATA=folder python benchmarks/few_peers.py MODEL --output docs/results/few-peers.csv

Beside the folder of ``SKCALIB_DATA`` is the folder ``coarse``. MODEL is a folder of
sentence-transformers, or minilm. SetFit and stormtrooper train it on the labelled texts, with
their defaults; ours also sees 4,000 texts without labels, and the names of the topics if that
is said. All are scored on the same 1,000 others. Seconds are those of fit and prediction, with
encoding, on one core.
"""

import argparse
import csv
import time
import warnings

import numpy as np
import torch
from classes import read
from sentence_transformers import SentenceTransformer
from sklearn.linear_model import LogisticRegression

from skcalib import BertEncoder, ZeroShotClassifier
from skcalib.datasets import minilm_path

DRAWS = 2


def setfit(model, few, labels, pool, new):
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    head = LogisticRegression()  # as from_pretrained has it
    body = SetFitModel(SentenceTransformer(model), head, labels=sorted(set(labels)))
    arguments = TrainingArguments(report_to="none", output_dir="setfit", save_strategy="no")
    data = Dataset.from_dict({"text": few, "label": labels})
    Trainer(model=body, args=arguments, train_dataset=data).train()
    return body.predict(new)


def stormtrooper(model, few, labels, pool, new):
    from stormtrooper import SetFitClassifier

    return SetFitClassifier(model).fit(few, labels).predict(new)


def ours(model, few, labels, pool, new, names=None):
    known = dict(zip(few, labels, strict=True))
    encoder = BertEncoder(model)
    classifier = ZeroShotClassifier(encoder, names).fit(pool, [known.get(t) for t in pool])
    return classifier.predict(new)


def ours_with_names(model, few, labels, pool, new):
    return ours(model, few, labels, pool, new, sorted(set(labels)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--output", default="few-peers.csv")
    options = parser.parse_args()
    model = str(minilm_path()) if options.model == "minilm" else options.model
    torch.set_num_threads(1)
    pool, of_pool, new, truth = read("news")
    new, truth, table = new[:1000].tolist(), truth[:1000], []
    for way in (setfit, stormtrooper, ours, ours_with_names):
        found = []
        for seed in range(DRAWS):
            order = np.random.default_rng(seed).permutation(len(pool))
            few = np.concatenate([order[of_pool[order] == c][:3] for c in np.unique(of_pool)])
            start = time.perf_counter()
            predicted = way(
                model, pool[few].tolist(), of_pool[few].tolist(), pool.tolist(), new
            )
            seconds = time.perf_counter() - start
            found.append([100 * np.mean(np.asarray(predicted) == truth), seconds])
            print(way.__name__, seed, *np.round(found[-1], 1), flush=True)
        accuracy, seconds = np.mean(found, axis=0)
        table.append([way.__name__.replace("_", " "), f"{accuracy:.1f}", f"{seconds:.0f}"])
    with open(options.output, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["way", "accuracy", "seconds"], *table])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
