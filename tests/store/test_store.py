"""The store: each text through the model once, ever, and never a wrong vector."""

import json
import pickle
import re
import shutil
import sqlite3
import subprocess
import sys
import time
import warnings
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.torch import load_file, save_file
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from waiting import wait_until

import skcalib._encoder.estimator as estimator_module
import skcalib._encoder.stored as stored_module
from skcalib import BertEncoder, BiEncoder, VectorStore, Whitening
from skcalib._store.store import POOLINGS

COUNTS = -1
Space = tuple


@pytest.fixture(autouse=True)
def forget(recent):
    """Keep vectors in memory, as outside the tests; return the function that empties it."""
    recent.bound = 2**20
    return recent.clear


@pytest.fixture
def count_runs(tiny_bert):
    """Count texts put through the model itself."""
    module = BertEncoder(tiny_bert).fit(["dog"])._backbone().module
    rows = []

    def count(module, args, kwargs):
        positions = kwargs.get("position_ids")  # of a packed row
        n_texts = len(kwargs["input_ids"]) if positions is None else int((positions == 0).sum())
        rows.append(n_texts)

    handle = module.register_forward_pre_hook(count, with_kwargs=True)
    yield rows
    handle.remove()


@pytest.fixture
def space():
    return Space("f" * 64, 40, "float32", 4, (0, 1))


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {
        0: rng.normal(size=(3, 4)).astype(np.float32),
        1: rng.normal(size=(3, 4)).astype(np.float32),
        COUNTS: np.arange(9).reshape(3, 3),
    }


# Through the encoder ---------------------------------------------------------------------


@pytest.mark.parametrize("special_tokens", [True, False])
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize(
    ("layers", "merge"), [(1, "mean"), ("first_last", "concat"), (-1, "mean")]
)
def test_any_pooling_and_layers_are_read_back(
    tiny_bert, texts, tmp_path, count_runs, forget, pooling, special_tokens, layers, merge
):
    texts = [*texts, ""]
    params = {"layers": layers, "layer_merge": merge, "special_tokens": special_tokens}
    BertEncoder(tiny_bert, memory=tmp_path).fit_transform(texts)
    forget()
    encoder = BertEncoder(tiny_bert, pooling=pooling, **params)
    expected = encoder.fit_transform(texts)
    count_runs.clear()
    for _ in range(2):  # from disk, and from memory
        stored = clone(encoder).set_params(memory=tmp_path).fit_transform(texts)
        assert_allclose(stored, expected, rtol=1e-5, atol=1e-6)
    assert count_runs == []


def test_search_runs_each_distinct_text_once_ever(
    tiny_bert, texts, tmp_path, count_runs, forget
):
    pairs = np.array(list(zip(texts, texts[5:] + texts[:5], strict=True)))
    y = np.arange(len(pairs)) % 5
    model = BiEncoder(make_pipeline(BertEncoder(tiny_bert, memory=tmp_path), Whitening()))
    grid = {
        "encoder__bertencoder__pooling": ["cls", "mean", "zipf"],
        "encoder__bertencoder__layers": [-1, "last2", "first_last", (1, 2)],
        "encoder__whitening__n_components": [2, 4],
        "encoder__whitening__shrinkage": [0.5, "auto"],
    }
    search = GridSearchCV(model, grid, cv=3, error_score="raise").fit(pairs, y)
    assert sum(count_runs) == len(set(texts))
    forget()  # as a new process would
    again = clone(search).fit(pairs, y)
    assert sum(count_runs) == len(set(texts))
    assert_array_equal(
        again.cv_results_["mean_test_score"], search.cv_results_["mean_test_score"]
    )


def test_new_process_runs_nothing(tiny_bert, texts, tmp_path):
    vectors = BertEncoder(tiny_bert, memory=tmp_path).fit_transform(texts)
    code = (
        "import sys, numpy as np, torch; from skcalib import BertEncoder;"
        "model, folder, *texts = sys.argv[1:];"
        "encoder = BertEncoder(model, memory=folder).fit(texts);"
        "run = torch.nn.Module.__call__;"
        "torch.nn.Module.__call__ = lambda *a, **k: sys.exit('the model ran');"
        "np.save(folder + '/out.npy', encoder.transform(texts))"
    )
    command = [sys.executable, "-c", code, tiny_bert, str(tmp_path), *texts]
    subprocess.run(command, check=True, timeout=600)
    assert_array_equal(np.load(tmp_path / "out.npy"), vectors)


