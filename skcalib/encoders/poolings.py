"""The table of poolings: how the hidden states of tokens become the vector of a text."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Pooling(NamedTuple):
    """How the hidden states of a text's tokens, (N, d), become one vector of d numbers.

    It selects one token, or takes a mean or a maximum. The windows of a text are combined
    likewise: means and first tokens by a weighted mean, maxima by the maximum; the last token
    is that of the last window.
    """

    # Weights of a mean from two arrays, of NumPy or torch: the place of each token, from 1 on,
    # and its Zipf weight. None means that all tokens count equally.
    weight: Callable[[Any, Any], Any] | None = None
    token: int | None = None  # the token that it selects: 0 or -1
    maximum: bool = False  # takes the maximum of each dimension
    own: bool = False  # special tokens do not count
    slot: str | None = None  # from which it is computed; None for the slot of its name
    by_root: bool = False  # divides a sum by the square root of its number of tokens
    # Whether the weight of a token depends only on its id, so that a table of words can hold
    # it.
    by_word: bool = False
    by_frequency: bool = False  # needs the frequency ranks of tokens
    # Whether a store of all poolings keeps it only for decoders, and for encoders that use it.
    of_decoders: bool = False
    st_names: tuple[str, str] | None = None  # in sentence-transformers: from 6 on, before


# In the order of the vectors on disk. A name with "_own" is without special tokens.
POOLINGS = {
    "cls": Pooling(token=0, st_names=("cls", "cls_token")),
    "mean": Pooling(by_word=True, st_names=("mean", "mean_tokens")),
    "max": Pooling(maximum=True, st_names=("max", "max_tokens")),
    "mean_own": Pooling(own=True, by_word=True),
    "max_own": Pooling(maximum=True, own=True),
    "zipf": Pooling(lambda place, zipf: zipf, own=True, by_word=True, by_frequency=True),
    "last": Pooling(token=-1, of_decoders=True, st_names=("lasttoken", "lasttoken")),
    "weighted_mean": Pooling(
        lambda place, zipf: place,
        of_decoders=True,
        st_names=("weightedmean", "weightedmean_tokens"),
    ),
    # Decoders attend to the first token where there is nothing to attend to. In inner layers
    # one of its coordinates is a thousand times the others, and would be all of a mean.
    "mean_without_first": Pooling(lambda place, zipf: place > 1, of_decoders=True),
    "mean_sqrt_len": Pooling(
        slot="mean", by_root=True, st_names=("mean_sqrt_len_tokens", "mean_sqrt_len_tokens")
    ),
}
SLOTS = {name: how for name, how in POOLINGS.items() if how.slot is None}
SLOT_OF = {name: how.slot or name for name, how in POOLINGS.items()}
