"""The store on a machine at its worst: full and read-only disks, damage, kills, clocks."""

import contextlib
import io
import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import skcalib._store as store_module
import skcalib._vector_cache as vector_cache
from skcalib import BertEncoder, VectorStore, Whitening
from skcalib._store import COUNTS, Space

SPACE = Space("f" * 64, 40, "float32", 4, (0, 1))
TEXTS = [f"text {i}" for i in range(12)]


@pytest.fixture(autouse=True)
def fresh_cache(monkeypatch):
    """Make every test read from disk what it has not read itself."""
    monkeypatch.setattr(vector_cache, "_shelves", type(vector_cache._shelves)())


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    vectors = {slot: rng.normal(size=(12, 4)).astype(np.float32) for slot in (0, 1)}
    return vectors | {COUNTS: np.arange(36).reshape(12, 3)}


@pytest.fixture
def filled(tmp_path, arrays):
    """Return a store of four blocks, closed."""
    store = VectorStore(tmp_path / "store")
    for rows in np.array_split(np.arange(12), 4):
        store.write(SPACE, [TEXTS[i] for i in rows], {s: a[rows] for s, a in arrays.items()})
    store_module._open_stores[str(store.path), os.getpid()].db.execute(
        "PRAGMA wal_checkpoint(TRUNCATE)"
    )
    store._close()
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
        for path, pid in list(store_module._open_stores):
            if path.startswith(str(folder)) and pid == os.getpid():
                VectorStore(Path(path).parent)._close()
        subprocess.run(["umount", str(folder)], check=True, timeout=30)
        folder.rmdir()


def read_all(store):
    vector_cache._shelves.clear()
    return store.read(SPACE, TEXTS, [0, COUNTS])


# Damage ----------------------------------------------------------------------------------


def test_no_flipped_byte_gives_a_wrong_vector_or_an_error(filled, arrays):
    """Of pages of tables and indices, their text and their types, every 13th byte in use."""
    whole = filled.path.read_bytes()
    used = [i for i, byte in enumerate(whole) if byte]
    # The last byte of the third page, where the one row of the table of formats ends, says
    # which release wrote the file.
    release = 3 * 16384 - 1
    assert whole[release] == store_module.FORMAT
    healed = 0
    for i, mask in zip([release, *used[::13]], itertools.cycle((0x01, 0xFF))):
        damaged = bytearray(whole)
        damaged[i] ^= mask
        filled.path.write_bytes(damaged)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if i == release and mask == 0x01:
                with pytest.raises(ValueError, match="has format"):
                    read_all(filled)
                continue
            known, found = read_all(filled)
            missing = np.flatnonzero(~known)
            if len(missing):
                some = {slot: a[missing] for slot, a in arrays.items()}
                filled.write(SPACE, [TEXTS[j] for j in missing], some)
        assert_array_equal(found[0].take(), arrays[0][known], err_msg=f"byte {i}")
        assert_array_equal(found[COUNTS].take(), arrays[COUNTS][known], err_msg=f"byte {i}")
        assert all("damaged" in str(w.message) for w in caught), [
            str(w.message) for w in caught
        ]
        assert len(caught) <= 2  # one block when read, and the file when written
        healed += bool(caught)
        filled._close()
        for file in filled.path.parent.glob("*.damaged-*"):
            file.unlink()
    assert healed > 50


def test_vectors_of_another_model_are_not_taken_for_those_of_this_one(filled, arrays):
    """Names of spaces exchanged in the file, as one flipped bit could: 40 tokens are not 41."""
    other = SPACE._replace(max_length=41)
    filled.write(other, TEXTS[:3], {slot: -a[:3] for slot, a in arrays.items()})
    filled._close()
    with sqlite3.connect(filled.path) as db:
        (mine,), (theirs,) = db.execute("SELECT name FROM spaces ORDER BY id").fetchall()
        db.execute("UPDATE spaces SET name = 'x' WHERE name = ?", (mine,))
        db.execute("UPDATE spaces SET name = ? WHERE name = ?", (mine, theirs))
    db.close()
    with pytest.warns(UserWarning, match="1 blocks .* are damaged"):
        known, _ = read_all(filled)
    assert not known.any()


def test_a_text_listed_twice_has_its_own_vector(filled, arrays, monkeypatch):
    """A damaged index may give a row twice; those after it must not move up."""
    shelf = vector_cache.Shelf(4)
    shelf.add(["a", "b", "b", "c"], {0: arrays[0][[0, 1, 1, 2]]})
    shelf.add(["d"], {0: arrays[0][[3]]})
    known, found = shelf.find(list("abcd"), [0])
    assert known.all()
    assert_array_equal(found[0].take(), arrays[0][:4])


