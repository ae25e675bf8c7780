"""The papers' job beside fifteen lines of transformers, numpy and scipy: the same score.

Run by hand, on a quiet machine::

    SKCALIB_DATA=folder python benchmarks/main_job.py [--model folder]

STS-B's test sentences become means of the first and last layer, are whitened to 256 dimensions,
and Spearman's rho of their cosines with the grades is printed. Both sides take turns in one
process, with one thread, and encode each distinct sentence once.
"""

import argparse
import tempfile

import numpy as np
import torch
from scipy.stats import spearmanr
from sklearn.pipeline import make_pipeline
from transformers import AutoModel, AutoTokenizer
from turns import report, time, turns

from skcalib import BertEncoder, BiEncoder, Whitening
from skcalib.datasets import fetch_sts, minilm_path

PAIRS, GRADES = fetch_sts("stsb", return_X_y=True)


def fifteen_lines(tokenizer, model, batch_size=32):
    texts, places = np.unique(PAIRS.astype(str), return_inverse=True)
    vectors = []
    with torch.inference_mode():
        for start in range(0, len(texts), batch_size):
            batch = list(texts[start : start + batch_size])
            tokens = tokenizer(batch, padding=True, truncation=True, return_tensors="pt")
            states = model(**tokens, output_hidden_states=True).hidden_states
            mask = tokens["attention_mask"].unsqueeze(-1)
            states = (states[1] + states[-1]) / 2
            vectors.append((states * mask).sum(1) / mask.sum(1))
    vectors = torch.cat(vectors).double().numpy()
    mean, (U, values, _) = vectors.mean(0), np.linalg.svd(np.cov(vectors.T))
    vectors = (vectors - mean) @ (U / np.sqrt(values))[:, :256]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    first, second = vectors[places.reshape(PAIRS.shape).T]
    return spearmanr((first * second).sum(1), GRADES).statistic


def ours(model):
    with tempfile.TemporaryDirectory() as folder:
        encoder = BertEncoder(model, layers="first_last", pooling="mean", memory=folder)
        pairs = BiEncoder(make_pipeline(encoder, Whitening(256))).fit(PAIRS)
        return pairs.score(PAIRS, GRADES)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(minilm_path()))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModel.from_pretrained(options.model)
    ways = {
        "fifteen lines, batches of 32": lambda _: fifteen_lines(tokenizer, model),
        "skcalib": lambda _: ours(options.model),
    }
    seconds = turns(ways, options.rounds, clock=time.process_time)
    report("STS-B test", seconds, "fifteen lines, batches of 32")
    print(f"scores {fifteen_lines(tokenizer, model):.6f} and {ours(options.model):.6f}")
