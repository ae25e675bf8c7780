"""Texts to token ids: of their beginnings, or of windows that cover them."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

# A text is cut before it is tokenized, after CHARACTERS for each token to keep, or later if
# this gives too few tokens. The last MARGIN tokens before the cut are not trusted: the cut may
# go through a word, of which WordPiece uses at most a hundred letters.
CHARACTERS, MARGIN = 16, 128
# The tokenizer needs about a hundred bytes for each character at once.
CHARACTERS_AT_ONCE = 2**22
PIECE = 2**18  # characters of a text that is read whole; a longer one is read in pieces

# One thread tokenizes at a time: a tokenizer keeps the truncation of its last call as state.
_lock = threading.Lock()


def tokenise(
    tokenizer: Any,
    texts: Sequence[str],
    max_length: int,
    *,
    prompt: str = "",
    stride: int | None = None,
) -> tuple[list[Any], np.ndarray, np.ndarray]:
    """Token ids of windows, the row of the text of each, and which texts are cut off.

    A window has at least one token and at most ``max_length``, the special ones and those of
    the prompt, which stands before each text, included. Without ``stride`` a text has one
    window, and only the beginning of a long text is read; with it, as many as cover the text,
    each sharing ``stride`` tokens with the one before. Rows have shape (n_windows,) and are in
    order; the last result has shape (n_texts,), bool.
    """
    texts = [_encodable(text) for text in texts]
    if stride is not None:
        ids, rows = _windows(tokenizer, texts, max_length, _encodable(prompt), stride)
        cut = np.zeros(len(texts), dtype=bool)
    else:
        texts = [prompt + text for text in texts] if prompt else texts
        ids, cut = _beginnings(tokenizer, texts, max_length)
        rows = np.arange(len(texts))
    # A text without any token, special ones included, gets one that is not a word.
    marks = tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id, 0
    nothing = [next(mark for mark in marks if mark is not None)]
    return [some if len(some) else nothing for some in ids], rows, cut


def _windows(
    tokenizer: Any, texts: Sequence[str], max_length: int, prompt: str, stride: int
) -> tuple[list[Any], np.ndarray]:
    """Token ids of the windows of texts, and the row of the text of each.

    Ids are split here, because only some tokenizers return what overflows, none with a prompt.
    """
    parts = [(row, piece) for row, text in enumerate(texts) for piece in _pieces(text)]
    step = max(1, CHARACTERS_AT_ONCE // max(len(piece) + 1 for _, piece in parts))
    empty, letter, alone = (_whole(tokenizer, [text])[0] for text in ("", "a", prompt))
    n_before = _n_shared(empty, letter)  # special tokens
    n_behind = len(empty) - n_before
    alone = alone[n_before : len(alone) - n_behind]
    windows: list[Any] = []
    rows: list[int] = []
    for start in range(0, len(parts), step):
        some = parts[start : start + step]
        whole = _whole(tokenizer, [prompt + piece for _, piece in some])
        for (row, _), ids in zip(some, whole, strict=True):
            if len(ids) <= max_length:
                windows.append(ids)
            else:
                # The last token of a prompt may be another one before a text.
                kept = _n_shared(alone, ids[n_before:])
                places = n_before + kept, len(ids) - n_behind
                windows += _split(np.array(ids), *places, max_length, stride)
            rows += [row] * (len(windows) - len(rows))
    return windows, np.array(rows)


def _split(
    ids: np.ndarray, start: int, stop: int, max_length: int, stride: int
) -> Iterator[np.ndarray]:
    """Yield windows of the ids from start to stop, each with what stands before and behind."""
    before, body, behind = ids[:start], ids[start:stop], ids[stop:]
    room = max_length - len(before) - len(behind)
    for i in range(0, len(body) - stride, room - stride):
        yield np.concatenate([before, body[i : i + room], behind])


def _n_shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Count the tokens at the beginning that are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _pieces(text: str) -> Iterator[str]:
    """Yield pieces of a text that can be tokenized at once, cut between words if possible."""
    start = 0
    while start + PIECE < len(text):
        stop = start + PIECE
        # The space goes to the next piece: some tokenizers count it to the word behind it.
        space = max(text.rfind(mark, start + PIECE // 2, stop) for mark in " \n")
        stop = stop if space < 0 else space
        yield text[start:stop]
        start = stop
    yield text[start:]


def _beginnings(
    tokenizer: Any, texts: Sequence[str], max_length: int
) -> tuple[list[list[int]], np.ndarray]:
    """Token ids of the beginning of each text, and whether it has more tokens."""
    size = CHARACTERS * (max_length + MARGIN)
    step = max(1, CHARACTERS_AT_ONCE // size)
    ids: list[list[int]] = []
    n_tokens: list[int] = []
    for start in range(0, len(texts), step):
        heads = [text[:size] for text in texts[start : start + step]]
        some, counts = _cut(tokenizer, heads, max_length)
        ids += some
        n_tokens += counts
    for i, text in enumerate(texts):
        head = size
        while head < len(text) and n_tokens[i] <= max_length + MARGIN:
            head *= 4  # many spaces, or a very long word
            (ids[i],), (n_tokens[i],) = _cut(tokenizer, [text[:head]], max_length)
    return ids, np.array(n_tokens) > max_length


def _cut(
    tokenizer: Any, texts: list[str], max_length: int
) -> tuple[list[list[int]], list[int]]:
    """Ids of at most ``max_length`` tokens of each text, and its total number of tokens."""
    ids = _whole(tokenizer, texts)
    n_tokens = [len(some) for some in ids]
    # Tokenize long texts again: if the tokenizer cuts them, they keep the last special token.
    if long := [i for i, n in enumerate(n_tokens) if n > max_length]:
        options = {"truncation": True, "max_length": max_length}
        cut = _whole(tokenizer, [texts[i] for i in long], **options)
        for i, some in zip(long, cut, strict=True):
            ids[i] = some
    return ids, n_tokens


def _whole(tokenizer: Any, texts: list[str], **options: Any) -> list[list[int]]:
    """Token ids of texts, special ones included."""
    options |= {"return_attention_mask": False, "return_token_type_ids": False}
    with _lock:
        return tokenizer(texts, verbose=False, **options)["input_ids"]


def _encodable(text: str) -> str:
    """Replace lone surrogates by U+FFFD: neither encodings nor tokenizers can express them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
