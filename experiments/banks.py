"""Where a bank must be watched: few documents, each of which answers many queries.

Documents are the names of classes, or stored questions, one of each intent or all that are
stored, and queries are the test texts of these sets, which ask for a class or an intent. Half
of them are scored, and the bank is 100 or all of the other half, without labels, so that it is
often larger than the collection. "right" is the share of queries whose best document is of
their class, and "difference" that to raw vectors; means of five draws, and the worst.

In the skewed sets, such as "emotions", most texts are of one class. `ZeroShotClassifier` is
fitted on the bank, and `NearestAnswer` has it as its queries, or none.
"""

import numpy as np
from data import labeled
from measures import unit

from skcalib import NearestAnswer, SearchEncoder, TextEncoder, ZeroShotClassifier

DRAWS, BANKS, MOST, STORED = 5, (100, None), 2000, 500
SETS = "Banking77", "intents", "biomedical"
NAMED = "Banking77", "intents", "emotions", "news"
STEPS = {
    "two means": {"hub_weight": 0, "power": 0, "lexical": None},
    "vectors": {"lexical": None},
    "search": {},
}


def rows(encode, options):
    places = [("names", name) for name in NAMED]
    places += [(kind, name) for kind in ("one of each", "stored") for name in SETS]
    for kind, name in places:
        if options.only and name not in options.only:
            continue
        found = {}
        for seed in range(DRAWS):
            for (bank, step), right in draw(encode, kind, name, seed):
                found.setdefault((bank, step), []).append(right)
        for (bank, step), right in found.items():
            row = {"documents": kind, "data": name, "bank": bank, "step": step}
            row["right"] = f"{100 * np.mean(right):.1f}"
            if step != "raw":
                gain = 100 * np.subtract(right, found[bank, "raw"])
                row |= {"difference": f"{gain.mean():+.1f}", "worst": f"{gain.min():+.1f}"}
            yield row


def draw(encode, kind, name, seed):
    """Yield bank and step, and the share of scored queries whose best document is right."""
    texts, classes = labeled(name, "test", MOST)
    texts, first = np.unique(texts.astype(str), return_index=True)
    classes, rng = classes[first], np.random.default_rng(seed)
    order = rng.permutation(len(texts))
    if kind == "names":
        of_documents = np.unique(classes)
        documents = np.array(
            [label.replace("_", " ").replace("/", " ") for label in of_documents]
        )
        rest = order
    else:
        place = np.unique(classes[order], return_index=True)[1]
        stored = order[place] if kind == "one of each" else order[:STORED]
        documents, of_documents = texts[stored], classes[stored]
        rest = np.setdiff1d(order, stored)
        rest = rng.permutation(rest)
    scored, log = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    D, Q = unit(encode(documents, True)), unit(encode(texts))

    def right(best):
        return np.mean(of_documents[best] == classes[scored])

    for n in BANKS:
        bank, place = log[:n], str(n or "all")
        yield (place, "raw"), right((Q[scored] @ D.T).argmax(axis=1))
        everything = [*documents, *texts]
        vectors = dict(zip(everything, [*D, *Q], strict=True))
        encoder = TextEncoder(lambda asked, of=vectors: np.array([of[text] for text in asked]))
        for step, params in STEPS.items():
            search = SearchEncoder(encoder, **params).fit(documents, queries=texts[bank])
            yield (place, step), right(search.kneighbors(texts[scored], 1)[1][:, 0])
        if kind == "names":
            model = ZeroShotClassifier(encoder, dict(zip(of_documents, documents, strict=True)))
            found = model.fit(texts[bank]).predict(texts[scored])
            yield (place, "ZeroShotClassifier"), np.mean(found == classes[scored])
        else:
            model = NearestAnswer(encoder, false_positive_rate=0.2)
            for step, more in {"no queries": {}, "queries": {"queries": texts[bank]}}.items():
                model.fit(documents, of_documents, **more)
                best = model.kneighbors(texts[scored], 1)[1][:, 0]
                found = model.answers_[best]
                yield (place, f"NearestAnswer, {step}"), np.mean(found == classes[scored])
