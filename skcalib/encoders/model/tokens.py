"""Texts to token ids: of their beginnings, or of windows that cover them."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from skcalib.encoders.recipe import TEXT, around
from skcalib.process.forks import fork_safe_lock

# A text is cut before it is tokenized, after CHARACTERS for each token to keep, or later if
# this gives too few tokens. The last MARGIN tokens before the cut are not trusted: the cut may
# go through a word, of which WordPiece uses at most a hundred letters.
CHARACTERS, MARGIN = 16, 128
# The tokenizer needs about a hundred bytes for each character at once.
CHARACTERS_AT_ONCE = 2**22
PIECE = 2**18  # characters of a text that is read whole; a longer one is read in pieces

# The space in vocabularies of SentencePiece and of byte-level tokenizers. Before an unknown
# word it is a separate token.
SPACES = "\N{LOWER ONE EIGHTH BLOCK}", "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}"
CONTINUES = "##"  # marks a token that continues a word, in WordPiece

# One thread tokenizes at a time: a tokenizer may keep settings of its last call as state.
_lock = fork_safe_lock()


class Windows(NamedTuple):
    """Token ids of n windows of texts; a text has one or more, in order."""

    ids: list[Any]
    rows: np.ndarray  # (n,) the text of each
    is_cut: np.ndarray  # (n,) whether its text goes on where no window follows


class Frame(NamedTuple):
    """Ids of the tokens before and after each text: those of a prompt, and special ones."""

    before: list[int]
    after: list[int]

    @property
    def n(self) -> int:
        """Number of tokens around a text."""
        return len(self.before) + len(self.after)

    def inside(self, ids: list[int]) -> list[int]:
        """Tokens of a window between these; one may span the prompt and a word of the text."""
        n_before = _n_shared(self.before, ids)
        n_after = _n_shared(self.after[::-1], ids[::-1])
        return ids[n_before : len(ids) - n_after]


def frame_of(tokenizer: Any, prompt: str) -> Frame:
    """Return the tokens around each text; refuse a prompt whose words join those of a text.

    Only a prompt that ends with the text may do so. The space before the text may belong to its
    first word.
    """
    before, after = map(_encodable, around(prompt))
    some = ["", "a", before, f"{before}a", f"{before}a{after}"]
    empty, letter, prefix, one, whole = _ids_of(tokenizer, some)
    n_special = len(empty) - _n_shared(empty, letter)  # after a text
    prefix, one = (ids[: len(ids) - n_special] for ids in (prefix, one))
    if before and prefix and tokenizer.convert_ids_to_tokens(prefix[-1]) in SPACES:
        prefix = prefix[:-1]
    if after and (one[: len(prefix)] != prefix or whole[: len(one)] != one):
        raise ValueError(
            f"The prompt {prompt!r:.60} has words that this model's tokenizer joins with those "
            f"of a text. Put a space or a mark between {TEXT} and the words around it."
        )
    return Frame(prefix, whole[len(one) :])


def empty_ids(tokenizer: Any) -> np.ndarray:
    """Ids of tokens without content: special ones, the unknown one, single spaces."""
    spaces = tokenizer.convert_tokens_to_ids([*SPACES])
    return np.array(sorted({*tokenizer.all_special_ids, *spaces} - {None}), int)


def tokenize(
    tokenizer: Any,
    texts: Sequence[str],
    max_length: int,
    *,
    prompt: str = "",
    stride: int | None = None,
    side: str = "right",
) -> Windows:
    """Make token ids of texts, in windows.

    A window has at least one token and at most ``max_length``, including special tokens and
    those of the prompt, which is around each text and tokenized together with it. Without
    ``stride`` a text has one window, with the beginning of a long text, or its end if ``side``
    is "left". With ``stride`` it has as many windows as cover the text, each sharing ``stride``
    tokens with the one before.
    """
    before, after, *texts = map(_encodable, [*around(prompt), *texts])
    most = CHARACTERS * (max_length + MARGIN) if stride is None else PIECE
    step = max(1, CHARACTERS_AT_ONCE // min(most, max(map(len, texts)) + 1))
    pieces = (
        (row, piece)
        for row, text in enumerate(texts)
        for piece in ([_some(text, most, side)] if stride is None else _pieces(text))
    )
    frame = cache(lambda: frame_of(tokenizer, prompt))  # if a text is long
    windows: list[list[int]] = []
    rows: list[int] = []
    cut = np.zeros(len(texts), dtype=bool)
    while some := list(islice(pieces, step)):
        whole = _ids_of(tokenizer, [before + piece + after for _, piece in some])
        for (row, piece), ids in zip(some, whole, strict=True):
            if stride is None:
                while len(piece) < len(texts[row]) and len(ids) <= max_length + MARGIN:
                    # Many spaces, or a very long word.
                    piece = _some(texts[row], 4 * len(piece), side)
                    [ids] = _ids_of(tokenizer, [before + piece + after])
                cut[row] = len(ids) > max_length
            windows += _split(ids, max_length, stride, side, frame)
            rows += [row] * (len(windows) - len(rows))
    # A text without any token, special ones included, gets one that is not a word.
    marks = tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id, 0
    nothing = [next(mark for mark in marks if mark is not None)]
    where = np.array(rows)
    return Windows([ids or nothing for ids in windows], where, cut[where])


def _some(text: str, n: int, side: str) -> str:
    """Return n characters of the beginning or of the end of a text."""
    return text[:n] if side == "right" else text[-n:]


def _ids_of(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    """Token ids of texts, special ones included."""
    options = {"return_attention_mask": False, "return_token_type_ids": False}
    with _lock:
        return tokenizer(texts, verbose=False, **options)["input_ids"]


def _split(
    ids: list[int],
    max_length: int,
    stride: int | None,
    side: str,
    frame: Callable[[], Frame],
) -> list[list[int]]:
    """Windows of the ids of a text in its prompt; without ``stride`` its beginning or its end.

    They are split here, because only some tokenizers return what overflows, none with a prompt.
    """
    if len(ids) <= max_length:
        return [ids]
    before, after = frame()
    room, stop = max_length - len(before) - len(after), len(ids) - len(after)
    if stride is None and side == "left":
        return [before + ids[stop - room :]]
    first = ids[: max_length - len(after)] + ids[stop:]
    if stride is None:
        return [first]
    # The first window equals that of a text that is cut off. There a token may span the prompt
    # and the first word; in the others the prompt is tokenized alone.
    starts = range(len(before) + room - stride, stop - stride, room - stride)
    return [first] + [before + ids[i : min(i + room, stop)] + ids[stop:] for i in starts]


def _n_shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Count the tokens at the beginning that are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _pieces(text: str) -> Iterator[str]:
    """Yield pieces of a text that can be tokenized at once, cut between words if possible."""
    start = 0
    while start + PIECE < len(text):
        stop = start + PIECE
        # The space goes to the next piece: some tokenizers add it to the word after it.
        space = max(text.rfind(mark, start + PIECE // 2, stop) for mark in " \n")
        stop = stop if space < 0 else space
        yield text[start:stop]
        start = stop
    yield text[start:]


def _encodable(text: str) -> str:
    """Replace lone surrogates by U+FFFD: neither encodings nor tokenizers can express them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
