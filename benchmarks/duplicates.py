"""How many planted duplicates `Duplicates` finds, and what else it lists.

    SKCALIB_DATA=folder python benchmarks/duplicates.py MODEL --memory vectors \
        --output docs/results/duplicates-minilm.csv

Beside the folder of ``SKCALIB_DATA`` there are the folders ``tasks`` (banking77-train.csv) and
``topics`` (biomedical-train.csv). MODEL is a folder, or minilm.

Duplicates are planted among 4,000 texts: 400 copies with misspellings, with two words swapped
or with one word dropped, or 393 pairs of STS-B with grade 5. "renumbered" are copies of those
of the texts that have a number, with another one: no duplicates. A row of the table has the
planted pairs, how many of them have the same details, and for each way the threshold, the
planted pairs that it lists, and all other pairs. Nobody knows which of the others are false:
many are related. "intent" plants nothing, and its pairs are those of questions of one intent.

"raw 0.9" is that threshold without calibration. semhash (threshold 0.9) and cleanlab (0.13 of
the median distance to the nearest neighbor) get the raw vectors, too, where they are installed.

``--held-out`` prints something else: how many times more pairs of one half of all texts exceed
thresholds of the other half than were requested. It needs the files with test in place of
train, too.
"""

import argparse
import csv
import os
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline

from skcalib import (
    BertEncoder,
    DetailGuard,
    Duplicates,
    SimilarityScale,
    VectorStore,
    Whitening,
)
from skcalib.datasets import fetch_sts, minilm_path
from skcalib.similarity.duplicates.pairs import similar_pairs
from skcalib.utils.vectors import unit_rows

DATA = Path(os.environ["SKCALIB_DATA"])
N_TEXTS, N_PLANTED = 4000, 400
GUARD = DetailGuard()
COLUMNS = [
    *("data", "planted", "pairs", "compatible"),
    *("way", "false_pairs", "threshold", "found", "others"),
]


