"""The tokenizer of a model: texts to token ids, cut off or in windows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from skcalib.encoders.model.zipf import zipf_weights
from skcalib.encoders.recipe import Recipe
from skcalib.process.forks import cached_property, fork_safe_lock

TEXT = "{text}"  # stands for the text in a prompt

# A text is cut before it is tokenized, after CHARACTERS for each token to keep, or later if
# this gives too few tokens. The last MARGIN tokens before the cut are not trusted: the cut may
# go through a word, of which WordPiece uses at most a hundred letters.
CHARACTERS, MARGIN = 16, 128
# The tokenizer needs about a hundred bytes for each character at once.
CHARACTERS_AT_ONCE = 2**22
PIECE = 2**18  # characters of a text that are tokenized at once, if all of it is read

# The space in vocabularies of SentencePiece and of byte-level tokenizers. Before an unknown
# word it is a separate token.
SPACES = "\N{LOWER ONE EIGHTH BLOCK}", "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}"
CONTINUES = "##"  # marks a token that continues a word, in WordPiece

LONGEST = 2**20  # most tokens of a text, for any model

# One thread tokenizes at a time: a tokenizer may keep settings of its last call as state.
_lock = fork_safe_lock()


def around(prompt: str) -> tuple[str, str]:
    """Return what a prompt puts before and after each text; before it without ``{text}``."""
    before, _, after = prompt.partition(TEXT)
    return before, after


class Windows(NamedTuple):
    """Token ids of n windows of texts; a text has one or more, in order."""

    ids: list[Any]
    rows: np.ndarray  # (n,) the text of each
    is_cut: np.ndarray  # (n,) whether a part of its text is in no window


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


class Tokens:
    """The tokenizer of a model, and the kinds of its tokens.

    Attributes
    ----------
    n_embedded : int
        Number of tokens that the model embeds. A text with any other token is refused.
    special_ids, added_ids, words, empty_ids : ndarray of int
        Special tokens, and tokens that the model does not embed; the same without the unknown
        token, which replaces a word of a text; all other tokens; tokens that are no content.
    unknown_id : int or None
        The token for words that are not in the vocabulary.
    """

    def __init__(self, tokenizer: Any, n_embedded: int):
        self.tokenizer, self.n_embedded = tokenizer, n_embedded
        around_text = self.ids_of("")
        if max(around_text) >= n_embedded:
            raise ValueError(
                f"its tokenizer puts the token number {max(around_text)} around each text, but "
                f"the model embeds {n_embedded} tokens. Save both to one folder again"
            )
        beyond = range(n_embedded, len(tokenizer))
        self.special_ids = np.array(sorted({*tokenizer.all_special_ids, *beyond}))
        # A decoder with a vocabulary for every word may name its end-of-text token here.
        unknown = tokenizer.unk_token_id
        self.unknown_id = None if unknown in around_text else unknown
        self.added_ids = self.special_ids[self.special_ids != self.unknown_id]
        self.empty_ids = empty_ids(tokenizer)
        self.words = np.setdiff1d(np.arange(len(tokenizer)), self.special_ids)
        if len(self.words) < 2:
            raise ValueError("its tokenizer has no vocabulary. Save it again")
        self._frames: dict[str, Frame] = {}

    def __len__(self) -> int:
        return len(self.tokenizer)

    def windows(self, texts: Sequence[str], recipe: Recipe) -> Windows:
        """Token ids of texts, in windows; refuse a token that the model does not embed."""
        windows = tokenize(
            self.tokenizer,
            texts,
            recipe.max_length,
            prompt=recipe.prompt,
            whole=recipe.windows,
            side=recipe.truncation_side,
        )
        for token, row in zip(map(max, windows.ids), windows.rows, strict=True):
            if token >= self.n_embedded:
                raise ValueError(
                    f"The text {texts[row]!r:.60} has the token {self._names()[token]!r}, "
                    "which the model does not embed. Leave it out, or save the model again "
                    "after resize_token_embeddings."
                )
        return windows

    def lack_content(self, windows: Windows, prompt: str) -> np.ndarray:
        """Which windows have no content between the tokens of a prompt."""
        frame, empty = self.frame(prompt), {*self.empty_ids.tolist()}
        return np.array([empty.issuperset(frame.inside(ids)) for ids in windows.ids])

    def ids_of(self, text: str) -> list[int]:
        """Token ids of a text, special ones included."""
        return tokenize(self.tokenizer, [text], LONGEST).ids[0]

    def frame(self, prompt: str) -> Frame:
        """Tokens around each text: those of a prompt, and special ones."""
        if prompt not in self._frames:
            self._frames[prompt] = frame_of(self.tokenizer, prompt)
        return self._frames[prompt]

    @cached_property
    def zipf(self) -> np.ndarray:
        """Zipf weight of every token id, of shape (vocabulary,), or a ValueError."""
        return zipf_weights(self._names(), self.special_ids.tolist())

    @property
    def has_zipf(self) -> bool:
        """Whether the vocabulary is sorted by frequency."""
        with suppress(ValueError):
            return self.zipf is not None
        return False

    @cached_property
    def marks_continuations(self) -> bool:
        """Whether tokens that continue a word are marked, rather than those that begin one."""
        tokens = self.tokenizer.get_vocab()
        # A vocabulary may have a few tokens with the marks of the other kind.
        n_continue, n_begin = (
            sum(token.startswith(mark) for token in tokens) for mark in (CONTINUES, SPACES)
        )
        return n_continue > n_begin

    def _names(self) -> list[str]:
        return self.tokenizer.convert_ids_to_tokens(list(range(len(self))))


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
    """Return the ids of tokens without content: special ones, the unknown one, a space."""
    spaces = tokenizer.convert_tokens_to_ids([*SPACES])
    return np.array(sorted({*tokenizer.all_special_ids, *spaces} - {None}), int)


def tokenize(
    tokenizer: Any,
    texts: Sequence[str],
    max_length: int,
    *,
    prompt: str = "",
    whole: bool = False,
    side: str = "right",
) -> Windows:
    """Make token ids of texts, in windows.

    A window has at least one token and at most ``max_length``, including special tokens and
    those of the prompt, which is around each text and tokenized together with it. If texts are
    read ``whole``, a text has as many windows as cover it, one after the other. Otherwise it
    has one, with the beginning of a long text, or with its end if ``side`` is "left".
    """
    before, after, *texts = map(_encodable, [*around(prompt), *texts])
    most = PIECE if whole else CHARACTERS * (max_length + MARGIN)
    step = max(1, CHARACTERS_AT_ONCE // min(most, max(map(len, texts)) + 1))
    pieces = (
        (row, piece)
        for row, text in enumerate(texts)
        for piece in (_pieces(text) if whole else [_some(text, most, side)])
    )
    frame = cache(lambda: frame_of(tokenizer, prompt))  # if a text is long
    windows: list[list[int]] = []
    rows: list[int] = []
    cut = np.zeros(len(texts), dtype=bool)
    while some := list(islice(pieces, step)):
        of_pieces = _ids_of(tokenizer, [before + piece + after for _, piece in some])
        for (row, piece), ids in zip(some, of_pieces, strict=True):
            if not whole:
                while len(piece) < len(texts[row]) and len(ids) <= max_length + MARGIN:
                    # Many spaces, or a very long word.
                    piece = _some(texts[row], 4 * len(piece), side)
                    [ids] = _ids_of(tokenizer, [before + piece + after])
                cut[row] = len(ids) > max_length
            windows += _split(ids, max_length, whole, side, frame)
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
    whole: bool,
    side: str,
    frame: Callable[[], Frame],
) -> list[list[int]]:
    """Windows of the ids of a text in its prompt: all, or that of its beginning or its end.

    They are split here, because only some tokenizers return what overflows, none with a prompt.
    """
    if len(ids) <= max_length:
        return [ids]
    before, after = frame()
    room, stop = max_length - len(before) - len(after), len(ids) - len(after)
    if not whole and side == "left":
        return [before + ids[stop - room :]]
    first = ids[: max_length - len(after)] + ids[stop:]
    if not whole:
        return [first]
    # The first window equals that of a text that is cut off. There a token may span the prompt
    # and the first word; in the others the prompt is tokenized alone.
    starts = range(len(before) + room, stop, room)
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
