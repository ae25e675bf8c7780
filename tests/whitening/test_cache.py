"""`memory`: one decomposition for a grid, and nothing wrong out of a damaged folder."""

import os
import re
import tracemalloc

import numpy as np
import pytest
from joblib import Memory
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GridSearchCV

from skcalib import Whitening
from skcalib._whitening import cache
from skcalib._whitening.cache import content_hash


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(80, 6)).astype(np.float32) + 3


@pytest.fixture
def decompositions(monkeypatch):
    """Count decompositions."""
    calls = []

    def counted(covariance):
        calls.append(len(covariance))
        return original(covariance)

    original = cache.decompose
    monkeypatch.setattr("skcalib._whitening.cache.decompose", counted)
    monkeypatch.setattr("skcalib._whitening.solver.decompose", counted)
    return calls


def test_grid_costs_one_decomposition_per_training_set(X, tmp_path, decompositions):
    grid = {"n_components": [2, 3, None], "power": [0.5, 1.0], "noise": [0.0, 0.5, "auto"]}
    search = GridSearchCV(
        Whitening(memory=tmp_path),
        grid,
        cv=3,
        scoring=lambda whitening, X, y=None: -np.abs(whitening.transform(X)).max(),
        refit=False,
    )
    search.fit(X)
    assert len(decompositions) == 3


def new_process():
    """Forget what is kept in memory, so that the files have to be read."""
    cache._recent.clear()


@pytest.mark.parametrize("make", [str, lambda path: path, lambda path: Memory(path, verbose=0)])
def test_recalled_fit_is_the_computed_one(X, tmp_path, make, decompositions):
    plain = Whitening(3, noise="auto").fit(X)
    decompositions.clear()
    for in_memory in (False, False, True):
        if not in_memory:
            new_process()
        whitening = Whitening(3, noise="auto", memory=make(tmp_path)).fit(X)
        assert_array_equal(whitening.transform(X), plain.transform(X))
    assert len(decompositions) == 1
    assert len(list(tmp_path.glob("skcalib-whitening/*"))) == 1  # no temporary file stays
    # The estimator goes on from there as from a fit of its own.
    assert_allclose(
        whitening.partial_fit(X[:9]).transform(X), plain.partial_fit(X[:9]).transform(X)
    )


def test_too_few_samples_are_refused_as_without_a_memory(X, tmp_path):
    with pytest.raises(ValueError, match="sample_weight sums to 1"):
        Whitening(memory=tmp_path).fit(X, sample_weight=np.full(80, 1 / 80))
    assert not list(tmp_path.rglob("*.npz"))


def test_weights_count_with_a_memory_too(X, tmp_path, decompositions):
    for weight in (None, np.arange(1.0, 81.0), np.arange(80.0, 0.0, -1.0)):
        kept = Whitening(memory=tmp_path).fit(X, sample_weight=weight)
        expected = Whitening().fit(X, sample_weight=weight)
        assert_array_equal(kept.transform(X), expected.transform(X))
    assert len(decompositions) == 6


def test_memory_without_a_place_keeps_nothing(X):
    assert Whitening(memory=Memory(None)).fit(X).rank_ == 6


def test_other_data_weights_dtype_and_shape_have_other_keys(X):
    weight = np.ones(80)
    wide = X.reshape(40, 12)
    variants = [X, X.astype(float), X[::-1], wide, X[:-1]]
    keys = {content_hash(v) for v in variants}
    keys |= {content_hash(X, weight), content_hash(X, 2 * weight)}
    assert len(keys) == 7
    assert content_hash(np.asfortranarray(X)) == content_hash(X)
    assert content_hash(X, list(weight)) == content_hash(X, weight)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content, other: b"",
        lambda content, other: content[: len(content) // 2],
        lambda content, other: content[:1500] + bytes([content[1500] ^ 1]) + content[1501:],
        lambda content, other: other,  # a good file in another's place
        lambda content, other: b"not an archive",
    ],
)
def test_damaged_file_is_computed_anew(X, tmp_path, damage, decompositions):
    Whitening(memory=tmp_path).fit(X * 2)
    (other,) = tmp_path.glob("skcalib-whitening/*.npz")
    other_content = other.read_bytes()
    other.unlink()
    expected = Whitening(memory=tmp_path).fit(X).transform(X)
    (path,) = tmp_path.glob("skcalib-whitening/*.npz")
    good = path.read_bytes()
    path.write_bytes(damage(good, other_content))
    decompositions.clear()
    new_process()
    assert_array_equal(Whitening(memory=tmp_path).fit(X).transform(X), expected)
    assert len(decompositions) == 1
    new_process()
    Whitening(memory=tmp_path).fit(X)
    assert len(decompositions) == 1  # it was written again