def test_joblib_memory_lends_its_folder(tiny_bert, texts, tmp_path):
    BertEncoder(tiny_bert, memory=joblib.Memory(tmp_path, verbose=0)).fit_transform(texts)
    assert len(VectorStore(tmp_path)) == len(set(texts))
    nowhere = BertEncoder(tiny_bert, memory=joblib.Memory(None, verbose=0))
    assert nowhere.fit_transform(texts).shape == (len(texts), 16)


def test_settings_that_change_vectors_do_not_share_them(
    tiny_bert, other_bert, texts, tmp_path, count_runs
):
    for params in ({}, {"max_length": 8}, {"dtype": "bfloat16"}, {"model": other_bert}):
        encoder = BertEncoder(tiny_bert, memory=tmp_path).set_params(**params)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # cut off at 8
            stored, expected = encoder.fit_transform(texts), None
            expected = clone(encoder).set_params(memory=None).fit_transform(texts)
        assert_allclose(stored, expected, rtol=1e-5, atol=1e-6)
    assert len(VectorStore(tmp_path)) == 4 * len(set(texts))


def test_cut_off_texts_are_warned_about_when_read_back_too(tiny_bert, tmp_path, forget):
    texts = [" ".join(["dog"] * 50), "cat"]
    encoder = BertEncoder(tiny_bert, memory=tmp_path)
    for _ in range(2):
        with pytest.warns(UserWarning, match="1 of 2 texts were cut off"):
            encoder.fit_transform(texts)
        forget()


def test_store_of_some_layers_serves_those_alone(tiny_bert, texts, tmp_path):
    store = VectorStore(tmp_path, layers=(0, -1))
    encoder = BertEncoder(tiny_bert, layers="embedding_last", memory=store)
    expected = clone(encoder).set_params(memory=None).fit_transform(texts)
    assert_allclose(encoder.fit_transform(texts), expected, rtol=1e-5, atol=1e-6)
    whole = VectorStore(tmp_path / "whole")
    clone(encoder).set_params(memory=whole).fit_transform(texts)
    with pytest.raises(ValueError, match=r"keeps the hidden states \[0, 3\].*uses \[1\]"):
        encoder.set_params(layers=1).fit_transform(texts)
    with pytest.raises(
        ValueError, match=r"keeps the hidden states \[7\]; this model has 0 to 3"
    ):
        encoder.set_params(memory=VectorStore(tmp_path, layers=(7,))).fit_transform(texts)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_store_of_some_poolings_serves_those_alone(
    tiny_bert, texts, tmp_path, count_runs, forget, pooling
):
    store = VectorStore(tmp_path, pooling=(pooling,))
    for special_tokens in (True, False):
        encoder = BertEncoder(tiny_bert, pooling=pooling, special_tokens=special_tokens)
        expected = encoder.fit_transform(texts)
        count_runs.clear()
        for _ in range(2):
            stored = clone(encoder).set_params(memory=store).fit_transform(texts)
            assert_allclose(stored, expected, rtol=1e-5, atol=1e-6)
            forget()
        assert sum(count_runs) == (len(set(texts)) if special_tokens else 0)
    with sqlite3.connect(store._path) as db:
        (n_slots,) = db.execute("SELECT count(DISTINCT slot) FROM arrays").fetchone()
    db.close()
    assert n_slots == 4 * (1 if pooling in ("cls", "zipf") else 2) + 1  # and counts
    other = "cls" if pooling == "max" else "max"
    with pytest.raises(ValueError, match=rf"keeps pooling=\('{pooling}',\); .*needs '{other}'"):
        clone(encoder).set_params(pooling=other, memory=store).fit_transform(texts)


@pytest.mark.parametrize(
    ("option", "value"),
    [("poolings", "mean"), ("poolings", ()), ("poolings", ("sum",)), ("dtype", "int8")],
)
def test_options_of_a_store_are_checked(tmp_path, option, value):
    with pytest.raises(ValueError, match=rf"{option}=.*; it takes"):
        VectorStore(tmp_path, **{option: value})