def test_a_file_put_aside_by_another_process_is_let_go(filled, arrays):
    assert len(filled) == 12  # opens it
    os.replace(filled.path, filled.path.with_name("aside"))
    known, _ = read_all(filled)
    assert not known.any()
    filled.write(SPACE, TEXTS, arrays)
    filled._close()
    assert len(filled) == 12


def test_a_newer_format_is_left_as_it_is(tmp_path):
    store = VectorStore(tmp_path)
    with sqlite3.connect(store.path) as db:
        db.execute("CREATE TABLE format (version INTEGER NOT NULL)")
        db.execute("INSERT INTO format VALUES (99)")
        db.execute("CREATE TABLE texts (other INTEGER)")
    db.close()
    before = store.path.read_bytes()
    for use in (lambda: store.read(SPACE, TEXTS, [0]), lambda: len(store), store.clear):
        with pytest.raises(ValueError, match=r"has format 99; this release .* reads format 2"):
            use()
    assert store.path.read_bytes() == before


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON blocks BEGIN DELETE FROM texts; END",
        "CREATE VIEW v AS WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n FROM c) "
        "SELECT n FROM c",
        "CREATE INDEX i ON texts (length(hash))",
        "DROP TABLE format; CREATE VIEW format AS WITH RECURSIVE c(n) AS "
        "(SELECT 1 UNION ALL SELECT n FROM c) SELECT n AS version FROM c WHERE n = 2",
    ],
    ids=["trigger", "view", "index", "endless view"],
)
def test_a_file_with_anything_else_in_it_is_put_aside(filled, arrays, statement):
    with contextlib.closing(sqlite3.connect(filled.path)) as db:
        db.executescript(statement)
    with pytest.warns(UserWarning, match="is damaged .*put aside"):
        filled.write(SPACE, TEXTS, arrays)
    assert_array_equal(read_all(filled)[1][0].take(), arrays[0])


def test_sizes_are_looked_at_before_a_value_is_read(filled):
    """Forged values of 200 MB, each in few bytes of SQL."""
    with contextlib.closing(sqlite3.connect(filled.path)) as db:
        db.execute("UPDATE arrays SET data = zeroblob(200000000) WHERE block = 1")
        db.execute("UPDATE blocks SET hashes = hashes || zeroblob(200000000) WHERE id = 2")
        db.execute("UPDATE arrays SET crc = 'a' || zeroblob(200000000) WHERE block = 3")
        db.commit()
    tracemalloc.start()
    try:
        with pytest.warns(UserWarning, match="3 blocks .* damaged"):
            known, _ = read_all(filled)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert known.sum() == 3


@pytest.mark.skipif(os.name == "nt", reason="no pipes and few links")
@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("elsewhere", path)])
def test_links_and_pipes_are_not_opened(tmp_path, arrays, suffix, make):
    store = VectorStore(tmp_path)
    make(tmp_path / (store_module.FILE + suffix))
    with pytest.warns(UserWarning, match="could not be kept in .*a link or no file"):
        store.write(SPACE, TEXTS, arrays)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(os.name == "nt", reason="no file locks")
def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path, arrays):
    (tmp_path / store_module.LOCK).symlink_to(tmp_path / "elsewhere")
    VectorStore(tmp_path).write(SPACE, TEXTS, arrays)
    assert not (tmp_path / "elsewhere").exists()


# Locks that others hold ------------------------------------------------------------------

