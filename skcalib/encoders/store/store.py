"""`VectorStore`, the public class for a store of vectors."""

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from skcalib.compat import StrOptions, validate_parameter_constraints
from skcalib.encoders.poolings import POOLINGS
from skcalib.encoders.store.database import connect

CONSTRAINTS = {"dtype": [StrOptions({"float32", "float16"})]}


@dataclass(eq=False)
class VectorStore:
    """Vectors of texts on disk, for the parameter ``memory`` of `BertEncoder` or `TextEncoder`.

    ``memory=folder`` creates one with the defaults.

    Parameters
    ----------
    location : path-like
        Folder; the first write creates it. A relative path refers to the working directory at
        each call.
    dtype : {"float32", "float16"}, default="float32"
        Precision on disk. float16 halves the size and rounds each entry to 11 bits, which
        changes Spearman's rho on STS-B by less than 0.01 points (scores are times 100). Whiten
        such vectors with shrinkage or ``tol=1e-6``: rounding gives a little variance to
        directions that have none.
    layers : sequence of int or None, default=None
        Hidden states to keep, counted as in `BertEncoder`. None keeps all, so that any
        choice of layers can be read later. An encoder that needs others raises an error.
    pooling : str, sequence of str or None, default=None
        Poolings to keep, named as in `BertEncoder`; of "mean" and "max" also "_own". None
        keeps all, but "last", "weighted_mean" and "mean_without_first" only for decoders and
        encoders that use one of these. An encoder that needs another pooling raises an error.

    Raises
    ------
    ValueError
        If `dtype` or `pooling` has another value.

    Notes
    -----
    A text needs ``n_states * 6 * (4 * d + 32)`` bytes: 66 kB for MiniLM (7 hidden states of 384
    dimensions), 242 kB for BERT-base (13 of 768). The six vectors are the first token, the mean
    and the maximum with and without special tokens, and the Zipf-weighted mean. Of a decoder it
    is nine: 652 kB for SmolLM2-135M (31 of 576), so pass the ``layers`` that you will compare.
    ``pooling="mean"`` keeps two of them, which also give "mean_sqrt_len"; "cls" or "zipf" keeps
    one.

    Several processes may use the file at once if it is on a local disk. The page on reliability
    describes what happens to a damaged file and on a full disk. The store holds numbers and
    hashes of texts, not the texts, and nothing in it can run code. Use a folder that you trust:
    anyone who can write to it can forge vectors.

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

    location: str | os.PathLike[str]
    _: KW_ONLY
    dtype: str = "float32"
    layers: Sequence[int] | None = None
    pooling: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        dtype = {"dtype": self.dtype}
        validate_parameter_constraints(CONSTRAINTS, dtype, type(self).__name__)
        if not self._poolings or not set(self._poolings) <= set(POOLINGS):
            raise ValueError(
                f"The 'pooling' parameter of VectorStore must be {StrOptions(set(POOLINGS))}, "
                f"or several, or None. Got {self.pooling!r} instead."
            )

    def __len__(self) -> int:
        """Return the number of texts, counted once per model and its settings."""
        if not self._path.exists():
            return 0
        with closing(connect(self._path)) as db:
            return db.execute("SELECT count(*) FROM texts").fetchone()[0]

    @property
    def n_bytes(self) -> int:
        """Size of the file in bytes."""
        return self._path.stat().st_size if self._path.exists() else 0

    def clear(self) -> None:
        """Delete all vectors and free the disk space."""
        if self._path.exists():
            with closing(connect(self._path)) as db:
                db.executescript(
                    "BEGIN IMMEDIATE; DELETE FROM texts; DELETE FROM arrays;"
                    "UPDATE store SET id = randomblob(16); COMMIT; PRAGMA incremental_vacuum"
                )

    @property
    def _path(self) -> Path:
        return Path(self.location).expanduser().absolute() / "skcalib-vectors.sqlite"

    @property
    def _poolings(self) -> Sequence[str]:
        if self.pooling is None:
            return list(POOLINGS)
        return [self.pooling] if isinstance(self.pooling, str) else self.pooling
