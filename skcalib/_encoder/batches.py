"""Texts through a model in batches: tokenise, sort by length, run, pool."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from skcalib._base import warn
from skcalib._encoder.backbone import Backbone
from skcalib._encoder.pooling import Pooler
from skcalib._encoder.tokens import tokenise

__all__ = ["BLOCK", "Encoded", "encode"]

# Texts tokenised and sorted together: enough that lengths repeat, few enough that their
# token ids never matter in memory.
BLOCK = 16384


class Encoded(NamedTuple):
    """Vectors of one batch."""

    rows: np.ndarray  # (b,) positions of its texts in the input
    vectors: np.ndarray  # (b, n_layers, n_primitives, d) float32
    n_tokens: np.ndarray  # (b, 3) numbers of tokens: pooled, the text's own, unknown ones
    truncated: np.ndarray  # (b,) bool
    kept: bool = True  # False if a store was to keep them and could not


def encode(
    backbone: Backbone,
    texts: Sequence[str],
    *,
    layers: Sequence[int],
    primitives: Sequence[str],
    max_length: int,
    skip: int = 0,
    batch_size: int | str = "auto",
) -> Generator[Encoded, None, None]:
    """Yield the pooled hidden states of ``texts``, batch by batch, in order of length.

    Layers count from 0 to `backbone.n_layers`. At most ``max_length`` tokens are kept of each
    text, special ones included; the first ``skip`` of them are not pooled. A batch holds
    ``batch_size`` texts; "auto" takes as many as make a number of tokens that suits the device.
    """
    limits: dict[str, Any] = {"max_texts": batch_size, "max_tokens": np.inf}
    if batch_size == "auto":
        limits = {"max_texts": BLOCK, "max_tokens": _token_budget(backbone)}
    mixed = backbone.forward.packed
    for start in range(0, len(texts), BLOCK):
        ids, truncated = tokenise(backbone.tokenizer, texts[start : start + BLOCK], max_length)
        for rows in _batches(np.array([len(i) for i in ids]), mixed=mixed, **limits):
            some = [ids[r] for r in rows.tolist()]
            vectors, n_tokens = _run(backbone, some, layers, primitives, skip)
            yield Encoded(start + rows, vectors, n_tokens, truncated[rows])


def _token_budget(backbone: Backbone) -> int:
    """Tokens of an automatic batch: enough to keep the matrix products busy."""
    if backbone.device.type == "cuda":
        # What fits into a quarter of the GPU's memory, where a token takes at most 64 times
        # its hidden state: inner layer, queries, keys, values and their scores.
        _, memory = torch.cuda.mem_get_info(backbone.device)
        return int(np.clip(memory // 4 // (64 * 4 * backbone.width), 4096, 65536))
    return 8192 if backbone.device.type == "mps" else 4096


def _batches(
    lengths: np.ndarray, *, max_texts: int, max_tokens: float, mixed: bool
) -> Iterator[np.ndarray]:
    """Rows of each batch, longest first, so that what does not fit into memory fails at once.

    Nothing is padded: unless ``mixed``, texts of different lengths do not go together. A text
    longer than ``max_tokens`` makes a batch of its own.
    """
    order = np.argsort(-lengths, kind="stable")
    lengths = lengths[order]
    ends = np.cumsum(lengths)
    start = 0
    while start < len(order):
        limit = ends[start] - lengths[start] + max_tokens
        stop = min(start + max_texts, int(np.searchsorted(ends, limit, "right")))
        if not mixed:
            stop = min(stop, int(np.searchsorted(-lengths, -lengths[start], "right")))
        stop = max(stop, start + 1)
        yield order[start:stop]
        start = stop


def _run(
    backbone: Backbone,
    ids: list[list[int]],
    layers: Sequence[int],
    primitives: Sequence[str],
    skip: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of a batch, (b, n_layers, n_primitives, d), and its numbers of tokens, (b, 3)."""
    try:
        return _run_at_once(backbone, ids, layers, primitives, skip)
    except torch.cuda.OutOfMemoryError:
        pass  # Its traceback keeps the tensors of the failed pass until `except` is left.
    message = f"Out of memory on {backbone.device} with {len(ids)} texts of up to "
    message += f"{max(map(len, ids))} tokens"
    if len(ids) == 1:
        raise MemoryError(f"{message}. Set a lower max_length, or device='cpu'.")
    warn(f"{message}; going on with half as many at a time. A smaller batch_size avoids this.")
    torch.cuda.empty_cache()
    half = len(ids) // 2
    halves = ids[:half], ids[half:]
    parts = [_run(backbone, some, layers, primitives, skip) for some in halves]
    vectors, n_tokens = zip(*parts, strict=True)
    return np.concatenate(vectors), np.concatenate(n_tokens)


def _run_at_once(
    backbone: Backbone,
    ids: list[list[int]],
    layers: Sequence[int],
    primitives: Sequence[str],
    skip: int,
) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.concatenate(ids)
    lengths = np.array([len(i) for i in ids])
    special = np.isin(tokens, backbone.added_ids)
    zipf = backbone.zipf[tokens] if "zipf" in primitives else None
    pooler = Pooler(lengths, special, zipf, primitives, backbone.device, skip)
    shape = (len(ids), len(layers), len(primitives), backbone.width)
    vectors = torch.empty(shape, device=backbone.device)

    def receive(layer: int, hidden: torch.Tensor) -> None:
        for i in np.flatnonzero(np.equal(layers, layer)):
            pooler(hidden, out=vectors[:, i])

    backbone.forward(tokens, lengths, layers, receive)
    is_unknown = tokens == backbone.tokenizer.unk_token_id
    n_unknown = np.add.reduceat(is_unknown, np.cumsum(lengths) - lengths, dtype=np.int64)
    return vectors.cpu().numpy(), np.column_stack([pooler.lengths, pooler.n_own, n_unknown])
