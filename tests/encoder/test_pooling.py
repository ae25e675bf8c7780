"""Each primitive vector is a plain weighted mean or maximum over the right tokens."""

from itertools import permutations

import numpy as np
import pytest
import torch

from skcalib._encoder.pooling import Pooler, TokenBatch, primitive_of

PRIMITIVES = ("cls", "mean", "max", "zipf", "mean_own", "max_own")
SPECIAL = (0, 1)  # the ids of [CLS] and [SEP]
POOLINGS = ("cls", "mean", "max", "mean_sqrt_len", "zipf")
# Tokens of each text between [CLS] and [SEP], up to 7; ids from 3 to 9 weigh nothing.
TEXTS = ([12], [11, 30, 25, 12, 44, 17, 20], [5, 13, 7], [40, 1, 41])
EMPTY = ([],)  # only special tokens
WEIGHTLESS = ([4, 5, 8],)  # own tokens, but none that Zipf weighs
ALL = TEXTS + EMPTY + WEIGHTLESS


def pool(hidden, tokens, primitives):
    out = torch.empty(len(tokens.lengths), len(primitives), hidden.shape[1])
    Pooler(tokens, primitives)(hidden, out)
    return out


def _zipf(ids):
    return np.log1p(np.maximum(ids - 9, 0)) * (ids > 9)


def _batch(texts, *, seed=0, d=5):
    """Hidden states (negative on average), tokens and ids of texts laid end to end."""
    ids = np.concatenate([[0, *text, 1] for text in texts])
    hidden = np.random.default_rng(seed).normal(-2.0, 1.0, size=(len(ids), d))
    lengths = np.array([len(text) + 2 for text in texts])
    tokens = TokenBatch.of(lengths, np.isin(ids, SPECIAL), _zipf(ids).astype(np.float32))
    return torch.from_numpy(hidden.astype(np.float32)), tokens, ids


def _reference(primitive, states, ids):
    """One text's vector, in float64, token by token."""
    own = [t for t in range(len(ids)) if ids[t] not in SPECIAL] or list(range(len(ids)))
    kept = own if primitive.endswith("_own") else list(range(len(ids)))
    if primitive == "cls":
        return states[0]
    if primitive.startswith("max"):
        return np.array([max(states[t][j] for t in kept) for j in range(len(states[0]))])
    weights = [1.0 for _ in kept]
    if primitive == "zipf":
        weights = [float(_zipf(ids[t])) for t in kept]
        if not any(weights):
            kept, weights = own, [1.0 for _ in own]
    total = np.zeros(len(states[0]))
    for t, weight in zip(kept, weights, strict=True):
        total += weight * states[t]
    return total / sum(weights)


def test_own_tokens_are_not_special_unless_there_is_nothing_else():
    special = np.array([1, 0, 1, 0, 1, 1, 1, 1, 0, 1], dtype=bool)
    tokens = TokenBatch.of(np.array([5, 2, 3]), special, None)
    assert tokens.own.astype(int).tolist() == [0, 1, 0, 1, 0, 1, 1, 0, 1, 0]
    assert tokens.n_own.tolist() == [2, 2, 1]
    assert tokens.starts.tolist() == [0, 5, 7]


@pytest.mark.parametrize("primitive", PRIMITIVES)
@pytest.mark.parametrize(
    "texts",
    [ALL, EMPTY, WEIGHTLESS, TEXTS[:1], *([t] for t in permutations([1, 40, 41]))],
)
def test_primitive_equals_a_plain_loop(texts, primitive):
    hidden, tokens, ids = _batch(texts)
    vectors = pool(hidden, tokens, [primitive])
    assert vectors.shape == (len(texts), 1, 5)
    assert vectors.dtype == torch.float32
    states = hidden.numpy().astype(np.float64)
    for row, (start, n) in enumerate(zip(tokens.starts, tokens.lengths, strict=True)):
        own = slice(start, start + n)
        expected = _reference(primitive, states[own], ids[own])
        np.testing.assert_allclose(vectors[row, 0], expected, rtol=1e-5, atol=1e-6)


