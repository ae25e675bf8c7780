"""Each primitive vector is a plain weighted mean or maximum over the right tokens."""

from itertools import permutations

import numpy as np
import pytest
import torch

from skcalib._encoder.pooling import Pooler
from skcalib._store.poolings import SLOTS

SPECIAL = (0, 1)  # the ids of [CLS] and [SEP]
# Tokens of each text between [CLS] and [SEP], up to 7; ids from 3 to 9 weigh nothing.
TEXTS = ([12], [11, 30, 25, 12, 44, 17, 20], [5, 13, 7], [40, 1, 41])
EMPTY = ([],)  # only special tokens
WEIGHTLESS = ([4, 5, 8],)  # own tokens, but none that Zipf weighs
ALL = TEXTS + EMPTY + WEIGHTLESS


def zipf_of(ids):
    return (np.log1p(np.maximum(ids - 9, 0)) * (ids > 9)).astype(np.float32)


def batch_of(texts, d=5):
    """Ids, lengths and hidden states (negative on average) of texts laid end to end."""
    ids = np.concatenate([[0, *text, 1] for text in texts])
    hidden = np.random.default_rng(0).normal(-2.0, 1.0, size=(len(ids), d))
    lengths = np.array([len(text) + 2 for text in texts])
    return ids, lengths, torch.from_numpy(hidden.astype(np.float32))


def pool(ids, lengths, hidden, primitives, zipf=zipf_of):
    out = torch.empty(len(lengths), len(primitives), hidden.shape[1])
    Pooler(lengths, np.isin(ids, SPECIAL), zipf and zipf(ids), primitives)(hidden, out)
    return out


def reference(primitive, states, ids):
    """One text's vector, in float64, token by token."""
    own = [t for t in range(len(ids)) if ids[t] not in SPECIAL] or list(range(len(ids)))
    kept = own if primitive.endswith("_own") else list(range(len(ids)))
    if primitive == "cls":
        return states[0]
    if primitive == "last":
        return states[-1]
    if primitive.startswith("max"):
        return np.array([max(states[t][j] for t in kept) for j in range(len(states[0]))])
    weights = [1.0 for _ in kept]
    if primitive == "weighted_mean":
        weights = [1.0 + t for t in kept]
    if primitive == "zipf":
        weights = zipf_of(ids).tolist()
        if not any(weights):
            kept, weights = own, [1.0 for _ in own]
    total = sum(weight * states[t] for t, weight in zip(kept, weights, strict=True))
    return total / sum(weights)


@pytest.mark.parametrize(
    "texts", [ALL, EMPTY, WEIGHTLESS, TEXTS[:1], *([t] for t in permutations([1, 40, 41]))]
)
def test_primitives_equal_a_plain_loop(texts):
    ids, lengths, hidden = batch_of(texts)
    vectors = pool(ids, lengths, hidden, SLOTS)
    assert vectors.dtype == torch.float32
    ends = np.cumsum(lengths)[:-1]
    texts = zip(np.split(ids, ends), np.split(hidden.numpy(), ends), strict=True)
    for row, (some, states) in enumerate(texts):
        for i, primitive in enumerate(SLOTS):
            expected = reference(primitive, states.astype(np.float64), some)
            np.testing.assert_allclose(vectors[row, i], expected, rtol=1e-5, atol=1e-6)


def test_together_primitives_equal_each_alone_in_the_order_asked():
    batch = batch_of(ALL)
    together = pool(*batch, [*SLOTS][::-1])
    for i, primitive in enumerate([*SLOTS][::-1]):
        alone = pool(*batch, [primitive], zipf=zipf_of if primitive == "zipf" else None)
        torch.testing.assert_close(together[:, i], alone[:, 0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("texts", [ALL, EMPTY, WEIGHTLESS], ids=["all", "empty", "weightless"])
def test_vectors_are_finite_float32_at_any_precision(texts, dtype):
    ids, lengths, hidden = batch_of(texts)
    vectors = pool(ids, lengths, hidden.to(dtype), SLOTS)
    expected = pool(ids, lengths, hidden, SLOTS)
    torch.testing.assert_close(vectors, expected, rtol=0.05, atol=0.05)
