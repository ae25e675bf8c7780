"""Vectors in memory: a text's own vector or none, whatever was put there, and when."""

import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import skcalib._vector_cache as vector_cache
from skcalib._vector_cache import COUNTS, Shelf

WIDTH = 4


def vector(text, slot):
    """Tell text and slot apart."""
    return np.full(3 if slot == COUNTS else WIDTH, 1000 * (slot + 1) + int(text))


def vectors(texts, slot):
    return np.array([vector(t, slot) for t in texts])


@pytest.fixture(autouse=True)
def no_shelves(monkeypatch):
    monkeypatch.setattr(vector_cache, "_shelves", type(vector_cache._shelves)())


def check(shelf, texts, slots, put):
    """Find in `shelf` what is in `put`, sets of texts by slot, and nothing else."""
    known, found = shelf.find(texts, slots)
    assert known.tolist() == [all(t in put[slot] for slot in slots) for t in texts]
    expected = [t for t, is_known in zip(texts, known, strict=True) if is_known]
    for slot in slots:
        taken = found[slot].take()
        assert taken.dtype == (np.int32 if slot == COUNTS else np.float32)
        assert_array_equal(taken, vectors(expected, slot).reshape(taken.shape))


def test_each_slot_has_what_was_put_there():
    rng = np.random.default_rng(0)
    shelf, slots = Shelf(WIDTH), [0, 1, 7, COUNTS]
    put = {slot: set() for slot in slots}
    lists = []
    for _ in range(200):
        some = rng.choice(slots, size=rng.integers(1, 5), replace=False).tolist()
        # At times a list that was asked for before, as the folds of a search do.
        if lists and rng.random() < 0.5:
            texts = list(lists[rng.integers(len(lists))])
        else:
            texts = (
                rng.choice(300, size=rng.integers(0, 30), replace=False).astype(str).tolist()
            )
            lists.append(texts)
        check(shelf, texts, some, put)
        if rng.random() < 0.5 and texts:
            shelf.add(texts, {slot: vectors(texts, slot) for slot in some})
            for slot in some:
                put[slot] |= set(texts)
            check(shelf, texts, some, put)
    everything = [str(i) for i in range(300)]
    for slot in slots:
        assert 0 < len(put[slot]) < 300
        check(shelf, everything, [slot], put)


def test_what_was_found_stays_as_it_is():
    """`Found` is copied after the lock is given up, when others may add."""
    shelf = Shelf(WIDTH)
    shelf.add(["1", "2"], {0: vectors(["1", "2"], 0)})
    _, found = shelf.find(["2"], [0])
    more = [str(i) for i in range(3, 5000)]
    shelf.add(more, {0: vectors(more, 0)})
    shelf.drop()
    assert_array_equal(found[0].take(), vectors(["2"], 0))
    out = np.empty((1, WIDTH), dtype=np.float32)
    found[0].take(slice(0, 1), out=out)
    assert_array_equal(out, vectors(["2"], 0))


def test_vectors_that_are_there_stay():
    shelf = Shelf(WIDTH)
    shelf.add(["1"], {0: vectors(["1"], 0)})
    shelf.add(["2", "1"], {0: vectors(["2", "9"], 0)})
    check(shelf, ["1", "2"], [0], {0: {"1", "2"}})


def test_searches_are_remembered_within_a_bound(monkeypatch):
    monkeypatch.setattr(vector_cache, "ASKED_TEXTS", 10)
    shelf, texts = Shelf(WIDTH), [str(i) for i in range(12)]
    shelf.add(texts, {0: vectors(texts, 0)})
    n_bytes = shelf.n_bytes
    for start in range(9):
        for length in (3, 4, 12):
            check(shelf, texts[start : start + length], [0], {0: set(texts)})
    assert n_bytes < shelf.n_bytes <= n_bytes + 16 * 10


def test_a_list_changed_after_a_search_is_another_one():
    shelf, texts = Shelf(WIDTH), ["1", "2"]
    shelf.add(["1", "2", "3"], {0: vectors("123", 0)})
    check(shelf, texts, [0], {0: set("123")})
    texts[0] = "3"
    check(shelf, texts, [0], {0: set("123")})


def test_slabs_not_used_for_longest_go_first(monkeypatch):
    texts = [str(i) for i in range(1000)]
    first = vector_cache.shelf_of("store", "a", WIDTH)
    for slot in range(3):
        first.add(texts, {slot: vectors(texts, slot)})
    first.find(texts, [0])
    monkeypatch.setattr(vector_cache, "CACHE_BYTES", first.n_bytes)
    vector_cache.shrink()
    check(first, texts, [1, 2, 0], {i: set(texts) for i in range(3)})
    second = vector_cache.shelf_of("store", "b", WIDTH)
    second.add(texts[:10], {5: vectors(texts[:10], 5)})
    vector_cache.shrink()
    check(second, texts[:10], [5], {5: set(texts)})
    check(first, texts[:1], [2, 0], {i: set(texts) for i in range(3)})
    assert not first.find(texts[:1], [1])[0].any()
    vector_cache.shelf_of("store", "a", WIDTH)  # in use again
    monkeypatch.setattr(vector_cache, "CACHE_BYTES", first.n_bytes)
    vector_cache.shrink()
    assert list(vector_cache._shelves.values()) == [first]
    monkeypatch.setattr(vector_cache, "CACHE_BYTES", 0)
    vector_cache.shrink()
    assert not vector_cache._shelves


def test_memory_in_use_counts_texts_and_vectors():
    shelf, texts = Shelf(WIDTH), [str(i) for i in range(1000)]
    shelf.add(texts, {0: vectors(texts, 0), COUNTS: vectors(texts, COUNTS)})
    least = sum(map(sys.getsizeof, texts)) + 1000 * 4 * (WIDTH + 3)
    assert least < shelf.n_bytes < 10 * least


def test_stores_are_forgotten_one_by_one():
    for name in "ab":
        vector_cache.shelf_of(name, "space", WIDTH).add(["1"], {0: vectors(["1"], 0)})
    vector_cache.forget("a")
    assert not vector_cache.shelf_of("a", "space", WIDTH).find(["1"], [0])[0].any()
    check(vector_cache.shelf_of("b", "space", WIDTH), ["1"], [0], {0: {"1"}})


def test_an_interrupt_at_any_line_of_an_addition_leaves_no_wrong_vector(interrupt):
    texts = [str(i) for i in range(6)]

    def interrupted_at(n):
        shelf = Shelf(WIDTH)
        shelf.add(texts[:1], {0: vectors(texts[:1], 0)})
        more = {slot: vectors(texts[:5], slot) for slot in (0, 1)}
        return shelf if interrupt(vector_cache, n, lambda: shelf.add(texts[:5], more)) else None

    n = 0
    while (shelf := interrupted_at(n := n + 1)) is not None:
        for again in range(2):
            for slot in (0, 1):
                known, found = shelf.find(texts, [slot])
                some = [t for t, is_known in zip(texts, known, strict=True) if is_known]
                assert_array_equal(found[slot].take(), vectors(some, slot).reshape(-1, WIDTH))
                assert known[:5].all() or not again
            shelf.add(texts[1:], {slot: vectors(texts[1:], slot) for slot in (0, 1)})
            shelf.add(texts[:1], {1: vectors(texts[:1], 1)})
    assert n > 20
