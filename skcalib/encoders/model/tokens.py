"""The tokenizer of a model: texts to token ids, cut off or in windows."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.utils import gen_batches

from skcalib.encoders.model.zipf import zipf_weights
from skcalib.process.forks import cached_property, fork_safe_lock

if TYPE_CHECKING:
    from skcalib.encoders.recipe import Recipe

TEXT = "{text}"  # stands for the text in a prompt

# A text is cut before it is tokenized, after CHARACTERS for each token to keep, or later if
# this gives too few tokens. The last MARGIN tokens may be those of a word that is cut.
CHARACTERS, MARGIN = 16, 128
# The tokenizer needs about a hundred bytes for each character at once.
CHARACTERS_AT_ONCE = 2**22

# The space of SentencePiece and of byte-level tokenizers, a token before an unknown word.
SPACES = "\N{LOWER ONE EIGHTH BLOCK}", "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}"
CONTINUES = "##"  # marks a token that continues a word, in WordPiece

# Their token ids show whether another release of transformers reads a tokenizer otherwise.
READ = (
    "It's 25.5 °C, isn't it?",
    "今天天气很好。",
    "👩‍🔬 Café!",
    "1234567890",
    "  two  spaces " * 9,
)

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
        # A text without any token, special ones included, gets one that is not a word.
        marks = tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id, 0
        self._nothing = [next(mark for mark in marks if mark is not None)]
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
        """Make token ids of texts in a prompt: all windows of each, or one that is cut."""
        parts, texts = [*map(_composed, around(recipe.prompt))], [*map(_composed, texts)]
        most, side = CHARACTERS * (recipe.max_length + MARGIN), recipe.truncation_side
        strings = texts if recipe.windows else [_some(text, most, side) for text in texts]
        step = max(1, CHARACTERS_AT_ONCE // (max(map(len, strings)) + 1))
        enough = recipe.max_length + MARGIN * (len(parts) - 1)
        windows: list[list[int]] = []
        second: list[Any] = []
        rows: list[int] = []
        cut = np.zeros(len(texts), dtype=bool)
        for batch in gen_batches(len(texts), step):
            of_batch = self._in_prompt(parts, strings[batch])
            for row, (ids, places) in enumerate(of_batch, batch.start):
                text, string = texts[row], strings[row]
                while len(string) < len(text) and len(ids) <= enough:
                    string = _some(text, 4 * len(string), side)  # many spaces, or a long word
                    [(ids, places)] = self._in_prompt(parts, [string])
                cut[row] = not recipe.windows and len(ids) > recipe.max_length
                for window, place in self._split(ids, places, recipe):
                    if (largest := max(window, default=0)) >= self.n_embedded:
                        raise ValueError(
                            f"The text {text!r:.60} has the token "
                            f"{self._names()[largest]!r}, which the model does not embed. "
                            "Leave it out, or save the model again after "
                            "resize_token_embeddings."
                        )
                    windows.append(window or self._nothing)
                    second.append(place)
                    rows.append(row)
        where, ends = np.array(rows), np.array(second) if len(parts) > 2 else None
        return Windows(windows, where, cut[where], ends)

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
        return self._encoded([_composed(text)])["input_ids"][0] or self._nothing

    def frame(self, prompt: str) -> Frame:
        """Tokens around each text: those of a prompt, and special ones."""
        if prompt not in self._frames:
            parts = [*map(_composed, around(prompt))]
            frame = self._frame_of_two(parts) if len(parts) > 2 else self._frame_of_one(*parts)
            if frame is None:
                raise ValueError(
                    f"The prompt {prompt!r:.60} has words that this model's tokenizer joins "
                    f"with those of a text. Put a space or a mark between {TEXT} and the words "
                    "around it."
                )
            self._frames[prompt] = frame
        return self._frames[prompt]

    @cached_property
    def reading(self) -> str:
        """Digest of the token ids of some fixed texts."""
        ids = [*map(self.ids_of, READ)]
        return hashlib.blake2b(repr(ids).encode(), digest_size=8).hexdigest()

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

    def _encoded(self, texts: list[str], **options: bool) -> Any:
        options |= {"return_attention_mask": False, "return_token_type_ids": False}
        with _lock:
            return self.tokenizer(texts, verbose=False, **options)

    def _in_prompt(
        self, parts: Sequence[str], texts: list[str]
    ) -> Iterator[tuple[list[int], Any]]:
        """Yield token ids of texts in a prompt, and where its two texts are, if it has two."""
        strings = [text.join(parts) for text in texts]
        encoded = self._encoded(strings, return_offsets_mapping=len(parts) > 2)
        offsets = encoded["offset_mapping"] if len(parts) > 2 else repeat(None)
        for text, ids, places in zip(texts, encoded["input_ids"], offsets, strict=False):
            yield ids, None if places is None else _occurrences(places, text, parts)

    def _frame_of_one(self, before: str, after: str) -> Frame | None:
        """Return the tokens around a text, or None if the tokenizer joins words after it."""
        examples = ["", "a", before, f"{before}a", f"{before}a{after}"]
        empty, letter, prefix, one, whole = self._encoded(examples)["input_ids"]
        n_special = len(empty) - _n_shared(empty, letter)  # after a text
        prefix, one = (ids[: len(ids) - n_special] for ids in (prefix, one))
        # The space before the text may belong to its first word.
        if before and prefix and self.tokenizer.convert_ids_to_tokens(prefix[-1]) in SPACES:
            prefix = prefix[:-1]
        if after and (one[: len(prefix)] != prefix or whole[: len(one)] != one):
            return None
        return Frame(prefix, whole[len(one) :])

    def _frame_of_two(self, parts: Sequence[str]) -> Frame | None:
        """Return the tokens around two texts, or None if the tokenizer joins words to them."""
        string = "a".join(parts)
        encoded = self._encoded([string], return_offsets_mapping=True)
        [ids], [offsets] = encoded["input_ids"], encoded["offset_mapping"]
        (start, stop), (again, end) = _occurrences(offsets, "a", parts)
        within = {string[i:j].strip() for i, j in offsets[start:stop] + offsets[again:end]}
        return Frame(ids[:start], ids[end:], ids[stop:again]) if within == {"a"} else None

    def _split(
        self, ids: list[int], places: Any, recipe: Recipe
    ) -> Iterator[tuple[list[int], Any]]:
        """Yield windows of a text in its prompt, and where its second text is in each, if any.

        Only some tokenizers return what overflows, none with a prompt.
        """
        most, whole = recipe.max_length, recipe.windows
        if len(ids) <= most:
            yield ids, places and places[1]
            return
        frame, of_end = self.frame(recipe.prompt), recipe.truncation_side == "left"
        if places:
            yield from _split_two(ids, places, most - frame.n, whole, of_end, frame)
            return
        before, after, _ = frame
        room, stop = most - len(before) - len(after), len(ids) - len(after)
        if not whole and of_end:
            yield before + ids[stop - room :], None
            return
        # In the first window a token may span the prompt and the first word; in the others the
        # prompt is tokenized alone.
        yield ids[: most - len(after)] + ids[stop:], None
        for i in range(len(before) + room, stop, room) if whole else ():
            yield before + ids[i : min(i + room, stop)] + ids[stop:], None


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


def _split_two(
    ids: list[int],
    places: list[tuple[int, int]],
    most: int,
    whole: bool,
    of_end: bool,
    frame: Frame,
) -> Iterator[tuple[list[int], tuple[int, int]]]:
    """Yield windows as `_split` does, with at most ``most`` tokens of the two texts in each."""
    first, second = (ids[start:stop] for start, stop in places)
    # The first word may have more tokens at one place than at the other, so tokens that both
    # have are counted from the end.
    surplus = len(first) - len(second)
    room = (most - min(max(surplus, 0), most - 2)) // 2
    n = max(len(second), 1)
    for begin in range(0, n, room) if whole else [n - room if of_end else 0]:
        piece = second[begin : begin + room]
        n_first = min(max(len(piece) + surplus, 0), most - len(piece))
        head = [*frame.before, *(piece if begin else first[:n_first]), *frame.between]
        yield [*head, *piece, *frame.after], (len(head), len(head) + len(piece))


def _some(text: str, n: int, side: str) -> str:
    """Return n characters of the beginning or of the end of a text."""
    return text[:n] if side == "right" else text[-n:]


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
