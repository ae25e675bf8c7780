"""Try a thousand hostile inputs of classifiers and answers.

Run by hand, with a seed and the number of cases::

    python tests/long/hostile.py 0 1000

Each case must end with a result that is finite and has a row for each text, or with a
ValueError or TypeError that leaves nothing half-fitted. Prints what was tried, how it ended,
and each case that broke the rule.
"""

import contextlib
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import pyarrow as pa
from conftest import WORDS
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from skcalib import (
    NearestAnswer,
    TextEncoder,
    ZeroShotClassifier,
)

ODD = ["", " ", "\n", "\0", "\u200b", "a\rb", "=1+1", "x" * 3000, "dog " * 900, "🙂", "ß"]
ODD += ["\ud800", "١٢٣", "a\u0301", "\u202eabc", "-1", "nan", "None", "a,b", '"', "1e400"]
ODD += ["the the"]
LABELS = [0, 1, -1, True, None, np.nan, "a", "b", "", 2**53, 2**53 + 1, 2**64, 1.5, b"a"]
LABELS += [("a",), np.int64(1), np.uint64(2**63), np.str_("a"), pd.NA, np.datetime64("2020")]


def pick(rng, options):
    return options[rng.integers(len(options))]


def project(texts):
    """Vectors that depend on the words, drawn from their bytes."""
    rows = np.zeros((len(texts), 24))
    for row, text in zip(rows, texts, strict=True):
        for word in text.split():
            seed = list(word.encode(errors="surrogatepass"))[:40]
            row += np.random.default_rng(seed).normal(size=24)
    return rows


def sentences(rng, n, odd):
    """Texts of known words, some of them odd, repeated or blank."""
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(1, 12))) for _ in range(n)]
    for i in rng.integers(0, n, size=odd):
        texts[i] = pick(rng, ODD)
    return texts


def container(rng, values):
    """The values as one of many containers, some of which lose or merge them."""
    objects = pd.Series(values, dtype=object)
    kinds = [
        *(list, tuple, np.array),
        lambda _: objects.to_numpy(),
        lambda _: objects.set_axis(rng.permutation(len(objects))),
        lambda _: objects.astype("string"),
        lambda values: pd.DataFrame({"x": values}),
        lambda values: pa.chunked_array([pa.array(values)]),
    ]
    with contextlib.suppress(Exception):
        return pick(rng, kinds)(values)
    return values


def labels(rng, n):
    some = [LABELS[i] for i in rng.choice(len(LABELS), size=rng.integers(1, 4), replace=False)]
    return [some[i] for i in rng.integers(len(some), size=n)]


def is_whole(model):
    """Whether a model is fitted, or has no attribute of a fit."""
    fitted = [name for name in vars(model) if name.endswith("_") and not name.startswith("_")]
    try:
        check_is_fitted(model)
    except NotFittedError:
        return not fitted
    return True


def classifier(rng, encoder):
    texts = sentences(rng, int(rng.integers(1, 80)), int(rng.integers(0, 4)))
    names = pick(rng, [None, ["dog", "cat"], {0: "dog", 1: ["cat", "horse"]}, labels(rng, 3)])
    y = [None, *labels(rng, len(texts))] if rng.random() < 0.1 else labels(rng, len(texts))
    rate = pick(rng, [None, None, None, 0.05, 0.5, np.nan])
    other = pick(rng, LABELS[:8])
    model = ZeroShotClassifier(encoder, names, rejection_rate=rate, other=other)
    X, y = container(rng, texts), container(rng, y) if rng.random() < 0.7 else None
    yield model
    model.fit(X, y)
    yield model.decision_function(texts), len(texts)
    predicted = model.predict(texts)
    allowed = {repr(x) for x in [*model.classes_.tolist(), model.other]}
    told = {repr(x) for x in predicted.tolist()}
    if rate is None and not told <= allowed:
        raise AssertionError(f"labels that are no classes: {told - allowed}")


def answers(rng, encoder):
    texts = sentences(rng, int(rng.integers(2, 300)), int(rng.integers(0, 4)))
    kind = rng.integers(3)
    given = [*range(len(texts))] if kind else labels(rng, len(texts))
    given = [f"answer {i % 40}" for i in given] if kind == 2 else given
    given = [{"id": i, "as": [i]} for i in given] if rng.random() < 0.2 else given
    rate = pick(rng, [0.05, 0.3, 0.3, 0.5, 1])
    model = NearestAnswer(encoder, false_positive_rate=rate)
    yield model
    model.fit(container(rng, texts), container(rng, given))
    asked = sentences(rng, 20, 3)
    found = model.predict(asked)
    if len(found) != 20 or any(
        answer is not None and answer not in model.answers_.tolist() for answer in found
    ):
        raise AssertionError("an answer that is not stored")


def case(function, rng, given):
    """How a case ended: "result", the type of its error, or what broke the rule."""
    model = None
    try:
        for found in function(rng, given):
            if not isinstance(found, tuple):
                model = found
                continue
            values, n = found
            if len(values) != n or not np.isfinite(np.asarray(values, float)).all():
                return f"BROKEN: {len(values)} rows for {n}, or not finite"
    except (ValueError, TypeError) as error:
        if model is not None and not is_whole(model):
            return f"BROKEN: half-fitted after {error!r:.80}"
        last = traceback.extract_tb(error.__traceback__)[-1].filename
        inside = "skcalib" in last or "sklearn" in last
        return type(error).__name__ if inside else f"raw {type(error).__name__} {error!s:.110}"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"BROKEN: {error!r:.250} in {Path(place.filename).name}:{place.lineno}"
    return "result"


def try_all(seed, n):
    given = dict.fromkeys((classifier, answers), TextEncoder(project))
    ends = {function.__name__: Counter() for function in given}
    for i in range(n):
        function = [*given][i % len(given)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            end = case(function, np.random.default_rng([seed, i]), given[function])
        ends[function.__name__][end.partition(" ")[0]] += 1
        if " " in end:
            print(f"case {i}, {function.__name__}: {end}", flush=True)
    for name, counts in ends.items():
        print(f"{name:12} {dict(counts)}")


if __name__ == "__main__":
    try_all(*map(int, sys.argv[1:3]))