HOLDER = """
import fcntl, os, sqlite3, sys
sys.path.insert(0, "")
from skcalib._claims import WHOLE_FILE
path, lock, kind = sys.argv[1:]
if kind == "write":
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
else:
    file = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.lockf(file, fcntl.LOCK_EX, 1, WHOLE_FILE)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.name == "nt", reason="no file locks")
@pytest.mark.parametrize("kind", ["write", "open"])
def test_a_lock_that_is_not_given_back_is_waited_for_once(
    tiny_bert, texts, tmp_path, monkeypatch, kind
):
    monkeypatch.setattr(store_module, "WAIT", 3.0)
    store = VectorStore(tmp_path)
    encoder = BertEncoder(tiny_bert, memory=store, batch_size=1).fit(texts)
    expected = BertEncoder(tiny_bert, batch_size=1).fit_transform(texts)
    encoder.transform(texts[:1])
    store._close()
    vector_cache._shelves.clear()
    lock = tmp_path / store_module.LOCK
    command = [sys.executable, "-c", HOLDER, str(store.path), str(lock), kind]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        start = time.monotonic()
        for _ in range(2):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("default")
                assert_allclose(encoder.transform(texts), expected, rtol=1e-5, atol=1e-6)
            messages = [str(w.message) for w in caught]
            assert any("could not be kept" in m for m in messages)
            assert all("locked" in m and "Another process has held it" in m for m in messages)
        assert time.monotonic() - start < 25  # not a wait for each of twice eleven batches
        other.communicate("")
    assert_allclose(encoder.transform(texts), expected, rtol=1e-5, atol=1e-6)
    assert len(store) == len(set(texts))  # kept again
    assert not store_module._stuck


# The disk --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", ["20k", "60k", "120k", "250k"])
def test_a_full_disk_costs_only_what_cannot_be_kept(tiny_bert, texts, small_disk, size):
    folder = small_disk(size)
    expected = BertEncoder(tiny_bert).fit_transform(texts)
    encoder = BertEncoder(tiny_bert, memory=folder, batch_size=1).fit(texts)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        assert_allclose(encoder.transform(texts), expected, rtol=1e-5, atol=1e-6)
    messages = [str(w.message) for w in caught]
    assert all("full" in m and "Free some space, or choose" in m for m in messages), messages
    assert 1 <= len(messages) <= 2  # once that it cannot be read, once that it cannot be kept
    for _ in range(2):  # a file half made does no harm
        vector_cache._shelves.clear()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Vectors could not be")
            assert_allclose(encoder.transform(texts), expected, rtol=1e-5, atol=1e-6)
    subprocess.run(["mount", "-o", "remount,size=20m", str(folder)], check=True, timeout=30)
    assert_allclose(encoder.transform(texts), expected, rtol=1e-5, atol=1e-6)
    assert len(VectorStore(folder)) == len(set(texts))


def test_a_read_only_disk_is_read(tiny_bert, texts, small_disk):
    folder = small_disk("20m")
    encoder = BertEncoder(tiny_bert, memory=folder).fit(texts)
    expected = encoder.transform(texts[:6])
    VectorStore(folder)._close()
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True, timeout=30)
    vector_cache._shelves.clear()
    assert_array_equal(encoder.transform(texts[:6]), expected)  # without a word
    with pytest.warns(UserWarning, match="could not be kept"):
        vectors = encoder.transform(texts)
    fresh = BertEncoder(tiny_bert).fit_transform(texts)
    assert_allclose(vectors, fresh, rtol=1e-5, atol=1e-6)


def test_damage_on_a_read_only_disk_is_no_obstacle(tiny_bert, texts, small_disk):
    folder = small_disk("20m")
    encoder = BertEncoder(tiny_bert, memory=folder).fit(texts)
    expected = encoder.transform(texts)
    store = VectorStore(folder)
    store._close()
    with store.path.open("r+b") as stream:
        stream.truncate(40_000)
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True, timeout=30)
    vector_cache._shelves.clear()
    with pytest.warns(UserWarning, match="could not be read|damaged|could not be kept"):
        assert_allclose(encoder.transform(texts), expected, rtol=1e-5, atol=1e-6)


READ_ONLY = """
import sys, warnings, numpy as np
from skcalib._store import COUNTS, Space, VectorStore
store = VectorStore(sys.argv[1])
space = Space("f" * 64, 40, "float32", 4, (0, 1))
known, found = store.read(space, [f"text {i}" for i in range(12)], [0])
assert known.all()
np.save(sys.stdout.buffer, found[0].take())
new = {0: np.ones((1, 4)), 1: np.ones((1, 4)), COUNTS: np.ones((1, 3))}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    store.write(space, ["new"], new)
assert ["could not be kept" in str(w.message) for w in caught] == [True], caught
assert store.claim(store, space, ["new"]) == [True]
"""


@pytest.mark.parametrize("file_mode", [0o444, 0o644])
def test_a_folder_without_permission_to_write_is_read(filled, arrays, file_mode):
    command = [sys.executable, "-c", READ_ONLY, str(filled.path.parent)]
    if os.getuid() == 0:  # who may write anywhere, unless that is taken away
        if not shutil.which("setpriv"):
            pytest.skip("root may write everywhere, and there is no setpriv here")
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    filled.path.chmod(file_mode)
    filled.path.parent.chmod(0o555)
    try:
        done = subprocess.run(command, capture_output=True, timeout=120)
    finally:
        filled.path.parent.chmod(0o755)
    assert done.returncode == 0, done.stderr.decode()
    assert_array_equal(np.load(io.BytesIO(done.stdout)), arrays[0])


def test_whitening_goes_without_a_cache_that_cannot_be_written(small_disk):
    X = np.random.default_rng(0).normal(size=(200, 40))
    expected = Whitening().fit(X).transform(X)
    folder = small_disk("16k")
    with pytest.warns(UserWarning, match=r"could not be kept in .*No space left"):
        whitening = Whitening(memory=folder).fit(X)
    assert_array_equal(whitening.transform(X), expected)
    assert not list(folder.rglob("*.tmp"))
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True, timeout=30)
    with pytest.warns(UserWarning, match="could not be kept"):
        Whitening(memory=folder / "new").fit(X)


# Time ------------------------------------------------------------------------------------


def test_a_clock_that_jumps_changes_nothing(tiny_bert, texts, tmp_path, monkeypatch):
    encoder = BertEncoder(tiny_bert, memory=tmp_path).fit(texts)
    expected = encoder.transform(texts)
    for seconds in (-(10**9), 0, 10**10):
        monkeypatch.setattr(time, "time", lambda s=seconds: float(s))
        monkeypatch.setattr(time, "time_ns", lambda s=seconds: s * 10**9)
        VectorStore(tmp_path)._close()
        vector_cache._shelves.clear()
        for file in tmp_path.iterdir():
            os.utime(file, (max(seconds, 0), max(seconds, 0)))
        assert_array_equal(encoder.transform(texts), expected)


def test_damaged_files_are_kept_apart_though_the_clock_stands_still(filled, monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: 7)
    for _ in range(2):
        filled.path.write_bytes(b"not a database at all, but long enough to be looked at" * 20)
        with pytest.warns(UserWarning, match="put aside"):
            read_all(filled)
        filled._close()
    assert len(list(filled.path.parent.glob("*.damaged-*"))) == 2


# Interrupts and handles ------------------------------------------------------------------


def test_an_interrupt_at_any_line_of_a_write_leaves_a_good_store(
    tmp_path, arrays, monkeypatch, interrupt
):
    """Interrupted at line 1, 2, 3... of the store's own code, until one write gets through."""

    def interrupted_at(n):
        # Tracing may stop between the last line of a `with` and its exit, where no signal is
        # ever handled: a lock stays held then that stays so for the tests to come.
        monkeypatch.setattr(store_module, "_lock", threading.RLock())
        store = VectorStore(tmp_path / str(n))
        broken = interrupt(store_module, n, lambda: store.write(SPACE, TEXTS, arrays))
        return store if broken else None

    n = 0
    while (store := interrupted_at(n := n + 1)) is not None:
        held = store_module._open_stores.get((str(store.path), os.getpid()))
        assert held is None or not held.db.in_transaction, f"line {n}"
        store.write(SPACE, TEXTS[:5], {slot: a[:5] for slot, a in arrays.items()})
        known, found = read_all(store)
        assert known[:5].all()
        assert_array_equal(found[0].take(), arrays[0][known], err_msg=f"line {n}")
        store._close()
    assert n > 50


