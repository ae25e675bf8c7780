"""SetFit and stormtrooper from three labelled titles of each topic of news.

    pip install setfit stormtrooper datasets accelerate  # in an environment of their own
    SKCALIB_DATA=folder python benchmarks/few_peers.py MODEL --output docs/results/few-peers.csv

Beside the folder of ``SKCALIB_DATA`` is the folder ``coarse``. MODEL is a folder of
sentence-transformers, or minilm; both train it on the labelled texts, with their defaults. The
labels are the first draws of ``classes.py``, and the first 1,000 of its texts are scored.
Seconds are those of training and prediction, on one core.
"""

import argparse
import csv
import time
import warnings

import numpy as np
import torch
from classes import read
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from setfit import SetFitModel, Trainer, TrainingArguments
from sklearn.linear_model import LogisticRegression
from stormtrooper import SetFitClassifier

from skcalib.datasets import minilm_path


def setfit(model, few, labels, new):
    head = LogisticRegression()  # as from_pretrained has it
    body = SetFitModel(SentenceTransformer(model), head, labels=sorted(set(labels)))
    arguments = TrainingArguments(report_to="none", output_dir="setfit", save_strategy="no")
    data = Dataset.from_dict({"text": few, "label": labels})
    Trainer(model=body, args=arguments, train_dataset=data).train()
    return body.predict(new)


def stormtrooper(model, few, labels, new):
    return SetFitClassifier(model).fit(few, labels).predict(new)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--output", default="few-peers.csv")
    options = parser.parse_args()
    model = str(minilm_path()) if options.model == "minilm" else options.model
    torch.set_num_threads(1)
    pool, of_pool, new, truth = read("news")
    table = []
    for way in (setfit, stormtrooper):
        for seed in range(options.draws):
            order = np.random.default_rng(seed).permutation(len(pool))
            rows = np.concatenate([order[of_pool[order] == c][:3] for c in np.unique(of_pool)])
            start = time.perf_counter()
            predicted = way(
                model, pool[rows].tolist(), of_pool[rows].tolist(), new[:1000].tolist()
            )
            accuracy = 100 * np.mean(np.asarray(predicted) == truth[:1000])
            seconds = time.perf_counter() - start
            table.append([way.__name__, seed, f"{accuracy:.1f}", f"{seconds:.0f}"])
            print(*table[-1], flush=True)
    with open(options.output, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["way", "draw", "accuracy", "seconds"], *table])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
