"""Every public estimator: how tests make it, and what they fit it on, by its name in `skcalib`.

A new transformer of vectors needs no entry here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

import skcalib
from skcalib import (
    BertEncoder,
    BiEncoder,
    CalibrationSearch,
    NearestAnswer,
    SearchEncoder,
    SimilarityScale,
    TextEncoder,
    ZeroShotClassifier,
)

ESTIMATORS = [
    kind
    for kind in (getattr(skcalib, name) for name in skcalib.__all__)
    if isinstance(kind, type) and issubclass(kind, BaseEstimator)
]
TEXTS = [
    f"the {a} {b} {c}"
    for a in ("dog", "cat", "man", "woman")
    for b in ("plays", "flute", "guitar", "house")
    for c in ("river", "street", "red", "small", "old")
]
LONGER = [f"{text} and {text}" for text in TEXTS]
VECTORS = np.random.default_rng(0).normal(size=(60, 5)) + 1
NOT_A_NUMBER = np.where(np.eye(60, 5), np.nan, 1.0)
NO_TEXT = [*TEXTS[:-1], None]


@dataclass
class Case:
    """An estimator, what it is fitted on, what its fit refuses, and what it is used for."""

    make: Callable[[Any], Any]  # from an encoder of texts
    given: tuple
    bad: tuple
    use: Callable[[Any], Any]


def made(kind, *args):
    """Return an estimator with the same seed and device everywhere, if it has these."""
    estimator = kind(*args)
    fixed = {"random_state": 0, "device": "cpu"}
    return estimator.set_params(**{n: fixed[n] for n in fixed.keys() & kind().get_params()})


def of_vectors(kind):
    """Return the case of a transformer of vectors."""
    return Case(
        lambda _: made(kind), (VECTORS,), (NOT_A_NUMBER,), lambda e: e.transform(VECTORS)
    )


SPECIAL = {
    BertEncoder: Case(
        lambda _: BertEncoder(), (TEXTS,), (NO_TEXT,), lambda e: e.transform(TEXTS)
    ),
    TextEncoder: Case(
        lambda encoder: encoder, (TEXTS,), (NO_TEXT,), lambda e: e.transform(TEXTS)
    ),
    BiEncoder: Case(
        BiEncoder, (TEXTS,), (NO_TEXT,), lambda e: e.predict([(TEXTS[0], TEXTS[1])])
    ),
    CalibrationSearch: Case(
        lambda encoder: CalibrationSearch(encoder, n_texts=20),
        (LONGER,),
        (NO_TEXT,),
        lambda e: e.transform(TEXTS[:9]),
    ),
    NearestAnswer: Case(
        lambda encoder: NearestAnswer(encoder, false_positive_rate=0.2),
        (TEXTS, range(len(TEXTS))),
        (NO_TEXT, range(len(TEXTS))),
        lambda e: e.decision_function(TEXTS[:9]),
    ),
    SearchEncoder: Case(
        SearchEncoder, (TEXTS,), (NO_TEXT,), lambda e: e.encode_query(TEXTS[:9]).dense
    ),
    ZeroShotClassifier: Case(
        lambda encoder: ZeroShotClassifier(encoder, ["dog", "cat", "man"], rejection_rate=0.2),
        (TEXTS,),
        (NO_TEXT,),
        lambda e: e.decision_function(TEXTS[:9]),
    ),
    SimilarityScale: Case(
        lambda _: SimilarityScale(), (VECTORS,), (NOT_A_NUMBER,), lambda e: e.p_value([0.3])
    ),
}
CASES = {kind.__name__: SPECIAL.get(kind) or of_vectors(kind) for kind in ESTIMATORS}
FITTED = [name for name, case in CASES.items() if case.given]
OF_VECTORS = [name for name in FITTED if CASES[name].given[0] is VECTORS]
# Those with an encoder of texts, which is their first parameter.
OF_TEXTS = [n for n in FITTED if n not in (*OF_VECTORS, "BertEncoder", "TextEncoder")]
