"""SetFit and stormtrooper from three labelled titles of each topic of news.

    pip install setfit stormtrooper datasets accelerate  # in an environment of their own

Both train the model on the labelled texts, with their defaults. The labels are the first draws
of ``classes.py``, and the first 1,000 of its texts are scored. Seconds are those of training
and prediction, on one core.
"""

import time

import numpy as np
import torch
from data import FITTED, labelled
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from setfit import SetFitModel, Trainer, TrainingArguments
from sklearn.linear_model import LogisticRegression
from stormtrooper import SetFitClassifier

from skcalib.datasets import minilm_path


def setfit(few, labels, new):
    head = LogisticRegression()  # as from_pretrained has it
    body = SetFitModel(SentenceTransformer(minilm_path()), head, labels=sorted(set(labels)))
    arguments = TrainingArguments(report_to="none", output_dir="setfit", save_strategy="no")
    data = Dataset.from_dict({"text": few, "label": labels})
    Trainer(model=body, args=arguments, train_dataset=data).train()
    return body.predict(new)


def stormtrooper(few, labels, new):
    return SetFitClassifier(str(minilm_path())).fit(few, labels).predict(new)


def rows(encode, options):
    torch.set_num_threads(1)
    pool, of_pool = labelled("news", "train", FITTED)
    new, truth = labelled("news", "test", 1000)
    for way in (setfit, stormtrooper):
        for seed in range(2):
            order = np.random.default_rng(seed).permutation(len(pool))
            rows = np.concatenate([order[of_pool[order] == c][:3] for c in np.unique(of_pool)])
            start = time.perf_counter()
            predicted = way(pool[rows].tolist(), of_pool[rows].tolist(), new.tolist())
            yield {
                "way": way.__name__,
                "draw": seed,
                "accuracy": f"{100 * np.mean(np.asarray(predicted) == truth):.1f}",
                "seconds": f"{time.perf_counter() - start:.0f}",
            }
