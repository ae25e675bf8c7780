"""The store on a machine at its worst: damage, full and read-only disks, interrupts, kills."""

import contextlib
import ctypes
import itertools
import os
import sqlite3
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from waiting import wait_until

import skcalib.encoders.store.database as database_module
import skcalib.encoders.store.vectors as vectors_module
from skcalib import BertEncoder, VectorStore

TEXTS, SLOTS = [f"text {i}" for i in range(12)], ["a", "b"]
VECTORS = np.random.default_rng(0).normal(size=(12, 2, 4)).astype(np.float32)
COUNTS = np.arange(48).reshape(12, 4)


@pytest.fixture
def filled(tmp_path, open_vectors):
    """Return a store of four blocks."""
    store = VectorStore(tmp_path / "store")
    with contextlib.closing(open_vectors(store)) as vectors:
        for i in range(0, 12, 3):
            vectors.write(TEXTS[i : i + 3], SLOTS, VECTORS[i : i + 3], COUNTS[i : i + 3])
    return store


def read_and_mend(vectors, what=""):
    """Check what is found of all texts, write the others again; return whether any were."""
    known, found, counts = vectors.read(TEXTS, SLOTS)
    assert_array_equal(found[known], VECTORS[known], err_msg=what)
    assert_array_equal(counts[known], COUNTS[known], err_msg=what)
    if not known.all():
        texts = [text for text, is_known in zip(TEXTS, known, strict=True) if not is_known]
        vectors.write(texts, SLOTS, VECTORS[~known], COUNTS[~known])
    vectors.close()
    return not known.all()


def put_aside(store):
    return list(store._path.parent.glob("*.damaged-*"))


def test_no_flipped_byte_gives_a_wrong_vector_or_an_error(filled, open_vectors):
    """Of pages of tables and indices, their text and their types, every 13th byte in use."""
    whole = filled._path.read_bytes()
    used = [i for i, byte in enumerate(whole) if byte and i != 63]  # which tells the format
    mended = 0
    for i, mask in zip(used[::13], itertools.cycle((0x01, 0xFF))):
        damaged = bytearray(whole)
        damaged[i] ^= mask
        filled._path.write_bytes(damaged)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            mended += read_and_mend(open_vectors(filled), f"byte {i}")
        assert len(caught) <= 2, caught  # a block when read, and the file when written
        assert all("damaged" in str(w.message) for w in caught), (i, caught)
        for file in put_aside(filled):
            file.unlink()
    assert mended > 50


@pytest.mark.parametrize("keep", [0, 10, 5000, 20_000, 40_000])
def test_a_truncated_file_is_put_aside_and_begun_anew_once(filled, open_vectors, keep):
    with filled._path.open("r+b") as stream:
        stream.truncate(keep)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*damaged")
        for _ in range(2):
            read_and_mend(open_vectors(filled))
    assert not read_and_mend(open_vectors(filled))
    assert len(put_aside(filled)) == (keep > 0)


def test_a_file_put_aside_by_another_process_is_let_go(filled, open_vectors):
    vectors, other = open_vectors(filled), open_vectors(filled)
    assert vectors.store_id == other.store_id  # both have it open
    filled._path.write_bytes(b"no database" * 10_000)
    with pytest.warns(UserWarning, match=r"is damaged \(.*renamed to"):
        assert read_and_mend(vectors)
    read_and_mend(other)  # without a word
    assert not read_and_mend(open_vectors(filled))
    assert len(put_aside(filled)) == 1


def test_a_file_of_another_format_is_left_as_it_is(filled, open_vectors):
    with contextlib.closing(sqlite3.connect(filled._path)) as db:
        db.execute("PRAGMA user_version = 99")
    before = filled._path.read_bytes()
    for use in (lambda: open_vectors(filled).store_id, lambda: len(filled), filled.clear):
        with pytest.raises(ValueError, match=r"has format 99; this release .* reads format 5"):
            use()
    assert filled._path.read_bytes() == before


