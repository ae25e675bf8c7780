"""The store on a machine at its worst: full and read-only disks, damage, kills, clocks."""

import contextlib
import io
import itertools
import os
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import skcalib._store.database as database_module
import skcalib._store.vectors as vectors_module
from skcalib import BertEncoder, VectorStore
from skcalib._store.vectors import COUNTS, Space

SPACE = Space("f" * 64, 40, "float32", 4, (0, 1))
TEXTS = [f"text {i}" for i in range(12)]


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    vectors = {slot: rng.normal(size=(12, 4)).astype(np.float32) for slot in (0, 1)}
    return vectors | {COUNTS: np.arange(36).reshape(12, 3)}


@pytest.fixture
def filled(tmp_path, arrays, write_vectors):
    """Return a store of four blocks."""
    store = VectorStore(tmp_path / "store")
    for rows in np.array_split(np.arange(12), 4):
        some = {slot: array[rows] for slot, array in arrays.items()}
        write_vectors(store, SPACE, [TEXTS[i] for i in rows], some)
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


@pytest.fixture
def read_all(read_vectors):
    """Return a function that reads all texts."""
    return lambda store: read_vectors(store, SPACE, TEXTS, [0, COUNTS])


# Damage ----------------------------------------------------------------------------------


def test_no_flipped_byte_gives_a_wrong_vector_or_an_error(
    filled, arrays, read_all, write_vectors
):
    """Of pages of tables and indices, their text and their types, every 13th byte in use."""
    whole = filled._path.read_bytes()
    used = [i for i, byte in enumerate(whole) if byte]
    # The last byte of the third page, where the one row of the table of formats ends, says
    # which release wrote the file.
    release = 3 * 16384 - 1
    assert whole[release] == database_module.FORMAT
    healed = 0
    for i, mask in zip([release, *used[::13]], itertools.cycle((0x01, 0xFF))):
        damaged = bytearray(whole)
        damaged[i] ^= mask
        filled._path.write_bytes(damaged)
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
                write_vectors(filled, SPACE, [TEXTS[j] for j in missing], some)
        assert_array_equal(found[0], arrays[0][known], err_msg=f"byte {i}")
        assert_array_equal(found[COUNTS], arrays[COUNTS][known], err_msg=f"byte {i}")
        assert all("damaged" in str(w.message) for w in caught), [
            str(w.message) for w in caught
        ]
        assert len(caught) <= 2  # one block when read, and the file when written
        healed += bool(caught)
        for file in filled._path.parent.glob("*.damaged-*"):
            file.unlink()
    assert healed > 50


def test_a_space_that_an_index_has_lost_is_damage(filled, arrays, read_all, write_vectors):
    """Its row cannot be found, nor be written again."""
    damaged = bytearray(filled._path.read_bytes())
    damaged[4 * 16384 + 9] ^= 0xFF  # a cell pointer of the index of names
    filled._path.write_bytes(damaged)
    assert not read_all(filled)[0].any()
    with pytest.warns(UserWarning, match="is damaged .*put aside"):
        write_vectors(filled, SPACE, TEXTS, arrays)
    assert_array_equal(read_all(filled)[1][0], arrays[0])


def test_vectors_of_another_model_are_not_taken_for_those_of_this_one(
    filled, arrays, read_all, write_vectors
):
    """Names of spaces exchanged in the file, as one flipped bit could: 40 tokens are not 41."""
    other = SPACE._replace(max_length=41)
    write_vectors(filled, other, TEXTS[:3], {slot: -a[:3] for slot, a in arrays.items()})
    with sqlite3.connect(filled._path) as db:
        (mine,), (theirs,) = db.execute("SELECT name FROM spaces ORDER BY id").fetchall()
        db.execute("UPDATE spaces SET name = 'x' WHERE name = ?", (mine,))
        db.execute("UPDATE spaces SET name = ? WHERE name = ?", (mine, theirs))
    db.close()
    with pytest.warns(UserWarning, match="1 blocks .* are damaged"):
        known, _ = read_all(filled)
    assert not known.any()


def test_a_text_listed_twice_has_its_own_vector(filled, arrays, read_all, read_vectors):
    """In two blocks, of which the index names either."""
    with contextlib.closing(sqlite3.connect(filled._path)) as db:
        db.execute("INSERT INTO blocks SELECT 9, space, hashes FROM blocks WHERE id = 1")
        db.execute("INSERT INTO arrays SELECT 9, slot, crc, data FROM arrays WHERE block = 1")
        db.execute("UPDATE texts SET block = 9 WHERE block = 1 AND row = 1")
        db.commit()
    read_all(filled)
    known, found = read_vectors(filled, SPACE, TEXTS[::-1], [0])
    assert known.all()
    assert_array_equal(found[0], arrays[0][::-1])


def test_a_file_put_aside_by_another_process_is_let_go(filled, arrays, read_all, write_vectors):
    assert len(filled) == 12  # opens it
    os.replace(filled._path, filled._path.with_name("aside"))
    known, _ = read_all(filled)
    assert not known.any()
    write_vectors(filled, SPACE, TEXTS, arrays)
    assert len(filled) == 12


