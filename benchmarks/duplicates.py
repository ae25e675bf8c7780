"""How many planted duplicates a threshold finds that was set from the searched texts.

    SKCALIB_DATA=folder python benchmarks/duplicates.py MODEL --memory vectors

Beside the folder of ``SKCALIB_DATA`` there are the folders ``tasks``
(banking77-{train,test}.csv) and ``topics`` (biomedical-{train,test}.csv). MODEL is a folder, or
minilm. The script first sets thresholds from half of all texts. For each requested
false-positive rate it prints how many times more pairs of the other half exceed the threshold.

Then it plants duplicates among 4,000 texts: 400 copies with misspellings, with two words
swapped or with one word dropped, or 393 pairs of STS-B with grade 5. A row has the number of
planted pairs and the requested number of false ones. Then it has, for the threshold from the
texts without duplicates, the threshold, the planted pairs that it finds, and the other pairs.
The same follows for the extrapolated threshold from the texts with duplicates. Nobody knows
which of the other pairs are false: many are related.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skcalib import BertEncoder, SimilarityScale, VectorStore, Whitening
from skcalib._vectors import unit_rows
from skcalib.datasets import fetch_sts, minilm_path

DATA = Path(os.environ["SKCALIB_DATA"])
N_TEXTS, N_PLANTED = 4000, 400
RNG = np.random.default_rng(0)


def misspelt(text):
    """Drop, double or swap a letter of the text, and one more per 40 letters."""
    letters = list(text)
    for _ in range(1 + len(letters) // 40):
        i = RNG.integers(1, len(letters) - 1)
        kept = letters[i - 1], letters[i]
        letters[i - 1 : i + 1] = (kept[::-1], kept[:1], (*kept, kept[1]))[RNG.integers(3)]
    return "".join(letters)


def swapped(text):
    words = text.split()
    i = RNG.integers(1, len(words))
    words[i - 1 : i + 1] = words[i - 1 : i + 1][::-1]
    return " ".join(words)


def dropped(text):
    words = text.split()
    del words[RNG.integers(len(words))]
    return " ".join(words)


def planted(texts):
    """Yield a name, texts to add, and the row of each original; -1 is the text before."""
    rows = [i for i, text in enumerate(texts) if len(text.split()) >= 5][:N_PLANTED]
    for edit in (misspelt, swapped, dropped):
        copies = {edit(texts[row]): row for row in rows}
        new = [(text, row) for text, row in copies.items() if text not in set(texts)]
        yield edit.__name__, *zip(*new, strict=True)
    parts = [fetch_sts("stsb", split, return_X_y=True) for split in ("train", "dev", "test")]
    pairs, seen = [], set()
    for pair, grade in ((p, g) for part in parts for p, g in zip(*part, strict=True)):
        if grade == 5 and len({*pair} - seen) == 2:
            pairs += [str(text) for text in pair]
            seen |= {*pair}
    pairs = pairs[: 2 * N_PLANTED]
    yield "STS-B, 5", pairs, [None, -1] * (len(pairs) // 2)


def listed(unit, threshold, pairs):
    """Count planted pairs that reach the threshold, and other pairs that do."""
    blocks = range(0, len(unit), 1024)
    n = sum(
        np.count_nonzero(np.triu(unit[i : i + 1024] @ unit.T >= threshold, i + 1))
        for i in blocks
    )
    found = np.count_nonzero(
        np.einsum("ij,ij->i", *(unit[rows] for rows in pairs)) >= threshold
    )
    return found, n - found


def held_out(name, texts, encoder, calibrator):
    """Print observed per requested pairs of one half, with thresholds of the other."""
    pipeline = make_pipeline(encoder, calibrator)
    fitted, new = texts[::2], texts[1::2]
    scale = SimilarityScale().fit(pipeline.fit_transform(fitted))
    unit = unit_rows(pipeline.transform(new))[0].astype(np.float32)
    no_pairs = np.zeros((2, 0), int)
    print(f"{name}, half of {len(texts)} texts:", end="")
    for rate in (1e-4, 1e-5, 1e-6):
        threshold = scale.threshold(rate, extrapolate=True)
        found = listed(unit, threshold, no_pairs)[1]
        print(f"  {rate:g} {found / (rate * len(new) * (len(new) - 1) / 2):.1f}", end="")
    print(flush=True)


def table(name, texts, encoder, calibrator, budgets):
    pipeline = make_pipeline(encoder, calibrator)
    clean = SimilarityScale().fit(pipeline.fit_transform(texts))
    n = len(texts)
    for plant, new, originals in planted(texts):
        everything = [*texts, *new]
        rows = np.arange(n, len(everything))
        of = np.array([n + i - 1 if o == -1 else o for i, o in enumerate(originals)], object)
        is_copy = np.array([o is not None for o in originals])
        pairs = rows[is_copy], of[is_copy].astype(int)
        vectors = pipeline.fit_transform(everything)
        unit = unit_rows(vectors)[0].astype(np.float32)
        scale = SimilarityScale().fit(vectors)
        for budget in budgets:
            rates = [2 * budget / (m * (m - 1)) for m in (n, len(everything))]
            thresholds = clean.threshold(rates[0]), scale.threshold(rates[1], extrapolate=True)
            print(f"{name:16}{plant:10}{len(pairs[0]):4}{budget:5}", end="")
            for threshold in thresholds:
                found, others = listed(unit, threshold, pairs)
                print(f"{threshold:8.3f}{found:5}{others:5}", end="")
            print(flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--memory", required=True, help="folder for vectors")
    parser.add_argument("--prompt", default=None, help="comes before each text")
    parser.add_argument("--budgets", type=int, nargs="*", default=(20, 200), help="false pairs")
    options = parser.parse_args()
    model = minilm_path() if options.model == "minilm" else options.model
    store = VectorStore(options.memory, layers=(-1,), pooling="mean")
    encoder = BertEncoder(model, pooling="mean", prompt=options.prompt, memory=store)
    calibrators = {"raw": FunctionTransformer(), "auto": Whitening(noise="auto")}
    for folder, file in (("tasks", "banking77"), ("topics", "biomedical")):
        texts = {}
        for split in ("train", "test"):
            column = pd.read_csv(DATA.parent / folder / f"{file}-{split}.csv")["text"]
            unique = column.str.strip().unique()
            texts[split] = np.random.default_rng(0).permutation(unique).tolist()
        every = list(dict.fromkeys(texts["train"] + texts["test"]))
        for name, calibrator in calibrators.items():
            name = f"{file} {name}"
            held_out(name, every, encoder, calibrator)
            table(name, texts["train"][:N_TEXTS], encoder, calibrator, options.budgets)
