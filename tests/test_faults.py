"""The store on a machine at its worst: damage, full and read-only disks, interrupts, kills."""

import contextlib
import ctypes
import itertools
import os
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from waiting import wait_until

import skcalib.encoders.store as store_module
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
    if known.any():
        assert_array_equal(found[known], VECTORS[known], err_msg=what)
    assert_array_equal(counts[known], COUNTS[known], err_msg=what)
    if not known.all():
        texts = [text for text, is_known in zip(TEXTS, known, strict=True) if not is_known]
        vectors.write(texts, SLOTS, VECTORS[~known], COUNTS[~known])
    vectors.close()
    return not known.all()


def test_no_flipped_byte_gives_a_wrong_vector(filled, open_vectors):
    """Of pages of tables and indices, their text and their types, every 13th byte in use."""
    whole = filled._path.read_bytes()
    used = [i for i, byte in enumerate(whole) if byte and i != 63]  # which tells the format
    refused = 0
    for i, mask in zip(used[::13], itertools.cycle((0x01, 0xFF))):
        damaged = bytearray(whole)
        damaged[i] ^= mask
        filled._path.write_bytes(damaged)
        with contextlib.suppress(ValueError, OSError):
            read_and_mend(open_vectors(filled), f"byte {i}")
            continue
        refused += 1
    assert refused > 50


@pytest.mark.parametrize("keep", [10, 5000, 20_000, 40_000])
def test_a_truncated_file_is_refused_by_name(filled, open_vectors, keep):
    with filled._path.open("r+b") as stream:
        stream.truncate(keep)
    with pytest.raises((ValueError, OSError), match=r"skcalib-vectors\.sqlite.* (is|cannot)"):
        read_and_mend(open_vectors(filled))
    filled._path.unlink()
    assert read_and_mend(open_vectors(filled))
    assert not read_and_mend(open_vectors(filled))


def test_a_file_of_another_format_is_left_as_it_is(filled, open_vectors):
    with contextlib.closing(sqlite3.connect(filled._path)) as db:
        db.execute("PRAGMA user_version = 99")
    before = filled._path.read_bytes()
    for use in (lambda: open_vectors(filled).store_id, lambda: len(filled), filled.clear):
        with pytest.raises(ValueError, match=r"has format 99; this release .* reads format 6"):
            use()
    assert filled._path.read_bytes() == before


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


@pytest.mark.parametrize("size", [5_000, 20_000, 60_000, 120_000])
def test_what_cannot_be_kept_is_an_error_and_kept_later(
    tiny_bert, texts, words, tmp_path, recent, size
):
    texts = [f"{text} {word}" for text in texts for word in words]
    expected = BertEncoder(tiny_bert).fit_transform(texts)
    recent.bound = 2**20  # as outside the tests
    store = VectorStore(tmp_path)
    encoder = BertEncoder(tiny_bert, memory=store).fit(texts)
    with files_bounded(store, size):
        for _ in range(2):  # a file half made does no harm
            with pytest.raises(OSError, match=r"cannot be read or written.*Free some space"):
                encoder.transform(texts)
    assert_allclose(encoder.transform(texts), expected, rtol=1e-5, atol=1e-6)
    assert len(store) == len(set(texts))  # though memory has some of them


def drop_root():
    """Take away what lets root write everywhere from this thread, for good."""
    libc = ctypes.CDLL(None)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if hasattr(libc, "capset"):
        libc.capset(header, sets)  # no capability is left


def test_a_folder_without_permission_to_write_is_refused(tiny_bert, texts, tmp_path):
    store = VectorStore(tmp_path / "store")
    encoder = BertEncoder(tiny_bert, memory=store).fit(texts)
    encoder.transform(texts[:6])
    folder = store._path.parent

    def use(function, *arguments):
        if os.access(folder, os.W_OK):
            pytest.skip("root may write everywhere, and no capset here can take that away")
        with pytest.raises(OSError, match="cannot be read or written"):
            function(*arguments)

    folder.chmod(0o555)
    with ThreadPoolExecutor(1, initializer=drop_root) as thread:
        for call in ((encoder.transform, texts), (len, store), (store.clear,)):
            thread.submit(use, *call).result()
    folder.chmod(0o755)
    assert len(store) == len(set(texts[:6]))


def test_an_interrupt_at_any_line_leaves_the_store(tmp_path, interrupt, open_vectors):
    """Interrupted at line 1, 2, 3... of the module, until one write gets through."""
    for n in itertools.count(1):
        vectors = open_vectors(VectorStore(tmp_path / str(n)))
        write = lambda v=vectors: v.write(TEXTS, SLOTS, VECTORS, COUNTS)  # noqa: E731
        if not interrupt(store_module, n, write):
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
    assert len(VectorStore(tmp_path)) == len(set(texts))
