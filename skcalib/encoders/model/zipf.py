"""Token weights from frequency ranks, by the order of the vocabulary.

The vocabularies of BERT and its relatives list special tokens and single characters first
and then words by decreasing frequency in the training corpus, so a token's id gives its
frequency rank without a corpus.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np


def zipf_weights(tokens: Sequence[str], special_ids: Collection[int]) -> np.ndarray:
    """Weight ``log(1 + rank)`` of every token of a frequency-sorted vocabulary, by id.

    The first whole word has rank 1; tokens before it and special tokens have weight 0. Words in
    alphabetical order, or of characters as in bert-base-chinese, are refused.
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
            "pooling='zipf' needs a vocabulary sorted by frequency. In the vocabulary of this "
            f"model, of {len(tokens)} tokens, the first whole word is number {first_word} and "
            f"{ascending:.0%} of the words follow alphabetical order. Use pooling='mean'."
        )
    rank = np.arange(len(tokens)) - (first_word - 1)
    weights = np.log1p(np.maximum(rank, 0))
    weights[list(special)] = 0.0
    return weights.astype(np.float32)


def _is_word(token: str) -> bool:
    if token.startswith(("[", "<")):  # [unused7], <mask>
        return False
    # Marks of pieces inside a word, or at its beginning or end, in WordPiece, byte-level BPE,
    # SentencePiece, and the BPE of fastBPE.
    for mark in ("##", "Ġ", "▁", "</w>", "@@"):
        token = token.replace(mark, "")
    return len(token) > 1
