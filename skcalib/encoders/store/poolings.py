"""The one table of poolings, free of torch: a new pooling is one entry of it."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Pooling(NamedTuple):
    """How the hidden states of a text's tokens, (N, d), become one vector of d numbers.

    It reads one token, or takes a mean, or else a maximum. Windows of a text join alike: means,
    and the first tokens, as means by their weights; maxima by the maximum; the last token is
    that of the last window.
    """

    # Weights of a mean from three arrays, of NumPy or torch: whether a token counts, its place
    # from 1 on, its Zipf weight. A mean divides by their sum.
    weight: Callable[[Any, Any, Any], Any] | None = None
    token: int | None = None  # the one that it reads: 0 or -1
    own: bool = False  # special tokens do not count
    slot: str | None = None  # the vector on disk that it is made of; None if its own
    by_root: bool = False  # divides a sum by the square root of its number of tokens
    # Whether the weight of a token depends on nothing but its id, as a table of words has it.
    by_word: bool = False
    by_frequency: bool = False  # needs the frequency ranks of tokens
    # Whether a store without a choice keeps it only for decoders, or if it is asked for.
    of_decoders: bool = False
    theirs: tuple[str, str] | None = None  # in sentence-transformers: from 6 on, and before


def _equal(counts: Any, place: Any, zipf: Any) -> Any:
    return counts * 1.0


def _by_place(counts: Any, place: Any, zipf: Any) -> Any:
    return counts * place


def _by_zipf(counts: Any, place: Any, zipf: Any) -> Any:
    return counts * zipf


# In the order of the vectors on disk. A name with "_own" is the pooling before it with
# ``special_tokens=False``.
_TABLE = {
    "cls": Pooling(token=0, theirs=("cls", "cls_token")),
    "mean": Pooling(_equal, by_word=True, theirs=("mean", "mean_tokens")),
    "max": Pooling(theirs=("max", "max_tokens")),
    "mean_own": Pooling(_equal, own=True, by_word=True),
    "max_own": Pooling(own=True),
    "zipf": Pooling(_by_zipf, own=True, by_word=True, by_frequency=True),
    "last": Pooling(token=-1, of_decoders=True, theirs=("lasttoken", "lasttoken")),
    "weighted_mean": Pooling(
        _by_place, of_decoders=True, theirs=("weightedmean", "weightedmean_tokens")
    ),
    "mean_sqrt_len": Pooling(
        slot="mean", by_root=True, theirs=("mean_sqrt_len_tokens", "mean_sqrt_len_tokens")
    ),
}
POOLINGS = {name: how for name, how in _TABLE.items() if not name.endswith("_own")}
SLOTS = {name: how for name, how in _TABLE.items() if how.slot is None}


def slot_of(pooling: str, special_tokens: bool) -> str:
    """Vector on disk that a pooling is made of."""
    slot = POOLINGS[pooling].slot or pooling
    return f"{slot}_own" if not special_tokens and f"{slot}_own" in SLOTS else slot
