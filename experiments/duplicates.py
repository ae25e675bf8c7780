"""How many planted duplicates `Duplicates` finds, and what else it lists.

Duplicates are planted among 4,000 texts: 400 copies with misspellings, with two words swapped
or with one word dropped, or 393 pairs of STS-B with grade 5. "renumbered" are copies of those
of the texts that have a number, with another one: no duplicates. "catalogs" are 600 of the
texts and a version of each with all three changes. A row has the planted pairs, how many of
them have the same details, and for each way the threshold, the planted pairs that it lists, and
all other pairs. Nobody knows which of the others are false: many are related. "intent" plants
nothing, and its pairs are those of questions of one intent.
"raw 0.9" is that threshold without calibration, "centered 0.9" with the mean subtracted.
"""

import re

import numpy as np
from data import labeled, pairs
from measures import unit

from skcalib import DetailGuard, Duplicates, TextEncoder

N_TEXTS, N_PLANTED = 4000, 400
SETS = {"Banking77": "Banking77", "titles": "biomedical"}
GUARD = DetailGuard()


def rows(encode, options):
    for name in options.only or SETS:
        texts, intents = labeled(SETS[name], "train", options.most or 2 * N_TEXTS)
        texts, first = np.unique([text.strip() for text in texts], return_index=True)
        order = np.random.default_rng(0).permutation(len(texts))[:N_TEXTS]
        texts, intents = texts[order].tolist(), intents[first][order]
        for plant, everything, planted in plants(texts):
            raw, known = encode(everything), described(name, plant, everything, planted)
            ways = [*ours(raw, everything, 20), *others(raw, everything)]
            yield from (known | counted(*way, planted) for way in ways)
        if name == "Banking77":
            same = np.triu(intents[:, None] == intents, 1)
            planted, raw = np.array(np.nonzero(same)), encode(texts)
            known = described(name, "intent", texts, planted)
            for budget in (20, 2000, 20_000):
                yield from (known | counted(*way, planted) for way in ours(raw, texts, budget))


def described(name, plant, texts, planted):
    """Return the first cells of a row."""
    details = [GUARD.details(text) for text in texts]
    compatible = sum(details[i] == details[j] for i, j in planted.T)
    return {"data": name, "planted": plant, "pairs": len(planted.T), "compatible": compatible}


def counted(way, false_pairs, threshold, listed, planted):
    """Count listed pairs that are planted, and others."""
    listed, planted = (
        set(map(tuple, np.sort(p, axis=0).T.tolist())) for p in (listed, planted)
    )
    found = len(listed & planted)
    return {
        "way": way,
        "false_pairs": false_pairs,
        "threshold": f"{threshold:.3f}",
        "found": found,
        "others": len(listed) - found,
    }


# Planting.


def misspelled(text, rng):
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


def catalogs(text, rng):
    return misspelled(swapped(dropped(text, rng), rng), rng)


def plants(texts):
    """Yield a name, all texts, and the pairs of rows that are planted, (2, n)."""
    long = [i for i, text in enumerate(texts) if len(text.split()) >= 5]
    numbered = [i for i in long if re.search("[0-9]", texts[i])]
    for edit in (misspelled, swapped, dropped, renumbered, catalogs):
        rng, old = np.random.default_rng(0), texts
        chosen = (numbered if edit is renumbered else long)[:N_PLANTED]
        if edit is catalogs:
            old = [texts[row] for row in long[:600]]
            chosen = range(len(old))
        copies = {edit(old[row], rng): row for row in chosen}
        new = [(text, row) for text, row in copies.items() if text not in set(old)]
        copied = [row for _, row in new]
        planted = np.array([copied, len(old) + np.arange(len(new))])
        yield edit.__name__, [*old, *(text for text, _ in new)], planted
    new = []
    for split in ("train", "dev", "test"):
        both, grades = pairs("stsb", split)
        for pair in both[grades == 5]:
            new += pair.tolist() if len({*pair} - {*new}) == 2 else []
    new = new[: 2 * N_PLANTED]
    planted = len(texts) + np.arange(len(new)).reshape(-1, 2).T
    yield "STS-B", [*texts, *new], planted


# Finding: each yields a name, the promise, the threshold, and the listed pairs, (2, n).


def ours(raw, texts, false_pairs):
    row = {text: i for i, text in enumerate(texts)}
    encoder = TextEncoder(lambda asked: raw[[row[text] for text in asked]])
    model = Duplicates(encoder, false_pairs=false_pairs).fit(texts)
    listed = model.pairs_
    yield "Duplicates", false_pairs, model.threshold_, listed.T
    # As with guard=DetailGuard(), which would search again.
    same = [GUARD.compatible(texts[i], texts[j]) for i, j in listed]
    yield "with guard", false_pairs, model.threshold_, listed[same].T


def others(raw, texts):
    for name, vectors in {"raw": raw, "centered": raw - raw.mean(axis=0)}.items():
        units = unit(vectors).astype(np.float32)
        near = np.triu(units @ units.T, 1) > 0.9
        yield f"{name} 0.9", "", 0.9, np.array(np.nonzero(near))
