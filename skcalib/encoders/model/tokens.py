"""The tokenizer of a model: texts to token ids, cut off or in windows."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.utils import gen_batches

from skcalib.encoders.model.zipf import zipf_weights
from skcalib.process.forks import cached_property, fork_safe_lock

if TYPE_CHECKING:
    from skcalib.encoders.recipe import Recipe

TEXT = "{text}"  # stands for the text in a prompt

# A text is cut before it is tokenized, after CHARACTERS for each token to keep, or later if
# this gives too few tokens. The last MARGIN tokens before the cut are not trusted: the cut may
# go through a word, of which WordPiece uses at most a hundred letters.
CHARACTERS, MARGIN = 16, 128
# The tokenizer needs about a hundred bytes for each character at once.
CHARACTERS_AT_ONCE = 2**22

# The space in vocabularies of SentencePiece and of byte-level tokenizers. Before an unknown
# word it is a separate token.
SPACES = "\N{LOWER ONE EIGHTH BLOCK}", "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}"
CONTINUES = "##"  # marks a token that continues a word, in WordPiece

LONGEST = 2**20  # most tokens of a text, for any model

# One thread tokenizes at a time: a tokenizer may keep settings of its last call as state.
_lock = fork_safe_lock()


def around(prompt: str) -> tuple[str, ...]:
    """Return the parts of a prompt around a text, so that ``text.join(parts)`` is both."""
    return tuple(prompt.split(TEXT)) if TEXT in prompt else (prompt, "")


class Windows(NamedTuple):
    """Token ids of n windows of texts; a text has one or more, in order."""

    ids: list[Any]
    rows: np.ndarray  # (n,) the text of each
    is_cut: np.ndarray  # (n,) whether a part of its text is in no window
    # (n, 2) where the tokens of the second text begin and end; None if a prompt has one text.
    second: np.ndarray | None = None


class Frame(NamedTuple):
    """Ids of the tokens around each text: those of a prompt, and special ones."""

    before: list[int]
    after: list[int]
    between: Sequence[int] = ()  # two texts

    @property
    def n(self) -> int:
        """Number of tokens around a text."""
        return len(self.before) + len(self.between) + len(self.after)

    def inside(self, ids: list[int]) -> list[int]:
        """Tokens of a window between these; one may span the prompt and a word of the text."""
        n_before = _n_shared(self.before, ids)
        n_after = _n_shared(self.after[::-1], ids[::-1])
        return ids[n_before : len(ids) - n_after]


class Tokens:
    """The tokenizer of a model, and the kinds of its tokens, by their ids."""

    def __init__(self, tokenizer: Any, n_embedded: int):
        self.tokenizer, self.n_embedded = tokenizer, n_embedded
        # Special tokens, and those that the model does not embed: texts with these are refused.
        beyond = range(n_embedded, len(tokenizer))
        self.special_ids = np.array(sorted({*tokenizer.all_special_ids, *beyond}))
        # A decoder with a vocabulary for every word may name its end-of-text token here.
        unknown = tokenizer.unk_token_id
        self.unknown_id = None if unknown in self.ids_of("") else unknown
        # The unknown token replaces a word of a text.
        self.added_ids = self.special_ids[self.special_ids != self.unknown_id]
        spaces = tokenizer.convert_tokens_to_ids([*SPACES])
        self._empty_ids = {*tokenizer.all_special_ids, *spaces}  # tokens that are no content
        self.words = np.setdiff1d(np.arange(len(tokenizer)), self.special_ids)
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
        if windows.second is None:
            inside = [self.frame(prompt).inside(ids) for ids in windows.ids]
        else:
            pairs = zip(windows.ids, windows.second.tolist(), strict=True)
            inside = [ids[start:stop] for ids, (start, stop) in pairs]
        return np.array([*map(self._empty_ids.issuperset, inside)])

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
    """Return the tokens around each text; refuse words after it that the tokenizer joins."""
    parts = [*map(_composed, around(prompt))]
    if len(parts) > 2:
        return _frame_of_two(tokenizer, parts, prompt)
    before, after = parts
    examples = ["", "a", before, f"{before}a", f"{before}a{after}"]
    empty, letter, prefix, one, whole = _encoded(tokenizer, examples)["input_ids"]
    n_special = len(empty) - _n_shared(empty, letter)  # after a text
    prefix, one = (ids[: len(ids) - n_special] for ids in (prefix, one))
    # The space before the text may belong to its first word.
    if before and prefix and tokenizer.convert_ids_to_tokens(prefix[-1]) in SPACES:
        prefix = prefix[:-1]
    if after and (one[: len(prefix)] != prefix or whole[: len(one)] != one):
        raise _joins(prompt)
    return Frame(prefix, whole[len(one) :])


def _frame_of_two(tokenizer: Any, parts: Sequence[str], prompt: str) -> Frame:
    """Return the tokens around the two texts of a prompt."""
    if not tokenizer.is_fast:
        raise ValueError(
            f"The prompt {prompt!r:.60} has {TEXT} twice, which needs a fast tokenizer to find "
            "the second one. Save the model with a tokenizer.json, or give the text once."
        )
    letter = "a"
    encoded = _encoded(tokenizer, [letter.join(parts)], return_offsets_mapping=True)
    [ids], [offsets] = encoded["input_ids"], encoded["offset_mapping"]
    (start, stop), (again, end) = _occurrences(offsets, letter, parts)
    within = {
        letter.join(parts)[i:j].strip() for i, j in offsets[start:stop] + offsets[again:end]
    }
    if within != {letter}:
        raise _joins(prompt)
    return Frame(ids[:start], ids[end:], ids[stop:again])


def _joins(prompt: str) -> ValueError:
    return ValueError(
        f"The prompt {prompt!r:.60} has words that this model's tokenizer joins with those "
        f"of a text. Put a space or a mark between {TEXT} and the words around it."
    )


def _occurrences(
    offsets: Sequence[tuple[int, int]], text: str, parts: Sequence[str]
) -> list[tuple[int, int]]:
    """Where the tokens that overlap each of the two texts in a prompt begin and end."""
    starts, stops = np.array(offsets).reshape(-1, 2).T
    first = len(parts[0])
    places = []
    for begin in (first, first + len(text) + len(parts[1])):
        inside = np.flatnonzero((starts < begin + len(text)) & (stops > begin))
        places.append((int(inside[0]), int(inside[-1]) + 1) if len(inside) else (0, 0))
    return places


def tokenize(
    tokenizer: Any,
    texts: Sequence[str],
    max_length: int,
    *,
    prompt: str = "",
    whole: bool = False,
    side: str = "right",
) -> Windows:
    """Make token ids of texts, each in a prompt, in windows of 1 to ``max_length`` tokens.

    If texts are read ``whole``, a text has as many windows as cover it, one after the other.
    Otherwise it has one, with the beginning of a long text, or with its end if ``side`` is
    "left". A prompt with two texts has the same part of the text twice.
    """
    parts, texts = [*map(_composed, around(prompt))], [*map(_composed, texts)]
    most = CHARACTERS * (max_length + MARGIN)
    strings = [*texts] if whole else [_some(text, most, side) for text in texts]
    step = max(1, CHARACTERS_AT_ONCE // (max(map(len, strings)) + 1))
    frame = cache(lambda: frame_of(tokenizer, prompt))  # if a text is long
    enough = max_length + MARGIN * (len(parts) - 1)
    windows: list[list[int]] = []
    second: list[Any] = []
    rows: list[int] = []
    cut = np.zeros(len(texts), dtype=bool)
    for batch in gen_batches(len(texts), step):
        of_batch = _in_prompt(tokenizer, parts, strings[batch])
        for row, (ids, places) in enumerate(of_batch, batch.start):
            string = strings[row]
            while len(string) < len(texts[row]) and len(ids) <= enough:
                string = _some(texts[row], 4 * len(string), side)  # many spaces, or a long word
                [(ids, places)] = _in_prompt(tokenizer, parts, [string])
            cut[row] = not whole and len(ids) > max_length
            for window, place in _split(ids, places, max_length, whole, side, frame):
                windows.append(window)
                second.append(place)
                rows.append(row)
    # A text without any token, special ones included, gets one that is not a word.
    marks = tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id, 0
    nothing = [next(mark for mark in marks if mark is not None)]
    where, ends = np.array(rows), np.array(second) if len(parts) > 2 else None
    return Windows([ids or nothing for ids in windows], where, cut[where], ends)


def _some(text: str, n: int, side: str) -> str:
    """Return n characters of the beginning or of the end of a text."""
    return text[:n] if side == "right" else text[-n:]


def _encoded(tokenizer: Any, texts: list[str], **options: bool) -> Any:
    options |= {"return_attention_mask": False, "return_token_type_ids": False}
    with _lock:
        return tokenizer(texts, verbose=False, **options)


def _in_prompt(
    tokenizer: Any, parts: Sequence[str], texts: list[str]
) -> list[tuple[list[int], Any]]:
    """Token ids of texts in a prompt, and where its two texts are, if it has two."""
    strings = [text.join(parts) for text in texts]
    if len(parts) == 2:
        return [(ids, None) for ids in _encoded(tokenizer, strings)["input_ids"]]
    encoded = _encoded(tokenizer, strings, return_offsets_mapping=True)
    of_texts = zip(encoded["input_ids"], encoded["offset_mapping"], texts, strict=True)
    return [(ids, _occurrences(offsets, text, parts)) for ids, offsets, text in of_texts]


def _split(
    ids: list[int],
    places: Any,
    max_length: int,
    whole: bool,
    side: str,
    frame: Callable[[], Frame],
) -> Iterator[tuple[list[int], Any]]:
    """Yield windows of a text in its prompt, and where its second text is in each, if any.

    They are split here, because only some tokenizers return what overflows, none with a prompt.
    """
    if len(ids) <= max_length:
        yield ids, places and places[1]
        return
    before, after, _ = frame()
    if places:
        yield from _split_two(ids, places, max_length - frame().n, whole, side, frame())
        return
    room, stop = max_length - len(before) - len(after), len(ids) - len(after)
    if not whole and side == "left":
        yield before + ids[stop - room :], None
        return
    # In the first window a token may span the prompt and the first word; in the others the
    # prompt is tokenized alone.
    yield ids[: max_length - len(after)] + ids[stop:], None
    for i in range(len(before) + room, stop, room) if whole else ():
        yield before + ids[i : min(i + room, stop)] + ids[stop:], None


def _split_two(
    ids: list[int],
    places: list[tuple[int, int]],
    most: int,
    whole: bool,
    side: str,
    frame: Frame,
) -> Iterator[tuple[list[int], tuple[int, int]]]:
    """Yield windows as `_split` does, with at most ``most`` tokens of the two texts in each."""
    first, second = (ids[start:stop] for start, stop in places)
    # The first word may have more tokens at one place than at the other, so tokens that both
    # have are counted from the end.
    surplus = len(first) - len(second)
    room = (most - min(max(surplus, 0), most - 2)) // 2
    n = max(len(second), 1)
    for begin in range(0, n, room) if whole else [n - room if side == "left" else 0]:
        piece = second[begin : begin + room]
        n_first = min(max(len(piece) + surplus, 0), most - len(piece))
        head = [*frame.before, *(piece if begin else first[:n_first]), *frame.between]
        yield [*head, *piece, *frame.after], (len(head), len(head) + len(piece))


def _n_shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Count the tokens at the beginning that are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _composed(text: str) -> str:
    """Return the text in NFC; lone surrogates, which tokenizers refuse, become U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return unicodedata.normalize("NFC", text)