def misspelt(text, rng):
    """Drop, double or swap a letter of the text, and one more per 40 letters."""
    letters = list(text)
    for _ in range(1 + len(letters) // 40):
        i = rng.integers(1, len(letters) - 1)
        kept = letters[i - 1], letters[i]
        letters[i - 1 : i + 1] = (kept[::-1], kept[:1], (*kept, kept[1]))[rng.integers(3)]
    return "".join(letters)


def swapped(text, rng):
    words = text.split()
    i = rng.integers(1, len(words))
    words[i - 1 : i + 1] = words[i - 1 : i + 1][::-1]
    return " ".join(words)


def dropped(text, rng):
    words = text.split()
    del words[rng.integers(len(words))]
    return " ".join(words)


def renumbered(text, rng):
    """Change a digit."""
    digit = rng.choice([found.start() for found in re.finditer("[0-9]", text)])
    other = (int(text[digit]) + rng.integers(1, 10)) % 10
    return f"{text[:digit]}{other}{text[digit + 1 :]}"


def planted(texts):
    """Yield a name, texts to add, and the pairs of rows that are planted."""
    long = [i for i, text in enumerate(texts) if len(text.split()) >= 5]
    numbered = [i for i in long if re.search("[0-9]", texts[i])]
    for edit in (misspelt, swapped, dropped, renumbered):
        rng, rows = np.random.default_rng(0), numbered if edit is renumbered else long
        copies = {edit(texts[row], rng): row for row in rows[:N_PLANTED]}
        new = [(text, row) for text, row in copies.items() if text not in set(texts)]
        copied = [row for _, row in new]
        pairs = np.array([copied, len(texts) + np.arange(len(new))])
        yield edit.__name__, [text for text, _ in new], pairs
    parts = [fetch_sts("stsb", split, return_X_y=True) for split in ("train", "dev", "test")]
    new, seen = [], set()
    for pair, grade in ((p, g) for part in parts for p, g in zip(*part, strict=True)):
        if grade == 5 and len({*pair} - seen) == 2:
            new += [str(text) for text in pair]
            seen |= {*pair}
    new = new[: 2 * N_PLANTED]
    yield "STS-B", new, len(texts) + np.arange(len(new)).reshape(-1, 2).T


def lists(raw, texts, false_pairs):
    """Yield names of ways, thresholds, and arrays (2, n) of the pairs that they list."""
    model = Duplicates(Known(texts, raw), false_pairs=false_pairs).fit(texts)
    yield "Duplicates", model.threshold_, model.pairs_.T
    # As with guard=DetailGuard(), which would encode again.
    same = [GUARD.compatible(texts[i], texts[j]) for i, j in model.pairs_]
    yield "with guard", model.threshold_, model.pairs_[same].T


def of_others(raw, texts):
    """Yield the same without calibration, also of semhash and cleanlab where installed."""
    unit = unit_rows(raw)[0].astype(np.float32)
    yield "raw 0.9", 0.9, similar_pairs(unit, np.zeros(len(unit)), 0.9)[0]
    if find_spec("semhash"):
        from semhash import SemHash

        encoder = Known(texts, unit)
        index = SemHash.from_records(texts, model=encoder, ann_backend="basic")
        result, place = index.self_deduplicate(threshold=0.9), encoder.place
        pairs = [(place[text.record], place[text.duplicate_of]) for text in result.filtered]
        yield "semhash", 0.9, np.sort(np.array(pairs, int).reshape(-1, 2).T, axis=0)
    if find_spec("cleanlab"):
        from cleanlab import Datalab

        lab = Datalab({"row": np.arange(len(texts))}, verbosity=0)
        lab.find_issues(features=unit, issue_types={"near_duplicate": {}})
        found = lab.get_info("near_duplicate")
        sets = found["near_duplicate_sets"]
        pairs = [(i, j) for i, others in enumerate(sets) for j in others]
        threshold = 1 - found["threshold"] * found["median_distance_to_nearest_neighbor"]
        yield "cleanlab", threshold, np.sort(np.array(pairs, int).reshape(-1, 2).T, axis=0)


class Known:
    """An encoder of texts whose vectors are known."""

    def __init__(self, texts, vectors):
        self.place = {text: i for i, text in enumerate(texts)}
        self.vectors = vectors

    def encode(self, texts, **_):
        return self.vectors[[self.place[text] for text in texts]]


def row_of(way, threshold, pairs, planted):
    """Count listed pairs that are planted, and others."""
    listed = set(zip(*pairs.tolist(), strict=True))
    found = len(listed & planted)
    return {
        "way": way,
        "threshold": f"{threshold:.3f}",
        "found": found,
        "others": len(listed) - found,
    }


def table(name, texts, intents, encoder):
    for plant, new, pairs in planted(texts):
        everything = [*texts, *new]
        raw = encoder.fit_transform(everything)
        known, wanted = described(name, plant, everything, pairs)
        for way in lists(raw, everything, 20):
            yield known | {"false_pairs": 20} | row_of(*way, wanted)
        for way in of_others(raw, everything):
            yield known | row_of(*way, wanted)
    if intents is None:
        return
    pairs = np.array(np.nonzero(np.triu(intents[:, None] == intents, 1)))
    known, wanted = described(name, "intent", texts, pairs)
    raw = encoder.fit_transform(texts)
    for budget in (20, 2000, 20_000):
        for way in lists(raw, texts, budget):
            yield known | {"false_pairs": budget} | row_of(*way, wanted)


def described(name, plant, texts, pairs):
    """Return the first cells of a row, and the pairs as a set."""
    details = [GUARD.details(text) for text in texts]
    compatible = sum(details[i] == details[j] for i, j in pairs.T)
    known = {"data": name, "planted": plant, "pairs": pairs.shape[1], "compatible": compatible}
    return known, set(zip(*pairs.tolist(), strict=True))


def held_out(name, texts, encoder):
    """Print observed per requested pairs of one half, with thresholds of the other."""
    pipeline = make_pipeline(encoder, Whitening(noise="auto"))
    scale = SimilarityScale().fit(pipeline.fit_transform(texts[::2]))
    unit = unit_rows(pipeline.transform(texts[1::2]))[0].astype(np.float32)
    n_pairs = len(unit) * (len(unit) - 1) / 2
    for rate in (1e-4, 1e-5, 1e-6):
        threshold = scale.threshold(rate, extrapolate=True)
        listed = similar_pairs(unit, np.zeros(len(unit)), threshold)[1]
        print(f"{name} {rate:g} {len(listed) / (rate * n_pairs):.1f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--memory", required=True, help="folder for vectors")
    parser.add_argument("--prompt", default=None, help="comes before each text")
    parser.add_argument("--output", help="file for the table")
    parser.add_argument("--held-out", action="store_true")
    options = parser.parse_args()
    model = minilm_path() if options.model == "minilm" else options.model
    store = VectorStore(options.memory, layers=(-1,), pooling="mean")
    encoder = BertEncoder(model, pooling="mean", prompt=options.prompt, memory=store)
    rows = []
    for file, name in {
        "tasks/banking77-train.csv": "Banking77",
        "topics/biomedical-train.csv": "titles",
    }.items():
        if options.held_out:
            files = file, file.replace("train", "test")
            texts = pd.concat([pd.read_csv(DATA.parent / file)["text"] for file in files])
            texts = texts.str.strip().drop_duplicates().sample(frac=1, random_state=0)
            held_out(name, texts.tolist(), encoder)
            continue
        frame = pd.read_csv(DATA.parent / file)
        frame["text"] = frame["text"].str.strip()
        frame = frame.drop_duplicates("text").sample(frac=1, random_state=0)[:N_TEXTS]
        intents = frame["category"].to_numpy() if name == "Banking77" else None
        for row in table(name, frame["text"].tolist(), intents, encoder):
            rows.append(row)
            print(*row.values(), flush=True)
    if not options.output:
        raise SystemExit
    with open(options.output, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
