"""The store on a machine at its worst: full and read-only disks, damage, kills."""

import contextlib
import io
import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from waiting import wait_until

import skcalib._store.database as database_module
import skcalib._store.vectors as vectors_module
from skcalib import BertEncoder, VectorStore

TEXTS = [f"text {i}" for i in range(12)]
VECTORS = np.random.default_rng(0).normal(size=(12, 2, 4)).astype(np.float32)
SLOTS = ["a", "b"]
COUNTS = np.arange(48).reshape(12, 4)


@pytest.fixture
def filled(tmp_path, open_vectors):
    """Return a store of four blocks."""
    store = VectorStore(tmp_path / "store")
    vectors = open_vectors(store)
    for rows in np.array_split(np.arange(12), 4):
        vectors.write([TEXTS[i] for i in rows], SLOTS, VECTORS[rows], COUNTS[rows])
    vectors.close()
    return store


@pytest.fixture
def small_disk():
    """Return a function that mounts a file system in memory of some size."""
    # Not in tmp_path: pytest could not clear that after a run that was killed.
    mounted = []

    def mount(size, options=""):
        folder = Path(tempfile.mkdtemp(prefix="skcalib-disk-"))
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        except OSError as error:
            folder.rmdir()
            pytest.skip(f"no mount here: {error}")
        if done.returncode:
            folder.rmdir()
            pytest.skip(f"this user may not mount: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True, timeout=30)
        folder.rmdir()


def read_and_mend(vectors, what=""):
    """Check what is found of all texts, write the others again; return whether any were."""
    known, found, counts = vectors.read(TEXTS, SLOTS)
    assert_array_equal(found[known], VECTORS[known], err_msg=what)
    assert_array_equal(counts[known], COUNTS[known], err_msg=what)
    missing = np.flatnonzero(~known)
    if len(missing):
        texts = [TEXTS[i] for i in missing]
        vectors.write(texts, SLOTS, VECTORS[missing], COUNTS[missing])
    vectors.close()
    return len(missing) > 0


# Damage ----------------------------------------------------------------------------------


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
        for file in filled._path.parent.glob("*.damaged-*"):
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
    assert len(list(filled._path.parent.glob("*.damaged-*"))) == (keep > 0)


def test_a_file_put_aside_by_another_process_is_let_go(filled, open_vectors):
    vectors, other = open_vectors(filled), open_vectors(filled)
    assert vectors.store_id
    assert other.store_id
    with pytest.warns(UserWarning, match=r"is damaged \(no such table.*put aside as"):
        vectors._run("read", lambda db: db.execute("SELECT * FROM nowhere"))
    assert read_and_mend(vectors)
    assert (
        other._run("read", lambda db: db.execute("SELECT * FROM nowhere")) is None
    )  # no word of it
    assert not read_and_mend(other)
    assert len(list(filled._path.parent.glob("*.damaged-*"))) == 1


def test_a_file_of_another_format_is_left_as_it_is(filled, open_vectors):
    with sqlite3.connect(filled._path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = filled._path.read_bytes()
    for use in (lambda: open_vectors(filled).store_id, lambda: len(filled), filled.clear):
        with pytest.raises(ValueError, match=r"has format 99; this release .* reads format 3"):
            use()
    assert filled._path.read_bytes() == before


# Locks that others hold ------------------------------------------------------------------


def test_a_lock_that_is_not_given_back_is_waited_for_once_a_call(
    tiny_bert, texts, tmp_path, monkeypatch
):
    monkeypatch.setattr(database_module, "WAIT", 0.5)
    store = VectorStore(tmp_path)
    encoder = BertEncoder(tiny_bert, memory=store, batch_size=1).fit(texts)
    expected = BertEncoder(tiny_bert, batch_size=1).fit_transform(texts)
    encoder.transform(texts[:1])
    with contextlib.closing(sqlite3.connect(store._path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        start = time.monotonic()
        with pytest.warns(UserWarning, match="written: .*locked.*end a process") as caught:
            assert_allclose(encoder.transform(texts), expected, rtol=1e-5, atol=1e-6)
        assert len(caught) == 1
        assert time.monotonic() - start < 5  # not a wait for each of ten batches
    encoder.transform(texts)
    assert len(store) == len(set(texts))  # kept again


# The disk --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", ["20k", "60k", "120k", "250k"])
def test_a_full_disk_costs_only_what_cannot_be_kept(tiny_bert, texts, small_disk, size):
    folder = small_disk(size)
    expected = BertEncoder(tiny_bert).fit_transform(texts)
    encoder = BertEncoder(tiny_bert, memory=folder, batch_size=1).fit(texts)
    for _ in range(3):  # a file half made does no harm
        with pytest.warns(UserWarning, match="full.*Free some space|disk I/O") as caught:
            assert_allclose(encoder.transform(texts), expected, rtol=1e-5, atol=1e-6)
        assert len(caught) == 1
    subprocess.run(["mount", "-o", "remount,size=20m", str(folder)], check=True, timeout=30)
    assert_allclose(encoder.transform(texts), expected, rtol=1e-5, atol=1e-6)
    assert len(VectorStore(folder)) == len(set(texts))


def test_what_could_not_be_kept_is_kept_later(tiny_bert, texts, tmp_path, monkeypatch, recent):
    recent.bound = 2**20  # as outside the tests

    def to_a_full_disk(path, connect=vectors_module.connect):
        db = connect(path)
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages}")
        return db

    encoder = BertEncoder(tiny_bert, memory=tmp_path).fit(texts)
    with monkeypatch.context() as patch:
        patch.setattr(vectors_module, "connect", to_a_full_disk)
        with pytest.warns(UserWarning, match="could not be written: .* full"):
            vectors = encoder.transform(texts)
    assert_allclose(vectors, BertEncoder(tiny_bert).fit_transform(texts), rtol=1e-5, atol=1e-6)
    assert len(VectorStore(tmp_path)) == 0
    encoder.transform(texts)
    assert len(VectorStore(tmp_path)) == len(set(texts))


def test_a_read_only_disk_is_read(tiny_bert, texts, small_disk):
    folder = small_disk("20m")
    encoder = BertEncoder(tiny_bert, memory=folder).fit(texts)
    expected = encoder.transform(texts[:6])
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True, timeout=30)
    assert_array_equal(encoder.transform(texts[:6]), expected)  # without a word
    with pytest.warns(UserWarning, match="could not be written: .*readonly") as caught:
        vectors = encoder.transform(texts)
    assert len(caught) == 1
    fresh = BertEncoder(tiny_bert).fit_transform(texts)
    assert_allclose(vectors, fresh, rtol=1e-5, atol=1e-6)


def test_damage_on_a_read_only_disk_is_no_obstacle(tiny_bert, texts, small_disk):
    folder = small_disk("20m")
    encoder = BertEncoder(tiny_bert, memory=folder).fit(texts)
    expected = encoder.transform(texts)
    store = VectorStore(folder)
    with store._path.open("r+b") as stream:
        stream.truncate(40_000)
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True, timeout=30)
    with pytest.warns(UserWarning, match="damaged|could not be"):
        assert_allclose(encoder.transform(texts), expected, rtol=1e-5, atol=1e-6)


READ_ONLY = """
import sys, warnings, numpy as np
from skcalib import VectorStore
from skcalib._store.vectors import Vectors
vectors = Vectors(VectorStore(sys.argv[1]), "model", 4)
known, found, _ = vectors.read([f"text {i}" for i in range(12)], ["a"])
assert known.all()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        assert not vectors.write(["new"], ["a"], np.ones((1, 1, 4)), np.ones((1, 4)))
assert ["could not be written" in str(w.message) for w in caught] == [True], caught
np.save(sys.stdout.buffer, vectors.read([f"text {i}" for i in range(12)], ["a"])[1])
"""


@pytest.mark.parametrize("file_mode", [0o444, 0o644])
def test_a_folder_without_permission_to_write_is_read(filled, file_mode):
    command = [sys.executable, "-c", READ_ONLY, str(filled._path.parent)]
    if os.getuid() == 0:  # who may write anywhere, unless that is taken away
        if not shutil.which("setpriv"):
            pytest.skip("root may write everywhere, and there is no setpriv here")
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    filled._path.chmod(file_mode)
    filled._path.parent.chmod(0o555)
    try:
        done = subprocess.run(command, capture_output=True, timeout=600)
    finally:
        filled._path.parent.chmod(0o755)
    assert done.returncode == 0, done.stderr.decode()
    assert_array_equal(np.load(io.BytesIO(done.stdout)), VECTORS[:, :1])


# Interrupts, kills and handles -----------------------------------------------------------


@pytest.mark.parametrize("module", [database_module, vectors_module])
def test_an_interrupt_at_any_line_leaves_a_good_store(
    tmp_path, interrupt, module, open_vectors
):
    """Interrupted at line 1, 2, 3... of the module, until one write gets through."""

    def interrupted_at(n):
        vectors = open_vectors(VectorStore(tmp_path / str(n)))
        write = lambda: vectors.write(TEXTS, SLOTS, VECTORS, COUNTS)  # noqa: E731
        return vectors if interrupt(module, n, write) else None

    n = 0
    while (vectors := interrupted_at(n := n + 1)) is not None:
        vectors.close()
        read_and_mend(vectors, f"line {n}")  # nothing is locked
        assert not read_and_mend(vectors)
    assert n > 10


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc here")
def test_no_file_stays_open(tiny_bert, texts, tmp_path):
    for _ in range(2):
        BertEncoder(tiny_bert, memory=tmp_path).fit_transform(texts)
        VectorStore(tmp_path).clear()
    links = [os.readlink(f) for f in Path("/proc/self/fd").iterdir() if f.is_symlink()]
    assert not [link for link in links if str(tmp_path) in link]


def test_folder_that_cannot_be_made_is_named(tiny_bert, texts, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        BertEncoder(tiny_bert, memory=tmp_path / "file" / "store").fit_transform(texts)


WRITER = """
import sys, torch
from skcalib import BertEncoder, VectorStore
torch.set_num_threads(1)  # one thread per process, as in any pool
folder, model, *texts = sys.argv[1:]
encoder = BertEncoder(model, memory=folder, batch_size=1).fit(texts)
while True:
    encoder.transform(texts)
    VectorStore(folder).clear()
"""


def test_kill_at_any_moment_leaves_a_good_store(tiny_bert, texts, tmp_path):
    expected = BertEncoder(tiny_bert).fit_transform(texts)
    command = [sys.executable, "-c", WRITER, str(tmp_path), tiny_bert, *texts]
    writers = [subprocess.Popen(command) for _ in range(2)]
    try:
        wait_until(lambda: len(VectorStore(tmp_path)) > 0)
        time.sleep(0.5)
        assert all(writer.poll() is None for writer in writers)  # they were writing to the end
    finally:
        for writer in writers:
            writer.kill()
            writer.wait(timeout=600)
    for _ in range(2):
        vectors = BertEncoder(tiny_bert, memory=tmp_path).fit_transform(texts)
        assert_allclose(vectors, expected, rtol=1e-5, atol=1e-6)
    assert len(VectorStore(tmp_path)) == len(set(texts))
    assert not list(tmp_path.glob("*.damaged-*"))