def test_together_primitives_equal_each_alone_in_the_order_asked():
    hidden, tokens, _ = _batch(ALL)
    order = PRIMITIVES[::-1]
    together = pool(hidden, tokens, order)
    assert together.shape == (len(ALL), len(order), 5)
    for i, primitive in enumerate(order):
        torch.testing.assert_close(
            together[:, i], pool(hidden, tokens, [primitive])[:, 0], rtol=1e-6, atol=1e-6
        )


def test_primitives_differ_from_each_other():
    hidden, tokens, _ = _batch(TEXTS[1:])
    vectors = pool(hidden, tokens, PRIMITIVES).numpy()
    # "max" and "max_own" agree where no special token holds the maximum, so compare rows.
    for i in range(len(PRIMITIVES)):
        for j in range(i):
            assert not np.allclose(vectors[:, i], vectors[:, j]), PRIMITIVES[i]


@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_a_text_does_not_depend_on_its_neighbours(primitive):
    hidden, tokens, ids = _batch(ALL)
    together = pool(hidden, tokens, [primitive])
    for row, (start, n) in enumerate(zip(tokens.starts, tokens.lengths, strict=True)):
        own = slice(start, start + n)
        alone = TokenBatch.of(np.array([n]), np.isin(ids[own], SPECIAL), tokens.zipf[own])
        vector = pool(hidden[own], alone, [primitive])[0]
        torch.testing.assert_close(vector, together[row], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("primitive", "equal_to"), [("mean_own", "mean"), ("max_own", "max"), ("zipf", "mean")]
)
def test_a_text_of_special_tokens_alone_is_pooled_over_them(primitive, equal_to):
    vectors = pool(*_batch(TEXTS + EMPTY)[:2], [primitive, equal_to])
    torch.testing.assert_close(vectors[-1, 0], vectors[-1, 1])
    assert not torch.allclose(vectors[1, 0], vectors[1, 1])


def test_a_text_whose_tokens_all_weigh_nothing_is_averaged_over_its_own_tokens():
    vectors = pool(*_batch(TEXTS + WEIGHTLESS)[:2], ["zipf", "mean_own"])
    torch.testing.assert_close(vectors[-1, 0], vectors[-1, 1])
    assert not torch.allclose(vectors[1, 0], vectors[1, 1])


def test_zipf_ignores_the_scale_of_the_weights():
    hidden, tokens, _ = _batch(ALL)
    scaled = tokens._replace(zipf=0.01 * tokens.zipf)
    torch.testing.assert_close(pool(hidden, scaled, ["zipf"]), pool(hidden, tokens, ["zipf"]))


def test_without_zipf_no_weights_are_needed():
    hidden, tokens, _ = _batch(ALL)
    names = [name for name in PRIMITIVES if name != "zipf"]
    without = pool(hidden, tokens._replace(zipf=None), names)
    torch.testing.assert_close(without, pool(hidden, tokens, names), rtol=0, atol=0)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str
)
@pytest.mark.parametrize("texts", [ALL, EMPTY, WEIGHTLESS], ids=["all", "empty", "weightless"])
def test_vectors_are_finite_float32_at_any_precision(texts, dtype):
    hidden, tokens, _ = _batch(texts)
    vectors = pool(hidden.to(dtype), tokens, PRIMITIVES)
    assert vectors.dtype == torch.float32
    assert torch.isfinite(vectors).all()
    torch.testing.assert_close(vectors, pool(hidden, tokens, PRIMITIVES), rtol=0.05, atol=0.05)


@pytest.mark.parametrize(
    ("pooling", "special_tokens", "primitive"),
    [
        ("cls", True, "cls"),
        ("cls", False, "cls"),
        ("mean", True, "mean"),
        ("mean", False, "mean_own"),
        ("max", True, "max"),
        ("max", False, "max_own"),
        ("mean_sqrt_len", True, "mean"),
        ("mean_sqrt_len", False, "mean_own"),
        ("zipf", True, "zipf"),
        ("zipf", False, "zipf"),
    ],
)
def test_pooling_reads_its_primitive(pooling, special_tokens, primitive):
    assert primitive_of(pooling, special_tokens) == primitive


def test_every_pooling_has_a_primitive_that_can_be_pooled():
    names = {primitive_of(p, special) for p in POOLINGS for special in (True, False)}
    assert names == set(PRIMITIVES)