def test_half_precision_on_disk_gives_the_same_vectors_every_time(
    tiny_bert, texts, tmp_path, forget
):
    encoder = BertEncoder(tiny_bert, memory=VectorStore(tmp_path, dtype="float16"))
    first = encoder.fit_transform(texts)
    forget()
    assert_array_equal(encoder.fit_transform(texts), first)
    exact = BertEncoder(tiny_bert).fit_transform(texts)
    assert_allclose(first, exact, rtol=1e-3, atol=1e-3)
    assert not np.array_equal(first, exact)


@pytest.mark.filterwarnings("ignore:.*unknown to this model")
def test_vocabulary_without_frequencies_is_stored_all_the_same(make_bert, texts, tmp_path):
    folder = make_bert(tmp_path / "model", words=["bridge", "cat", "dog", "house", "river"])
    encoder = BertEncoder(folder, memory=tmp_path / "store")
    encoder.fit_transform(texts)
    assert encoder.set_params(pooling="max").fit_transform(texts).shape == (len(texts), 16)


# The store itself ------------------------------------------------------------------------


def test_what_is_written_is_read(write_vectors, read_vectors, space, arrays, tmp_path):
    store = VectorStore(tmp_path)
    write_vectors(store, space, ["a", "b", "c"], arrays)
    known, found = read_vectors(store, space, ["c", "x", "a"], [1, COUNTS])
    assert known.tolist() == [True, False, True]
    assert_array_equal(found[1], arrays[1][[2, 0]])
    assert_array_equal(found[COUNTS], arrays[COUNTS][[2, 0]])
    other = space._replace(max_length=8)
    assert not read_vectors(store, other, ["a"], [1])[0].any()


def test_odd_texts_are_told_apart(write_vectors, read_vectors, space, arrays, tmp_path):
    texts = ["", "\x00", "\ud800"]
    write_vectors(VectorStore(tmp_path), space, texts, arrays)
    known, found = read_vectors(VectorStore(tmp_path), space, [*texts, " ", "\ud801"], [0])
    assert known.tolist() == [True] * 3 + [False] * 2
    assert_array_equal(found[0], arrays[0])


def test_store_tells_and_forgets_what_it_holds(
    write_vectors, read_vectors, space, arrays, tmp_path
):
    store = VectorStore(tmp_path / "new")
    assert (len(store), store.n_bytes) == (0, 0)
    assert not (tmp_path / "new").exists()  # looking makes nothing
    write_vectors(store, space, ["a", "b", "c"], arrays)
    assert len(store) == 3
    assert store.n_bytes > 0
    full = store.n_bytes
    for i in range(20):
        write_vectors(store, space, [f"{i} {j}" for j in range(3)], arrays)
    store.clear()
    assert store.n_bytes < 2 * full  # all pages are given back
    assert len(store) == 0
    assert not read_vectors(store, space, ["a"], [0])[0].any()


def test_size_is_bounded_and_the_oldest_go_first(write_vectors, read_vectors, space, tmp_path):
    store = VectorStore(tmp_path, max_bytes=2_000_000)
    block = {0: np.ones((50, 1000)), 1: np.ones((50, 1000)), COUNTS: np.ones((50, 3))}
    wide = space._replace(width=1000)
    for i in range(20):
        write_vectors(store, wide, [f"{i} {j}" for j in range(50)], block)
        assert store.n_bytes <= 2_000_000 + 32768  # with the journal and SQLite's index of it
    assert read_vectors(store, wide, ["19 0"], [0])[0].all()
    assert not read_vectors(store, wide, ["0 0"], [0])[0].any()
    assert 100 < len(store) < 500
    assert (tmp_path / "skcalib-vectors.sqlite").stat().st_size < 3_000_000