def test_a_newer_format_is_left_as_it_is(tmp_path, read_vectors):
    store = VectorStore(tmp_path)
    with sqlite3.connect(store._path) as db:
        db.execute("CREATE TABLE format (version INTEGER NOT NULL)")
        db.execute("INSERT INTO format VALUES (99)")
        db.execute("CREATE TABLE texts (other INTEGER)")
    db.close()
    before = store._path.read_bytes()
    for use in (
        lambda: read_vectors(store, SPACE, TEXTS, [0]),
        lambda: len(store),
        store.clear,
    ):
        with pytest.raises(ValueError, match=r"has format 99; this release .* reads format 2"):
            use()
    assert store._path.read_bytes() == before


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
def test_a_file_with_anything_else_in_it_is_put_aside(
    filled, arrays, statement, read_all, write_vectors
):
    with contextlib.closing(sqlite3.connect(filled._path)) as db:
        db.executescript(statement)
    with pytest.warns(UserWarning, match="is damaged .*put aside"):
        write_vectors(filled, SPACE, TEXTS, arrays)
    assert_array_equal(read_all(filled)[1][0], arrays[0])


def test_sizes_are_looked_at_before_a_value_is_read(filled, read_all):
    """Forged values of 50 MB, each in few bytes of SQL."""
    with contextlib.closing(sqlite3.connect(filled._path)) as db:
        db.execute("UPDATE arrays SET data = zeroblob(50000000) WHERE block = 1")
        db.execute("UPDATE blocks SET hashes = hashes || zeroblob(50000000) WHERE id = 2")
        db.execute("UPDATE arrays SET crc = 'a' || zeroblob(50000000) WHERE block = 3")
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
def test_links_and_pipes_are_not_opened(tmp_path, arrays, suffix, make, write_vectors):
    store = VectorStore(tmp_path)
    make(tmp_path / ("skcalib-vectors.sqlite" + suffix))
    with pytest.warns(UserWarning, match="could not be kept in .*a link or no file"):
        write_vectors(store, SPACE, TEXTS, arrays)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(os.name == "nt", reason="no file locks")
def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path, arrays, write_vectors):
    (tmp_path / "skcalib-vectors.lock").symlink_to(tmp_path / "elsewhere")
    write_vectors(VectorStore(tmp_path), SPACE, TEXTS, arrays)
    assert not (tmp_path / "elsewhere").exists()


# Locks that others hold ------------------------------------------------------------------

HOLDER = """
import sqlite3, sys
from filelock import FileLock
path, lock, kind = sys.argv[1:]
if kind == "write":
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
else:
    lock = FileLock(lock)
    lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["write", "open"])
def test_a_lock_that_is_not_given_back_is_waited_for_once(
    tiny_bert, texts, tmp_path, monkeypatch, kind
):
    monkeypatch.setattr(database_module, "WAIT", 3.0)
    store = VectorStore(tmp_path)
    encoder = BertEncoder(tiny_bert, memory=store, batch_size=1).fit(texts)
    expected = BertEncoder(tiny_bert, batch_size=1).fit_transform(texts)
    encoder.transform(texts[:1])
    lock = tmp_path / "skcalib-vectors.lock"
    command = [sys.executable, "-c", HOLDER, str(store._path), str(lock), kind]
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
        # Not a wait for each batch of both calls, of which there are twenty at least.
        assert time.monotonic() - start < 20 * database_module.WAIT
        other.communicate("")
    assert_allclose(encoder.transform(texts), expected, rtol=1e-5, atol=1e-6)
    assert len(store) == len(set(texts))  # kept again
    assert not database_module._given_up


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
    messages = [m for m in messages if "MB free" not in m]  # foreseen, on the smallest
    assert all("full" in m and "Free some space, or choose" in m for m in messages), messages
    assert 1 <= len(messages) <= 2  # once that it cannot be read, once that it cannot be kept
    for _ in range(2):  # a file half made does no harm
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Vectors could not be|.*MB free")
            assert_allclose(encoder.transform(texts), expected, rtol=1e-5, atol=1e-6)
    subprocess.run(["mount", "-o", "remount,size=20m", str(folder)], check=True, timeout=30)
    assert_allclose(encoder.transform(texts), expected, rtol=1e-5, atol=1e-6)
    assert len(VectorStore(folder)) == len(set(texts))


def test_a_read_only_disk_is_read(tiny_bert, texts, small_disk):
    folder = small_disk("20m")
    encoder = BertEncoder(tiny_bert, memory=folder).fit(texts)
    expected = encoder.transform(texts[:6])
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True, timeout=30)
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
    with store._path.open("r+b") as stream:
        stream.truncate(40_000)
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True, timeout=30)
    with pytest.warns(UserWarning, match="could not be read|damaged|could not be kept"):
        assert_allclose(encoder.transform(texts), expected, rtol=1e-5, atol=1e-6)


READ_ONLY = """
import sys, warnings, numpy as np
from skcalib import VectorStore
from skcalib._store.claims import claim_one
from skcalib._store.vectors import COUNTS, Space, Vectors
vectors = Vectors(VectorStore(sys.argv[1]), Space("f" * 64, 40, "float32", 4, (0, 1)))
found = vectors.read([f"text {i}" for i in range(12)], [0])
assert sorted(i for part in found for i in part.positions) == list(range(12))
out = np.empty((12, 4), np.float32)
for part in found:
    out[part.positions] = part.arrays[0]
