"""Texts to token ids."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["tokenise"]

# A text is cut before it is tokenized, after CHARACTERS for each token to keep, or later if
# this gives too few tokens. The last MARGIN tokens before the cut are not trusted: the cut may
# go through a word, of which WordPiece uses at most a hundred letters.
CHARACTERS, MARGIN = 16, 128
# The tokenizer needs about a hundred bytes for each character at once.
CHARACTERS_AT_ONCE = 2**22

# One thread tokenizes at a time: a tokenizer keeps the truncation of its last call as state.
_lock = threading.Lock()


def tokenise(
    tokenizer: Any, texts: Sequence[str], max_length: int
) -> tuple[list[list[int]], np.ndarray]:
    """Token ids of each text, and whether it has more tokens than are kept.

    At most ``max_length`` tokens are kept, special ones included, and at least one. Only the
    beginning of a long text is read. The second result is of shape (n_texts,), bool.
    """
    texts = [_encodable(text) for text in texts]
    size = CHARACTERS * (max_length + MARGIN)
    step = max(1, CHARACTERS_AT_ONCE // size)
    ids: list[list[int]] = []
    n_tokens: list[int] = []
    with _lock:
        for start in range(0, len(texts), step):
            heads = [text[:size] for text in texts[start : start + step]]
            some, counts = _ids(tokenizer, heads, max_length)
            ids += some
            n_tokens += counts
        for i, text in enumerate(texts):
            head = size
            while head < len(text) and n_tokens[i] <= max_length + MARGIN:
                head *= 4  # many spaces, or a very long word
                (ids[i],), (n_tokens[i],) = _ids(tokenizer, [text[:head]], max_length)
    # A text without any token, special ones included, gets one that is not a word.
    marks = tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id, 0
    nothing = [next(mark for mark in marks if mark is not None)]
    return [some or nothing for some in ids], np.array(n_tokens) > max_length


def _ids(
    tokenizer: Any, texts: list[str], max_length: int
) -> tuple[list[list[int]], list[int]]:
    """Ids of at most ``max_length`` tokens of each text, and its total number of tokens."""
    options: dict[str, Any] = {"return_attention_mask": False, "return_token_type_ids": False}
    ids = tokenizer(texts, verbose=False, **options)["input_ids"]
    n_tokens = [len(some) for some in ids]
    # Tokenize long texts again: if the tokenizer cuts them, they keep the last special token.
    if long := [i for i, n in enumerate(n_tokens) if n > max_length]:
        options |= {"truncation": True, "max_length": max_length}
        cut = tokenizer([texts[i] for i in long], **options)["input_ids"]
        for i, some in zip(long, cut, strict=True):
            ids[i] = some
    return ids, n_tokens


def _encodable(text: str) -> str:
    """Replace lone surrogates by U+FFFD: neither encodings nor tokenizers can express them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
