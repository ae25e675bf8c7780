"""`VectorStore`, the public face of a store of vectors."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from skcalib._store.database import Database, delete_all, give_back, size_on_disk
from skcalib._store.recent import RECENT

__all__ = ["POOLINGS", "VectorStore"]

POOLINGS = ("cls", "mean", "max", "mean_sqrt_len", "zipf")


class VectorStore:
    """Vectors of texts on disk, for `BertEncoder(memory=...)`.

    ``BertEncoder(memory=folder)`` makes one with the defaults. Make one yourself to bound its
    size, to store less of each text, or to see how much it holds.

    Parameters
    ----------
    location : path-like
        Folder; made when first written to.
    dtype : {"float32", "float16"}, default="float32"
        Precision on disk. float16 halves the size and rounds each entry to 11 bits. On
        MiniLM and STS-B that moves the cosine of raw vectors by at most 6e-5 and of whitened
        ones by at most 4e-4, and Spearman's rho by less than 0.01 points. Whiten such vectors
        with shrinkage or ``tol=1e-6``: rounding gives a little variance to directions that
        have none, which plain whitening would amplify.
    layers : tuple of int or None, default=None
        Hidden states to keep, counted as in `BertEncoder`. None keeps all, so that any
        choice of layers is read back. An encoder that asks for others is refused.
    poolings : tuple of str or None, default=None
        Poolings to keep, named as in `BertEncoder`, each with and without special tokens.
        None keeps all. An encoder that asks for another is refused.
    max_bytes : int or None, default=None
        Largest size of the store's file after each batch: the oldest vectors are deleted, never
        those of the batch. While a batch is written, a journal of about three batches comes on
        top. None sets no bound.

    Raises
    ------
    ValueError
        If `dtype` or `poolings` has another value.

    Notes
    -----
    A text takes ``n_layers * 6 * d * 4`` bytes: 64 kB for MiniLM (7 hidden states of 384
    dimensions), 240 kB for BERT-base (13 of 768). The six are the first token, and mean and
    maximum with and without special tokens, and the mean by Zipf's weights; every pooling
    follows from them. ``poolings=("mean",)`` keeps two of the six, which also give
    "mean_sqrt_len"; ``poolings=("cls",)`` or ``("zipf",)`` keeps one.

    Where the new texts of a call need more than the free disk, a warning says so before they
    are encoded, once for each store in a process.

    The file may be used by several processes at once, on a local disk: SQLite's locks do not
    work on every network file system. Each text is encoded by one process, while the others go
    on with other texts; the empty files beside the store are locks. The store holds
    numbers and hashes of texts, not the texts, and nothing in it can run code. A damaged file
    is made anew, with a warning; on a full disk, in a read-only folder, or while another
    process keeps the lock for a minute, vectors are computed but not stored, with a warning.
    Checksums find accidental damage only. Use a folder that you trust: who may write to it can
    forge vectors.

    Examples
    --------
    >>> import tempfile
    >>> from skcalib import BertEncoder, VectorStore
    >>> from skcalib.datasets import minilm_path
    >>> store = VectorStore(tempfile.mkdtemp())
    >>> encoder = BertEncoder(minilm_path(), memory=store).fit(["A dog barks."])
    >>> first = encoder.transform(["A dog barks.", "It rains."])
    >>> len(store)
    2
    >>> again = encoder.set_params(pooling="cls").fit_transform(["It rains."])  # no model run
    >>> store.clear()
    >>> len(store)
    0
    """

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        dtype: str = "float32",
        layers: tuple[int, ...] | None = None,
        poolings: tuple[str, ...] | None = None,
        max_bytes: int | None = None,
    ):
        if dtype not in ("float32", "float16"):
            raise ValueError(f"dtype={dtype!r}; it takes 'float32' or 'float16'.")
        if poolings is not None and (not poolings or not set(poolings) <= set(POOLINGS)):
            raise ValueError(
                f"poolings={poolings!r}; it takes a tuple of some of {POOLINGS}, or None."
            )
        self.location = location
        self.dtype = dtype
        self.layers = layers
        self.poolings = poolings
        self.max_bytes = max_bytes

    def __repr__(self) -> str:
        """Show how to make an equal one."""
        options = {"dtype": "float32", "layers": None, "poolings": None, "max_bytes": None}
        shown = [
            f"{k}={getattr(self, k)!r}" for k, v in options.items() if getattr(self, k) != v
        ]
        return f"VectorStore({', '.join([repr(str(self.location)), *shown])})"

    def __len__(self) -> int:
        """Return the number of texts, counted once per model and its settings."""
        if not self._path.exists():
            return 0
        with closing(Database(self._path)) as database:
            count = database.run(lambda db: db.execute("SELECT count(*) FROM texts").fetchone())
        return count[0]

    @property
    def n_bytes(self) -> int:
        """Size on disk in bytes."""
        return size_on_disk(self._path)

    def clear(self) -> None:
        """Forget all vectors and give the space on disk back."""
        with closing(Database(self._path)) as database:
            if self._path.exists():
                database.write(delete_all)
                database.run(give_back)
        RECENT.clear()

    @property
    def _path(self) -> Path:
        return Path(self.location).expanduser() / "skcalib-vectors.sqlite"