def test_the_number_of_open_stores_is_bounded(tmp_path, arrays):
    for i in range(store_module.MAX_OPEN + 20):
        VectorStore(tmp_path / str(i)).write(SPACE, TEXTS, arrays)
    mine = [path for path, pid in store_module._open_stores if pid == os.getpid()]
    assert len(mine) <= store_module.MAX_OPEN
    if Path("/proc/self/fd").exists():
        links = [os.readlink(f) for f in Path("/proc/self/fd").iterdir() if f.is_symlink()]
        assert sum(str(tmp_path) in link for link in links) <= 4 * store_module.MAX_OPEN
    assert read_all(VectorStore(tmp_path / "0"))[0].all()


WRITER = """
import sys, torch
from skcalib import BertEncoder, VectorStore
torch.set_num_threads(1)
folder, model, *texts = sys.argv[1:]
encoder = BertEncoder(model, memory=folder, batch_size=1).fit(texts)
print("ready", flush=True)
while True:
    try:
        encoder.transform(texts)
        VectorStore(folder).clear()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="no POSIX signals")
def test_interrupts_and_a_kill_while_encoding_leave_a_good_store(tiny_bert, texts, tmp_path):
    """The process goes on after SIGINT at any moment, ten times over, and then is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path), tiny_bert, *texts],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "ready\n"
        rng = np.random.default_rng(0)
        for _ in range(10):
            time.sleep(rng.uniform(0, 0.2))
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n", process.stderr.read()
    finally:
        process.kill()
        process.communicate(timeout=60)
    expected = BertEncoder(tiny_bert).fit_transform(texts)
    for _ in range(2):
        vector_cache._shelves.clear()
        vectors = BertEncoder(tiny_bert, memory=tmp_path).fit_transform(texts)
        assert_allclose(vectors, expected, rtol=1e-5, atol=1e-6)
    assert len(VectorStore(tmp_path)) == len(set(texts))
