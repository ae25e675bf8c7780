"""Texts through a backbone in batches: tokenise, sort by length, run, pool."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from skcalib._backbone import Backbone
from skcalib._forks import fork_lock
from skcalib._interrupts import Call
from skcalib._pooling import Pooler, TokenBatch

__all__ = ["BLOCK", "Encoded", "encode"]

# Texts tokenised and sorted together: enough that lengths repeat, few enough that their
# token ids never matter in memory.
BLOCK = 16384
# Tokens of an automatic batch: what keeps the matrix products busy. A GPU needs more.
AUTO_TOKENS = {"cpu": 4096, "cuda": 32768, "mps": 8192}
# A text is tokenised up to this many characters for each token that is kept, further only if
# they give too few. MARGIN tokens before such a cut are not trusted to be those of the whole
# text: it may go through a word, of which WordPiece takes a hundred letters at most.
CHARACTERS, MARGIN = 16, 128
CHARACTERS_AT_ONCE = 2**22

# One thread tokenises at a time: a tokenizer keeps the truncation of its last call as state,
# and the environment variable below is the process's.
_tokenising = fork_lock()


class Encoded(NamedTuple):
    """Vectors of one batch."""

    rows: np.ndarray  # (b,) positions of its texts in the input
    vectors: np.ndarray  # (b, n_layers, n_primitives, d) float32
    n_tokens: np.ndarray  # (b, 2) numbers of tokens: attended, the text's own
    truncated: np.ndarray  # (b,) bool


def encode(
    backbone: Backbone,
    texts: Sequence[str],
    *,
    layers: Sequence[int],
    primitives: Sequence[str],
    max_length: int,
    batch_size: int | str = "auto",
    select: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Generator[Encoded, None, None]:
    """Yield the pooled hidden states of ``texts``, batch by batch, in order of length.

    Parameters
    ----------
    backbone : Backbone
    texts : sequence of str
    layers : sequence of int
        Indices from 0 to `backbone.n_layers`.
    primitives : sequence of str
        As `skcalib._pooling.Pooler` takes them.
    max_length : int
        Tokens kept of each text, special ones included.
    batch_size : int or "auto"
        Texts of a batch, or as many as make a fixed number of tokens.
    select : callable or None
        Called with the rows of each batch just before it is run; returns those to run.
    """
    starts = range(0, len(texts), BLOCK)

    def tokenised(start):
        return _tokenise(backbone.tokenizer, texts[start : start + BLOCK], max_length)

    # A GPU leaves the CPU idle; on the CPU itself there is nothing to win.
    blocks = (map if backbone.device.type == "cpu" else _one_ahead)(tokenised, starts)
    for start, (ids, truncated) in zip(starts, blocks, strict=True):
        lengths = np.array([len(i) for i in ids])
        for rows in _batches(lengths, batch_size, backbone):
            if select is not None:
                rows = select(start + rows) - start
                if not len(rows):
                    continue
            some = [ids[r] for r in rows.tolist()]
            vectors, n_tokens = _run(backbone, some, layers, primitives)
            yield Encoded(start + rows, vectors, n_tokens, truncated[rows])


def _one_ahead(function: Callable, items: Sequence) -> Iterator:
    """``map(function, items)``, the next result being worked on while one is used."""
    coming: Call | None = None
    try:
        for item in items:
            ready = [] if coming is None else [coming.result()]
            coming = Call(function, item).start()
            yield from ready
        if coming is not None:
            yield coming.result()
    finally:
        if coming is not None:
            coming.settle()


def _tokenise(tokenizer, texts, max_length) -> tuple[list[list[int]], np.ndarray]:
    """Token ids of each text, and whether it has more of them than are kept.

    Of a long text only the head is looked at, as tokens take a hundred bytes for each
    of their letters while they are made.
    """
    texts = [_encodable(text) for text in texts]
    size = CHARACTERS * (max_length + MARGIN)
    with _tokenising, _serial_tokenizers():
        ids, n_tokens = _ids(tokenizer, [text[:size] for text in texts], max_length)
        for i in [i for i, text in enumerate(texts) if len(text) > size]:
            head = size
            while head < len(texts[i]) and n_tokens[i] <= max_length + MARGIN:
                head *= 4  # spaces, or a word without end
                (ids[i],), (n_tokens[i],) = _ids(tokenizer, [texts[i][:head]], max_length)
    # A text without tokens, where none are added either, stands as one of padding.
    return [i or [tokenizer.pad_token_id or 0] for i in ids], n_tokens > max_length


def _ids(tokenizer, texts, max_length) -> tuple[list[list[int]], np.ndarray]:
    """Ids of at most ``max_length`` tokens of each text, and its number of tokens in all."""
    options = {
        "add_special_tokens": True,
        "padding": False,
        "return_attention_mask": False,
        "return_token_type_ids": False,
    }
    ids: list[list[int]] = []
    n_tokens = np.zeros(len(texts), dtype=np.int64)
    ends = np.cumsum([len(text) for text in texts]) // CHARACTERS_AT_ONCE
    for group in np.split(np.arange(len(texts)), np.flatnonzero(np.diff(ends)) + 1):
        some = [texts[i] for i in group.tolist()]
        found = tokenizer(some, truncation=True, max_length=max_length, **options)["input_ids"]
        n_tokens[group] = [len(i) for i in found]
        full = group[n_tokens[group] >= max_length]
        if len(full):  # of those that fill the window, which have more to say?
            some = [texts[i] for i in full.tolist()]
            whole = tokenizer(some, truncation=False, verbose=False, **options)["input_ids"]
            n_tokens[full] = [len(i) for i in whole]
        ids += found
    return ids, n_tokens


def _encodable(text: str) -> str:
    """Put U+FFFD for lone surrogates, which no encoding can express, nor any tokenizer."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