def test_store_is_a_plain_parameter(tiny_bert, texts, tmp_path):
    store = VectorStore(tmp_path, dtype="float16", layers=(0,), pooling=("mean",))
    options = "dtype='float16', layers=(0,), pooling=('mean',)"
    assert repr(store) == f"VectorStore({str(tmp_path)!r}, {options})"
    encoder = pickle.loads(
        pickle.dumps(BertEncoder(tiny_bert, layers=0, memory=store).fit(texts))
    )
    assert encoder.transform(texts).shape == (len(texts), 16)
    assert clone(encoder).memory.location == tmp_path


def test_the_public_face_is_small(tmp_path):
    public = {name for name in dir(VectorStore(tmp_path)) if not name.startswith("_")}
    assert public == {
        *("location", "dtype", "layers", "poolings", "max_bytes", "n_bytes", "clear"),
    }


def test_each_store_gets_the_vectors_that_others_have_lately_made(tiny_bert, texts, tmp_path):
    store, float16 = VectorStore(tmp_path / "a"), VectorStore(tmp_path / "b", dtype="float16")
    for memory in (None, store, float16):
        BertEncoder(tiny_bert, memory=memory).fit_transform(texts)
    assert len(store) == len(float16) == len(set(texts))
    store.clear()
    BertEncoder(tiny_bert, memory=store).fit_transform(texts)
    assert len(store) == len(set(texts))


def test_what_could_not_be_kept_is_kept_later(tiny_bert, texts, tmp_path, monkeypatch):
    encoder = BertEncoder(tiny_bert, memory=tmp_path).fit(texts)
    with monkeypatch.context() as patch:
        patch.setattr(Database, "write", lambda *_: no_space())
        with pytest.warns(UserWarning, match="could not be kept"):
            encoder.transform(texts)
    assert len(VectorStore(tmp_path)) == 0
    encoder.transform(texts)
    assert len(VectorStore(tmp_path)) == len(set(texts))


def no_space():
    raise sqlite3.OperationalError("database or disk is full")


# Faults ----------------------------------------------------------------------------------


def flip_bytes(path, start, n):
    content = bytearray(path.read_bytes())
    for i in range(start, min(start + n, len(content))):
        content[i] ^= 0xFF
    path.write_bytes(content)


def test_no_damage_to_the_file_gives_a_wrong_vector(tiny_bert, texts, tmp_path, forget):
    store = VectorStore(tmp_path)
    encoder = BertEncoder(tiny_bert, memory=store).fit(texts)
    expected = encoder.transform(texts)
    whole = store._path.read_bytes()
    rng = np.random.default_rng(0)
    noticed = 0
    for _ in range(60):
        store._path.write_bytes(whole)
        flip_bytes(store._path, rng.integers(len(whole)), rng.choice([1, 16, 4096]))
        forget()
        with warnings.catch_warnings(record=True) as record:
            warnings.simplefilter("always")
            assert_allclose(encoder.transform(texts), expected, rtol=1e-6, atol=1e-6)
        assert all("damaged" in str(w.message) for w in record)
        noticed += bool(record)
    assert noticed > 3  # most of the file is other layers and poolings


@pytest.mark.parametrize("keep", [0, 10, 5000, 20_000])
def test_truncated_file_is_put_aside_and_made_anew(tiny_bert, texts, tmp_path, forget, keep):
    store = VectorStore(tmp_path)
    encoder = BertEncoder(tiny_bert, memory=store).fit(texts)
    expected = encoder.transform(texts)
    with store._path.open("r+b") as stream:
        stream.truncate(keep)
    forget()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*damaged")
        assert_allclose(encoder.transform(texts), expected, rtol=1e-6, atol=1e-6)
    forget()
    assert_allclose(encoder.transform(texts), expected, rtol=1e-6, atol=1e-6)
    assert len(store) == len(set(texts))


