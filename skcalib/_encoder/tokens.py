"""Texts to token ids."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["tokenise"]

# A text is tokenised up to this many characters for each token that is kept, further only if
# they give too few. MARGIN tokens before such a cut are not trusted to be those of the whole
# text: it may go through a word, of which WordPiece takes a hundred letters at most.
CHARACTERS, MARGIN = 16, 128
# A token takes a hundred bytes for each of its letters while it is made.
CHARACTERS_AT_ONCE = 2**22

# One thread tokenises at a time: a tokenizer keeps the truncation of its last call as state.
_lock = threading.Lock()


def tokenise(
    tokenizer: Any, texts: Sequence[str], max_length: int
) -> tuple[list[list[int]], np.ndarray]:
    """Token ids of each text, and whether it has more tokens than are kept.

    At most ``max_length`` tokens are kept, special ones included, and one at least. Of a long
    text only the head is looked at. The second result is of shape (n_texts,), bool.
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
                head *= 4  # spaces, or a word without end
                (ids[i],), (n_tokens[i],) = _ids(tokenizer, [text[:head]], max_length)
    # A text without tokens, where none are added either, stands as one that is no word.
    marks = tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id, 0
    nothing = [next(mark for mark in marks if mark is not None)]
    return [some or nothing for some in ids], np.array(n_tokens) > max_length


def _ids(
    tokenizer: Any, texts: list[str], max_length: int
) -> tuple[list[list[int]], list[int]]:
    """Ids of at most ``max_length`` tokens of each text, and its number of tokens in all."""
    options: dict[str, Any] = {"return_attention_mask": False, "return_token_type_ids": False}
    ids = tokenizer(texts, verbose=False, **options)["input_ids"]
    n_tokens = [len(some) for some in ids]
    # Tokenise again what is too long: cut by the tokenizer, it keeps its last special token.
    if long := [i for i, n in enumerate(n_tokens) if n > max_length]:
        options |= {"truncation": True, "max_length": max_length}
        cut = tokenizer([texts[i] for i in long], **options)["input_ids"]
        for i, some in zip(long, cut, strict=True):
            ids[i] = some
    return ids, n_tokens


def _encodable(text: str) -> str:
    """Put U+FFFD for lone surrogates, which no encoding can express, nor any tokenizer."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