def test_no_flipped_bit_gives_another_fit(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 32))  # more than zipfile reads at once
    whitening = Whitening(memory=tmp_path).fit(X)
    (path,) = tmp_path.glob("skcalib-whitening/*.npz")
    good = path.read_bytes()
    # All bits of the lengths of headers, after which an array begins, and some others.
    headers = [match.start() for match in re.finditer(rb"\x93NUMPY", good)]
    assert len(headers) == 8
    flips = [(start + 8, 1 << bit) for start in headers for bit in range(8)]
    flips += [(i, 1 << i % 8) for i in range(0, len(good), 151)]
    for i, mask in flips:
        path.write_bytes(good[:i] + bytes([good[i] ^ mask]) + good[i + 1 :])
        fit = cache._read(path, path.stem, 32)
        if fit is not None:  # of a byte that says nothing, such as the hour of writing
            moments, (_, basis) = fit
            assert_array_equal(moments.scatter, whitening._moments.scatter, err_msg=f"byte {i}")
            assert_array_equal(basis, whitening._linear_map.basis, err_msg=f"byte {i}")


def test_a_grid_reads_no_file_twice_and_memory_is_bounded(X, tmp_path, monkeypatch):
    new_process()
    monkeypatch.setattr(cache, "RECENT_BYTES", 2 * 6 * 6 * 8)
    samples = [X * scale for scale in (1, 2, 3)]
    for sample in samples:
        Whitening(memory=tmp_path).fit(sample)
    read = []
    monkeypatch.setattr(cache, "_read", lambda path, *_: read.append(path))
    for sample in samples[1:]:
        Whitening(memory=tmp_path).fit(sample)
    assert read == []
    Whitening(memory=tmp_path).fit(samples[0])
    assert len(read) == 1


def test_what_fits_share_cannot_be_changed(X, tmp_path):
    first, second = (Whitening(memory=tmp_path).fit(X) for _ in range(2))
    expected = second.transform(X)
    with pytest.raises(ValueError, match="read-only"):
        first._moments.scatter[:] = 0
    first.partial_fit(X + 1).merge(second)
    assert_array_equal(second.transform(X), expected)


def test_no_pickle_is_ever_read(X, tmp_path):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was loaded",))

    Whitening(memory=tmp_path).fit(X)
    (path,) = tmp_path.glob("skcalib-whitening/*.npz")
    with open(path, "wb") as file:
        np.savez(file, key=np.array(path.stem), n=np.array([Trap()], dtype=object))
    new_process()
    assert Whitening(memory=tmp_path).fit(X).rank_ == 6


def forged(path):
    """Write good arrays into a compressed archive, with 200 MB more."""
    with np.load(path) as file:
        arrays = dict(file)
    np.savez_compressed(path, **arrays | {"cubic": np.zeros(25_000_000)})


def sparse(path):
    with open(path, "r+b") as stream:
        stream.truncate(200_000_000)


def piped(path):
    path.unlink()
    os.mkfifo(path)


def linked(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.skipif(os.name == "nt", reason="no pipes and few links")
@pytest.mark.parametrize("change", [forged, sparse, piped, linked])
def test_nothing_but_a_file_of_the_right_size_is_read(X, tmp_path, change, decompositions):
    Whitening(memory=tmp_path).fit(X)
    (path,) = tmp_path.glob("skcalib-whitening/*.npz")
    change(path)
    new_process()
    decompositions.clear()
    tracemalloc.start()
    try:
        Whitening(memory=tmp_path).fit(X)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert len(decompositions) == 1
    assert path.is_file()
    assert not path.is_symlink()  # written anew


def test_kill_while_writing_leaves_no_file(X, tmp_path, monkeypatch):
    def stopped(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(cache.np, "savez", stopped)
    with pytest.raises(KeyboardInterrupt):
        Whitening(memory=tmp_path).fit(X)
    assert not list(tmp_path.glob("skcalib-whitening/*"))


def test_an_interrupt_after_a_file_has_its_name_is_raised(X, tmp_path, monkeypatch):
    def replaced_and_stopped(source, target):
        replace(source, target)
        raise KeyboardInterrupt

    replace = os.replace
    monkeypatch.setattr(os, "replace", replaced_and_stopped)
    with pytest.raises(KeyboardInterrupt):
        Whitening(memory=tmp_path).fit(X)
    (file,) = tmp_path.glob("skcalib-whitening/*")
    assert file.suffix == ".npz"


def test_bad_parameters_are_found_before_the_cache(X, tmp_path):
    with pytest.raises(ValueError, match="exceeds n_features=6"):
        Whitening(7, memory=tmp_path).fit(X)
    with pytest.raises(ValueError, match="contains NaN"):
        Whitening(memory=tmp_path).fit(X * np.nan)
    assert not list(tmp_path.iterdir())


def test_memory_of_another_kind_is_named(X):
    with pytest.raises(ValueError, match="'memory' parameter of Whitening"):
        Whitening(memory=3).fit(X)