def test_newer_format_is_refused(write_vectors, read_vectors, space, arrays, tmp_path):
    store = VectorStore(tmp_path)
    write_vectors(store, space, ["a", "b", "c"], arrays)
    with sqlite3.connect(store._path) as connection:
        connection.execute("UPDATE format SET version = 3")
    connection.close()
    for use in (lambda: read_vectors(store, space, ["x"], [0]), lambda: len(store)):
        with pytest.raises(ValueError, match=r"has format 3; this release .* reads format 2"):
            use()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_vector_that_is_not_finite_is_neither_returned_nor_kept(
    tiny_bert_copy, tmp_path, dtype
):
    folder = tiny_bert_copy()
    tensors = load_file(folder / "model.safetensors")
    table = tensors["embeddings.word_embeddings.weight"]
    dog = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]["dog"]
    if dtype == "float32":
        table[dog] = float("nan")
        memory = tmp_path
    else:  # finite in the model; layer normalisation is made to overflow half precision
        tensors["embeddings.LayerNorm.weight"] *= 1e30
        memory = VectorStore(tmp_path, dtype="float16")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    encoder = BertEncoder(folder, layers=0, batch_size=1).fit(["cat"])
    words = ["the dog", "dog"]
    for place in (memory, None) if dtype == "float32" else (memory,):
        with pytest.raises(
            ValueError, match=rf"text '(the )?dog' is not finite.*{folder}.*dtype='float32'"
        ):
            encoder.set_params(memory=place).transform(words)
    assert len(VectorStore(tmp_path)) == 0


def test_full_disk_loses_nothing_but_the_store(tiny_bert, texts, tmp_path, monkeypatch):
    store = VectorStore(tmp_path)
    expected = BertEncoder(tiny_bert).fit_transform(texts)
    connect = Database._connect

    def to_a_full_disk(self):
        db = connect(self)
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages}")
        return db

    monkeypatch.setattr(Database, "_connect", to_a_full_disk)
    with pytest.warns(UserWarning, match=r"could not be kept.*full.*Free some space"):
        vectors = BertEncoder(tiny_bert, memory=store).fit_transform(texts)
    assert_allclose(vectors, expected, rtol=1e-5, atol=1e-6)


# A text of the tiny model: four hidden states, six vectors of 16 numbers of four bytes.
OF_TEXT = 4 * 6 * 16 * 4


@pytest.fixture
def free_disk(monkeypatch):
    """Return a function that sets the free disk, and one's list of the folders asked about."""
    folders = []

    def free(n_bytes):
        def disk_usage(folder):
            folders.append(folder)
            return SimpleNamespace(free=n_bytes)

        monkeypatch.setattr(shutil, "disk_usage", disk_usage)
        return folders

    return free


def test_a_full_disk_is_foreseen_once_before_encoding(
    tiny_bert, texts, tmp_path, free_disk, monkeypatch
):
    folders = free_disk(20 * OF_TEXT)
    many = [f"{text} {i}" for text in texts for i in range(1000)]
    n, megabytes = len(set(many)), len(set(many)) * OF_TEXT / 1e6
    encoder = BertEncoder(tiny_bert, memory=tmp_path / "not" / "yet").fit(texts)
    monkeypatch.setattr(stored_module, "encode", refuse)
    with pytest.warns(UserWarning, match=f"{n:,} new texts add") as caught:
        begin_to_encode(encoder, many)
    (message,) = (str(w.message) for w in caught)
    assert folders == [tmp_path]
    added, free = re.search(r"add (\S+) MB to .* has (\S+) MB free", message).groups()
    assert megabytes < float(added.replace(",", "")) < 1.1 * megabytes
    assert free == "0"
    assert all(remedy in message for remedy in ("layers=", "pooling=", "float16", "max_bytes"))
    begin_to_encode(encoder, many)  # without a word


def refuse(*_, **__):
    raise InterruptedError


def begin_to_encode(encoder, texts):
    """Encode texts as far as the model, which refuses them."""
    with pytest.raises(InterruptedError):
        encoder.transform(texts)


@pytest.mark.parametrize("known", [False, True])
def test_texts_that_the_store_has_need_no_disk(
    tiny_bert, texts, tmp_path, free_disk, known, forget
):
    if known:
        BertEncoder(tiny_bert, memory=tmp_path).fit_transform(texts)
        forget()
    free_disk(OF_TEXT * (len(set(texts)) - 2))
    encoder = BertEncoder(tiny_bert, memory=tmp_path)
    if known:
        encoder.fit_transform([*texts, "one more"])
    else:
        with pytest.warns(UserWarning, match="MB free"):
            encoder.fit_transform(texts)