@contextlib.contextmanager
def locked(store):
    with contextlib.closing(database_module.connect(store._path)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@contextlib.contextmanager
def files_bounded(store, size):
    """Let no file of this process grow beyond some bytes, as on a disk that is full."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "obstacle",
    [locked, *(partial(files_bounded, size=s) for s in (5_000, 20_000, 60_000, 120_000))],
)
def test_what_cannot_be_kept_is_computed_and_kept_later(
    tiny_bert, texts, tmp_path, recent, monkeypatch, obstacle
):
    monkeypatch.setattr(database_module, "WAIT", 0.5)
    expected = BertEncoder(tiny_bert).fit_transform(texts)
    recent.bound = 2**20  # as outside the tests
    store = VectorStore(tmp_path)
    monkeypatch.setattr("skcalib.encoders.model.batches.token_budget", lambda backbone: 1)
    encoder = BertEncoder(tiny_bert, memory=store).fit(texts)
    with obstacle(store):
        for _ in range(2):  # a file half made does no harm
            with pytest.warns(UserWarning, match=r"could not be .*Free some space") as caught:
                assert_allclose(encoder.transform(texts), expected, rtol=1e-5, atol=1e-6)
            assert len(caught) == 1  # not one for each of ten batches, nor as many waits
    assert_allclose(encoder.transform(texts), expected, rtol=1e-5, atol=1e-6)
    assert len(store) == len(set(texts))  # though memory has them


def drop_root():
    """Take away what lets root write everywhere from this thread, for good."""
    libc = ctypes.CDLL(None)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if hasattr(libc, "capset"):
        libc.capset(header, sets)  # no capability is left


def test_a_folder_without_permission_to_write_is_read(tiny_bert, texts, tmp_path):
    store = VectorStore(tmp_path / "store")
    expected = BertEncoder(tiny_bert).fit_transform(texts)
    BertEncoder(tiny_bert, memory=store).fit_transform(texts[:6])
    encoder = BertEncoder(tiny_bert, memory=tmp_path / "store").fit(texts)
    folder = store._path.parent

    def read():
        if os.access(folder, os.W_OK):
            pytest.skip("root may write everywhere, and no capset here can take that away")
        return encoder.transform(texts[:6]), len(VectorStore(tmp_path / "store"))

    def write():
        with pytest.warns(UserWarning, match="could not be written") as caught:
            vectors = encoder.transform(texts)
        return vectors, len(caught)

    folder.chmod(0o555)
    with ThreadPoolExecutor(1, initializer=drop_root) as thread:
        found, n_stored = thread.submit(read).result()  # without a word
        vectors, n_warnings = thread.submit(write).result()
    folder.chmod(0o755)
    assert (n_stored, n_warnings) == (len(set(texts[:6])), 1)
    assert_allclose(found, expected[:6], rtol=1e-5, atol=1e-6)
    assert_allclose(vectors, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("module", [database_module, vectors_module])
def test_an_interrupt_at_any_line_leaves_the_store(tmp_path, interrupt, module, open_vectors):
    """Interrupted at line 1, 2, 3... of the module, until one write gets through."""
    for n in itertools.count(1):
        vectors = open_vectors(VectorStore(tmp_path / str(n)))
        write = lambda v=vectors: v.write(TEXTS, SLOTS, VECTORS, COUNTS)  # noqa: E731
        if not interrupt(module, n, write):
            break
        vectors.close()
        read_and_mend(vectors, f"line {n}")  # nothing is locked
        assert not read_and_mend(vectors)
    assert n > 10


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc here")
def test_no_file_stays_open(tiny_bert, texts, tmp_path):
    BertEncoder(tiny_bert, memory=tmp_path).fit_transform(texts)
    VectorStore(tmp_path).clear()
    links = [os.readlink(f) for f in Path("/proc/self/fd").iterdir() if f.is_symlink()]
    assert not [link for link in links if str(tmp_path) in link]


WRITER = """
import sys
import numpy as np
from skcalib import TextEncoder, VectorStore

def lengths(texts):
    return np.array([[len(text), 1.0] for text in texts])

def encoder(folder):
    return TextEncoder(lengths, memory=folder, name="lengths", batch_size=1)

if __name__ == "__main__":
    folder, *texts = sys.argv[1:]
    fitted = encoder(folder).fit(texts)
    while True:
        fitted.transform(texts)
        VectorStore(folder).clear()
"""


def test_kill_at_any_moment_leaves_a_good_store(texts, tmp_path):
    # A function needs no torch, which takes some 8 s to import.
    command = [sys.executable, "-c", WRITER, str(tmp_path), *texts]
    writers = [subprocess.Popen(command) for _ in range(2)]
    try:
        wait_until(lambda: len(VectorStore(tmp_path)) > 0)
        time.sleep(0.5)
    finally:
        ended = [writer.poll() for writer in writers]
        for writer in writers:
            writer.kill()
            writer.wait(timeout=600)
    assert ended == [None, None]  # they were writing
    exec(WRITER, made := {"__name__": "writer"})
    vectors = made["encoder"](tmp_path).fit_transform(texts)
    assert_array_equal(vectors, made["lengths"](texts))
    assert len(VectorStore(tmp_path)) == len(set(texts)) + 1  # the encoder adds a text
    assert not list(tmp_path.glob("*.damaged-*"))
