"""Long texts cut off, read whole in windows, and each window kept apart: nDCG@10 on Cranfield.

    python benchmarks/windows.py MODEL FOLDER --lengths 128 256 --memory vectors
        [--prompt "passage: " --query-prompt "query: "] --output docs/results/windows-minilm.csv

FOLDER has Cranfield in BEIR's layout. "cut" keeps the beginning of each abstract, "windows"
reads it whole and joins the windows' vectors, "apart" keeps a vector of each window, and an
abstract is as near to a query as its nearest window. "whitened" follows each by a
``Whitening(noise="auto")`` that was fitted on the same vectors. "tokens" go through the model
for each abstract, "vectors" are kept of it, both in the mean; "longer" is the percentage of
abstracts that are longer than the limit. ``--join 2`` makes one document of
two abstracts, end to end. Rows are written as soon as they are known.
"""

import argparse
import csv
import warnings
from pathlib import Path

import numpy as np
from sklearn.preprocessing import normalize
from transformers import AutoTokenizer

from skcalib import BertEncoder, Whitening
from skcalib.evaluation._beir import read_beir


def ndcg(cosines, grades):
    """Mean nDCG@10, times 100, of (n_queries, n_documents) cosines and grades."""
    discounts = 1 / np.log2(np.arange(2, 12))
    top = np.take_along_axis(grades, np.argsort(-cosines, axis=1, kind="stable")[:, :10], 1)
    best = -np.sort(-grades, axis=1)[:, :10]
    return 100 * np.mean((top @ discounts) / (best @ discounts))


def windows_of(text, tokenizer, room):
    """Windows of a text of at most so many tokens, as texts."""
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    offsets = offsets["offset_mapping"]
    parts = [offsets[i : i + room] for i in range(0, len(offsets), room)]
    return [text[part[0][0] : part[-1][1]] for part in parts]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("folder")
    parser.add_argument("--lengths", type=int, nargs="+", required=True)
    ways = "cut", "windows", "apart"
    parser.add_argument("--how", nargs="+", choices=ways, default=ways)
    parser.add_argument("--join", type=int, default=1)
    parser.add_argument("--memory")
    parser.add_argument("--prompt", default="")
    parser.add_argument("--query-prompt", default="")
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*were cut off|Token indices")
    found = read_beir(options.folder, "test")
    texts, queries = list(found.documents.values()), list(found.queries.values())
    grades = np.array([[of.get(name, 0) for name in found.documents] for of in found.grades])
    starts = range(0, len(texts), options.join)
    texts = [" ".join(texts[i : i + options.join]) for i in starts]
    grades = np.maximum.reduceat(grades, starts, axis=1)
    shared = {"memory": options.memory, "verbose": True}
    asked = BertEncoder(options.model, prompt=options.query_prompt, **shared)
    Q = asked.fit_transform(queries)
    folder = asked._backbone().folder
    tokenizer = AutoTokenizer.from_pretrained(folder)
    whole = tokenizer([options.prompt + text for text in texts]).input_ids
    n_tokens = np.array(list(map(len, whole)))
    added = len(tokenizer(options.prompt).input_ids)
    with Path(options.output).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["length", "how", "longer", "tokens", "vectors", "raw", "whitened"])
        for length in options.lengths:
            for how in options.how:
                D, rows, tokens = texts, np.arange(len(texts)), np.minimum(n_tokens, length)
                if how == "apart":
                    parts = [windows_of(text, tokenizer, length - added) for text in texts]
                    rows = np.repeat(rows, [len(some) for some in parts])
                    D = [part for some in parts for part in some]
                if how != "cut":
                    more = np.ceil(np.maximum(n_tokens - length, 0) / (length - added))
                    tokens = n_tokens + added * more
                overflow = "windows" if how == "windows" else "cut"
                encoder = BertEncoder(
                    options.model,
                    prompt=options.prompt,
                    max_length=length,
                    overflow=overflow,
                    **shared,
                )
                V = encoder.fit_transform(D)
                scores = []
                for step in (None, Whitening(noise="auto").fit(V)):
                    d, q = (normalize(step.transform(X) if step else X) for X in (V, Q))
                    cosines = np.full(grades.shape, -np.inf)
                    np.maximum.at(
                        cosines.T, rows, d.astype(np.float64) @ q.T.astype(np.float64)
                    )
                    scores.append(ndcg(cosines, grades))
                longer = 100 * np.mean(n_tokens > length)
                figures = [longer, tokens.mean(), len(V) / len(texts), *scores]
                writer.writerow([length, how, *(f"{x:.1f}" for x in figures)])
                file.flush()
                print(length, how, *(f"{x:.1f}" for x in figures), flush=True)


if __name__ == "__main__":
    main()