np.save(sys.stdout.buffer, out)
new = {0: np.ones((1, 4)), 1: np.ones((1, 4)), COUNTS: np.ones((1, 3))}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    vectors.write(["new"], new)
assert ["could not be kept" in str(w.message) for w in caught] == [True], caught
shares = vectors.shares(["new"])
with claim_one(shares) as share:
    assert share.positions.tolist() == [0] and not shares
"""


@pytest.mark.parametrize("file_mode", [0o444, 0o644])
def test_a_folder_without_permission_to_write_is_read(filled, arrays, file_mode):
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
    assert_array_equal(np.load(io.BytesIO(done.stdout)), arrays[0])


# Time ------------------------------------------------------------------------------------


def test_a_clock_that_jumps_changes_nothing(tiny_bert, texts, tmp_path, monkeypatch):
    encoder = BertEncoder(tiny_bert, memory=tmp_path).fit(texts)
    expected = encoder.transform(texts)
    for seconds in (-(10**9), 0, 10**10):
        monkeypatch.setattr(time, "time", lambda s=seconds: float(s))
        monkeypatch.setattr(time, "time_ns", lambda s=seconds: s * 10**9)
        for file in tmp_path.iterdir():
            os.utime(file, (max(seconds, 0), max(seconds, 0)))
        assert_array_equal(encoder.transform(texts), expected)


def test_damaged_files_are_kept_apart_though_the_clock_stands_still(
    filled, monkeypatch, read_all
):
    monkeypatch.setattr(time, "time_ns", lambda: 7)
    for _ in range(2):
        filled._path.write_bytes(b"not a database at all, but long enough to be looked at" * 20)
        with pytest.warns(UserWarning, match="put aside"):
            read_all(filled)
    assert len(list(filled._path.parent.glob("*.damaged-*"))) == 2


# Interrupts and handles ------------------------------------------------------------------


@pytest.mark.parametrize("module", [database_module, vectors_module])
def test_an_interrupt_at_any_line_of_a_write_leaves_a_good_store(
    tmp_path, arrays, interrupt, module, read_all, write_vectors
):
    """Interrupted at line 1, 2, 3... of the module, until one write gets through."""

    def interrupted_at(n):
        store = VectorStore(tmp_path / str(n))
        write = lambda: write_vectors(store, SPACE, TEXTS, arrays)  # noqa: E731
        return store if interrupt(module, n, write) else None

    n = 0
    while (store := interrupted_at(n := n + 1)) is not None:
        some = {slot: array[:5] for slot, array in arrays.items()}
        write_vectors(store, SPACE, TEXTS[:5], some)  # nothing is locked
        known, found = read_all(store)
        assert known[:5].all()
        assert_array_equal(found[0], arrays[0][known], err_msg=f"line {n}")
    assert n > 20


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc here")
def test_no_file_stays_open(tiny_bert, texts, tmp_path):
    for _ in range(2):
        BertEncoder(tiny_bert, memory=tmp_path).fit_transform(texts)
        VectorStore(tmp_path).clear()
    links = [os.readlink(f) for f in Path("/proc/self/fd").iterdir() if f.is_symlink()]
    assert not [link for link in links if str(tmp_path) in link]


WRITER = """
import signal, sys, torch
from skcalib import BertEncoder, VectorStore
torch.set_num_threads(1)
folder, model, *texts = sys.argv[1:]
encoder = BertEncoder(model, memory=folder, batch_size=1).fit(texts)
armed = False

def interrupt(number, frame):
    # Another one must not come while the first is answered.
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, interrupt)
print("ready", flush=True)
while True:
    try:
        armed = True
        encoder.transform(texts)
        VectorStore(folder).clear()
        armed = False
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="no POSIX signals")
def test_interrupts_and_a_kill_while_encoding_leave_a_good_store(tiny_bert, texts, tmp_path):
    """The process goes on after SIGINT at any moment, ten times over, and then is killed."""

    def interrupt_until_it_answers():
        # Python itself drops an interrupt that comes within a finaliser or a callback of C.
        for _ in range(30):
            process.send_signal(signal.SIGINT)
            if select.select([process.stdout], [], [], 1.0)[0]:
                return process.stdout.readline()
        raise AssertionError("no answer to 30 interrupts")

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
            assert set(interrupt_until_it_answers().split()) == {"interrupted"}
    finally:
        process.kill()
        process.communicate(timeout=60)
    expected = BertEncoder(tiny_bert).fit_transform(texts)
    for _ in range(2):
        vectors = BertEncoder(tiny_bert, memory=tmp_path).fit_transform(texts)
        assert_allclose(vectors, expected, rtol=1e-5, atol=1e-6)
    assert len(VectorStore(tmp_path)) == len(set(texts))