@pytest.mark.filterwarnings("ignore:.*unknown to this model")
def test_a_bound_below_the_free_disk_is_not_warned_about(tiny_bert, texts, tmp_path, free_disk):
    free_disk(100_000)
    many = [f"{text} {i}" for text in texts for i in range(20)]
    bounded = VectorStore(tmp_path / "bounded", max_bytes=90_000)
    BertEncoder(tiny_bert, memory=bounded).fit_transform(many)
    beyond = VectorStore(tmp_path / "beyond", max_bytes=110_000)
    with pytest.warns(UserWarning, match="MB free"):
        BertEncoder(tiny_bert, memory=beyond).fit_transform(many)


def test_an_iterator_is_foreseen_block_by_block(
    tiny_bert, texts, tmp_path, free_disk, monkeypatch
):
    monkeypatch.setattr(estimator_module, "STREAMED", 4)
    encoder = BertEncoder(tiny_bert, memory=tmp_path).fit(texts)
    folders = free_disk(6 * OF_TEXT)
    encoder.transform(iter(sorted(set(texts))[:8]))  # four at a time
    assert len(folders) == 2
    free_disk(3 * OF_TEXT)
    with pytest.warns(UserWarning, match="4 new texts"):
        encoder.transform(iter([f"the {text}" for text in texts[:8]]))


def test_folder_that_cannot_be_made_is_named(tiny_bert, texts, tmp_path):
    (tmp_path / "file").write_text("")
    encoder = BertEncoder(tiny_bert, memory=tmp_path / "file" / "store")
    with pytest.raises(OSError, match="file"):
        encoder.fit_transform(texts)


WRITER = """
import sys, torch
from skcalib import BertEncoder, VectorStore
torch.set_num_threads(1)  # one thread per process, as in any pool
folder, model, mode, *texts = sys.argv[1:]
encoder = BertEncoder(model, memory=folder, batch_size=1).fit(texts)
encoder.transform(texts)
while mode == "loop":
    VectorStore(folder).clear()
    encoder.transform(texts)
"""


def start_writer(folder, model, mode, texts):
    return subprocess.Popen([sys.executable, "-c", WRITER, str(folder), model, mode, *texts])


def test_kill_at_any_moment_leaves_a_good_store(tiny_bert, texts, tmp_path, forget):
    expected = BertEncoder(tiny_bert).fit_transform(texts)
    writers = [start_writer(tmp_path, tiny_bert, "loop", texts) for _ in range(2)]
    try:
        wait_until(lambda: len(VectorStore(tmp_path)) > 0)
        time.sleep(0.5)
        assert all(writer.poll() is None for writer in writers)  # they were writing to the end
    finally:
        for writer in writers:
            writer.kill()
            writer.wait(timeout=600)
    for _ in range(2):
        forget()
        vectors = BertEncoder(tiny_bert, memory=tmp_path).fit_transform(texts)
        assert_allclose(vectors, expected, rtol=1e-5, atol=1e-6)
    assert len(VectorStore(tmp_path)) == len(set(texts))


def test_processes_share_a_store(tiny_bert, texts, tmp_path):
    writers = [start_writer(tmp_path, tiny_bert, "once", texts) for _ in range(3)]
    for writer in writers:
        assert writer.wait(timeout=600) == 0
    assert len(VectorStore(tmp_path)) == len(set(texts))
    vectors = BertEncoder(tiny_bert, memory=tmp_path).fit_transform(texts)
    expected = BertEncoder(tiny_bert).fit_transform(texts)
    assert_allclose(vectors, expected, rtol=1e-5, atol=1e-6)


def test_a_file_of_sqlite_may_vanish_at_any_moment(tmp_path, monkeypatch):
    # Its journal goes when the last connection of another process closes.
    store = VectorStore(tmp_path)
    with closing(Database(store._path)) as database:
        database.run(lambda db: db.execute("PRAGMA user_version").fetchone())
        journal = store._path.with_name(store._path.name + "-wal")
        assert journal.exists()
        lstat = Path.lstat

        def vanished(path):
            if path == journal:
                raise FileNotFoundError(path)
            return lstat(path)

        monkeypatch.setattr(Path, "lstat", vanished)
        assert len(store) == 0
        assert store.n_bytes > 0
