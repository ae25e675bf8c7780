"""Tables of word vectors: texts per second of `save_static`, compared with model2vec.

Run by hand, on a quiet machine::

    pip install -c constraints.txt '.[demo]' sentence-transformers 'model2vec[distill]'
    SKCALIB_DATA=folder python benchmarks/static.py [--texts 2000] [--repeats 5]

Texts per second in one thread by the processor's clock, including tokenization. All contenders
encode the same distinct sentences of STS. "STS-B" is Spearman's rho on its test pairs, after a
fit on 4,000 other sentences.
"""

import argparse
import tempfile
import time
from importlib.util import find_spec

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize
from turns import report, sentences, short_texts, turns

from skcalib import BertEncoder, Whitening
from skcalib.datasets import fetch_sts, minilm_path
from skcalib.export import save_static
from skcalib.metrics import spearman

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    encoder = BertEncoder(minilm_path(), layers=0, pooling="zipf")
    pipeline = make_pipeline(encoder, Whitening(256, power="auto"))
    pipeline.fit(sentences()[-4000:].tolist())
    with tempfile.TemporaryDirectory() as folder:
        save_static(pipeline, f"{folder}/table")
        table = SentenceTransformer(f"{folder}/table", device="cpu")
    ways = {
        "raw MiniLM (last layer, mean) in skcalib": BertEncoder(minilm_path())
        .fit([""])
        .transform,
        "the pipeline on the embedding layer": pipeline.transform,
        "the table, in sentence-transformers": table.encode,
    }
    if find_spec("model2vec"):
        from model2vec.distill import distill

        ways["model2vec"] = distill(minilm_path(), pca_dims=256, device="cpu").encode
    pairs, grades = fetch_sts("stsb", return_X_y=True)
    more = {}
    for name, encode in ways.items():
        a, b = (normalize(np.float64(encode(list(side)))) for side in pairs.T)
        more[name] = {"STS-B": f"{100 * spearman(grades, np.sum(a * b, axis=1)):.1f}"}
    given = short_texts(options.texts)
    seconds = turns(ways, options.repeats, given, time.process_time)
    report("one thread", seconds, "the pipeline on the embedding layer", options.texts, more)