@contextlib.contextmanager
def _serial_tokenizers() -> Iterator[None]:
    """Keep the tokenizers library from starting threads.

    They would save little, tokenising takes a hundredth of the time, and the library warns
    and may deadlock when a process that has started them forks.
    """
    name = "TOKENIZERS_PARALLELISM"
    if name in os.environ:  # the user's choice stands
        yield
        return
    os.environ[name] = "false"
    try:
        yield
    finally:
        os.environ.pop(name, None)


def _batches(
    lengths: np.ndarray, batch_size: int | str, backbone: Backbone
) -> Iterator[np.ndarray]:
    """Rows of each batch, longest first, so that what does not fit into memory fails at once.

    Nothing is padded: texts of different lengths go together only where the model packs them.
    """
    order = np.argsort(-lengths, kind="stable")
    lengths = lengths[order]
    ends = np.cumsum(lengths)
    budget = AUTO_TOKENS[backbone.device.type]
    start = 0
    while start < len(order):
        if isinstance(batch_size, str):
            before = ends[start] - lengths[start]
            stop = max(start + 1, int(np.searchsorted(ends, before + budget, "right")))
        else:
            stop = start + batch_size
        if not backbone.packs:
            stop = min(stop, int(np.searchsorted(-lengths, -lengths[start], "right")))
        yield order[start:stop]
        start = stop


def _run(
    backbone: Backbone, ids: list[list[int]], layers: Sequence[int], primitives: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of a batch, (b, n_layers, n_primitives, d), and its numbers of tokens, (b, 2)."""
    try:
        return _run_at_once(backbone, ids, layers, primitives)
    except torch.OutOfMemoryError:
        if len(ids) == 1:
            raise
    # Outside of `except`, whose traceback would keep the tensors of the failed pass.
    warnings.warn(
        f"Out of memory on {backbone.device} with {len(ids)} texts of up to "
        f"{max(map(len, ids))} tokens; going on with half as many at a time. A smaller "
        "batch_size avoids this.",
        UserWarning,
        stacklevel=2,
    )
    torch.cuda.empty_cache()
    half = len(ids) // 2
    parts = [_run(backbone, some, layers, primitives) for some in (ids[:half], ids[half:])]
    vectors, n_tokens = zip(*parts, strict=True)
    return np.concatenate(vectors), np.concatenate(n_tokens)


def _run_at_once(backbone, ids, layers, primitives) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.concatenate(ids)
    lengths = np.array([len(i) for i in ids])
    zipf = backbone.zipf[tokens] if "zipf" in primitives else None
    batch = TokenBatch.of(lengths, np.isin(tokens, backbone.added_ids), zipf)
    pooler = Pooler(batch, primitives, backbone.device)
    pooled: dict[int, torch.Tensor] = {}

    def receive(layer, hidden):
        pooled[layer] = pooler(hidden)

    on_device = torch.from_numpy(tokens).to(backbone.device)
    backbone.hidden_states(on_device, lengths, set(layers), receive)
    vectors = torch.stack([pooled[layer] for layer in layers], dim=1).cpu().numpy()
    return vectors, np.column_stack([lengths, batch.n_own])
