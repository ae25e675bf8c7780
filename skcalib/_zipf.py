"""Token weights from the rank of a token in a frequency-sorted vocabulary.

The vocabularies of BERT and its relatives list special tokens and single characters first
and then words by falling frequency in the training corpus, so a token's id tells its
frequency rank without a corpus.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np

__all__ = ["zipf_weights"]

# How the tokenizer families mark pieces inside a word, or its beginning or end:
# WordPiece, byte-level BPE, SentencePiece, and the BPE of fastBPE.
PIECE_MARKS = ("##", "Ġ", "▁", "</w>", "@@")


def zipf_weights(tokens: Sequence[str], special_ids: Collection[int]) -> np.ndarray:
    """Weight ``log(1 + rank)`` of every token of a frequency-sorted vocabulary.

    The first whole word (two characters or more, markers of word pieces aside) has rank
    1. What comes before it, special tokens and the alphabet, has rank 0 and weighs nothing.

    Parameters
    ----------
    tokens : sequence of str
        The vocabulary, by token id.
    special_ids : collection of int
        Ids of special tokens; they weigh nothing wherever they stand.

    Returns
    -------
    weights : ndarray of shape (n_tokens,), float32
        Nats: ``-log`` of Zipf's frequency, up to a constant.

    Raises
    ------
    ValueError
        If the vocabulary does not look sorted by frequency: words begin only after more
        than a quarter of it (character vocabularies, such as that of bert-base-chinese,
        are in code-point order), or they stand in alphabetical order.
    """
    special = set(special_ids)
    first_word = next(
        (i for i, token in enumerate(tokens) if i not in special and _is_word(token)),
        len(tokens),
    )
    words = [t for t in tokens[first_word:] if _is_word(t)]
    ascending = np.mean([a < b for a, b in pairwise(words)] or [False])
    if first_word > len(tokens) // 4 or ascending > 0.9:
        raise ValueError(
            f"pooling='zipf' needs a vocabulary sorted by frequency. In this model's, of "
            f"{len(tokens)} tokens, the first whole word is number {first_word} and "
            f"{ascending:.0%} of the words follow alphabetical order. Use pooling='mean'."
        )
    rank = np.arange(len(tokens)) - (first_word - 1)
    weights = np.log1p(np.maximum(rank, 0))
    weights[list(special)] = 0.0
    return weights.astype(np.float32)


def _is_word(token: str) -> bool:
    if token.startswith(("[", "<")):  # [unused7], <mask>
        return False
    for mark in PIECE_MARKS:
        token = token.replace(mark, "")
    return len(token) > 1
