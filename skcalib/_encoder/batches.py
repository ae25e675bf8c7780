"""Encode texts in batches: tokenize, sort by length, run the model, pool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from skcalib._base import warn
from skcalib._encoder.backbone import Backbone
from skcalib._encoder.pooling import PRIMITIVES, Pooler, primitive_of
from skcalib._encoder.recipe import Recipe
from skcalib._encoder.sources import Model, Records
from skcalib._encoder.tokens import tokenise
from skcalib._store.store import VectorStore

__all__ = ["BertModel"]

# Number of texts that are tokenized and sorted together: enough for lengths to repeat, few
# enough for their token ids to need little memory.
BLOCK = 16384


class BertModel(Model):
    """The `Model` of `sources` for a backbone and a recipe, with all slots of a store, if any.

    A batch holds ``batch_size`` texts; "auto" fills it up to a number of tokens that suits the
    device.
    """

    def __init__(
        self,
        backbone: Backbone,
        recipe: Recipe,
        batch_size: int | str = "auto",
        store: VectorStore | None = None,
    ):
        self._backbone, self._recipe, self._batch_size = backbone, recipe, batch_size
        primitive = primitive_of(recipe.pooling, recipe.special_tokens)
        self._layers, self._primitives = list(recipe.layers), [primitive]
        if store is not None:
            self._layers, self._primitives = _kept(store, backbone, recipe, primitive)
        self.slots = [f"{i} {p}" for i in self._layers for p in self._primitives]
        self.asked = [self.slots.index(f"{i} {primitive}") for i in recipe.layers]
        self.width = backbone.width
        self.key = recipe, backbone.device
        name = backbone.fingerprint, recipe.max_length, recipe.skip, backbone.precision
        self.name = "|".join(map(str, (*name, *self.slots)))
        self.not_finite = (
            f"the model in {str(backbone.folder)!r} overflows dtype={recipe.dtype!r} or the "
            "dtype of the VectorStore, or has weights that are not finite. Try dtype='float32'."
        )

    def answer(self, texts: Sequence[str]) -> Iterator[Records]:
        """Yield records with the vectors of the recipe."""
        for records in self.every(texts):
            yield records._replace(vectors=self.merged(records.vectors, records.counts))

    def every(self, texts: Sequence[str]) -> Iterator[Records]:
        """Yield records with the vectors of all slots, (b, n_slots, d), in order of length."""
        backbone = self._backbone
        limits: dict[str, Any] = {"max_texts": self._batch_size, "max_tokens": np.inf}
        if self._batch_size == "auto":
            limits = {"max_texts": BLOCK, "max_tokens": _token_budget(backbone)}
        limits["longest_mixed"] = backbone.forward.longest_packed
        for start in range(0, len(texts), BLOCK):
            block = texts[start : start + BLOCK]
            ids, truncated = tokenise(backbone.tokenizer, block, self._recipe.max_length)
            backbone.check_embedded(ids, block)
            for rows in _batches(np.array([len(i) for i in ids]), **limits):
                vectors, n_tokens = self._run([ids[r] for r in rows.tolist()])
                counts = np.column_stack([n_tokens, truncated[rows]]).astype(np.int32)
                yield Records(start + rows, vectors, counts)

    def merged(self, vectors: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Merge the layers of the recipe, (b, n_layers, d), into (b, n_features)."""
        if self._recipe.pooling == "mean_sqrt_len":
            n_tokens = counts[:, 0 if self._recipe.special_tokens else 1]
            vectors *= np.sqrt(n_tokens, dtype=np.float32)[:, None, None]
        if self._recipe.layer_merge == "mean":
            return vectors.mean(axis=1)
        n, n_layers, d = vectors.shape
        return vectors.reshape(n, n_layers * d)

    def _run(self, ids: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        """Vectors of a batch and its numbers of tokens, (b, 3)."""
        try:
            return self._run_at_once(ids)
        except torch.cuda.OutOfMemoryError:
            pass  # Leave `except` first: the traceback keeps the tensors of the failed pass.
        message = f"Out of memory on {self._backbone.device} with {len(ids)} texts of up to "
        message += f"{max(map(len, ids))} tokens"
        if len(ids) == 1:
            raise MemoryError(f"{message}. Set a lower max_length, or device='cpu'.")
        message += "; continuing with half as many at a time. A smaller batch_size avoids this."
        warn(message)
        torch.cuda.empty_cache()
        half = len(ids) // 2
        vectors, n_tokens = zip(*map(self._run, (ids[:half], ids[half:])), strict=True)
        return np.concatenate(vectors), np.concatenate(n_tokens)

    def _run_at_once(self, ids: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        backbone, layers, primitives = self._backbone, self._layers, self._primitives
        tokens = np.concatenate(ids)
        lengths = np.array([len(i) for i in ids])
        special = np.isin(tokens, backbone.added_ids)
        zipf = backbone.zipf[tokens] if "zipf" in primitives else None
        skip = self._recipe.skip
        pooler = Pooler(lengths, special, zipf, primitives, backbone.device, skip)
        shape = (len(ids), len(layers), len(primitives), backbone.width)
        vectors = torch.empty(shape, device=backbone.device)

        def receive(layer: int, hidden: torch.Tensor) -> None:
            for i in np.flatnonzero(np.equal(layers, layer)):
                pooler(hidden, out=vectors[:, i])

        backbone.forward(tokens, lengths, layers, receive)
        is_unknown = tokens == backbone.unknown_id
        n_unknown = np.add.reduceat(is_unknown, np.cumsum(lengths) - lengths, dtype=np.int64)
        n_tokens = np.column_stack([pooler.lengths, pooler.n_own, n_unknown])
        return vectors.flatten(1, 2).cpu().numpy(), n_tokens


def _kept(
    store: VectorStore, backbone: Backbone, recipe: Recipe, primitive: str
) -> tuple[list[int], list[str]]:
    """Hidden states and primitive vectors that a store keeps; refuse it if some are missing."""
    n_states = backbone.n_layers + 1
    asked = range(n_states) if store.layers is None else store.layers
    states = sorted({i + n_states if i < 0 else i for i in asked})
    kept = {primitive_of(p, own) for p in store._poolings for own in (True, False)}
    there = set(recipe.layers) <= set(states) <= set(range(n_states))
    if not there or primitive not in kept:
        raise ValueError(
            f"The store keeps the hidden states {states} with pooling={store.pooling!r}; this "
            f"model has 0 to {backbone.n_layers}, and this encoder uses {list(recipe.layers)} "
            f"with {recipe.pooling!r}. Create a VectorStore with the layers and the pooling of "
            "the encoder, or leave both out."
        )
    if not backbone.has_zipf:
        kept -= {"zipf"}
    later = {"last", "weighted_mean"}
    if store.pooling is None and primitive not in later and not backbone.is_causal:
        kept -= later
    return states, [p for p in PRIMITIVES if p in kept]


def _token_budget(backbone: Backbone) -> int:
    """Tokens of an automatic batch: enough for efficient matrix products."""
    if backbone.device.type == "cuda":
        # A batch may fill a quarter of the GPU's memory. A token needs at most 64 times the
        # memory of its hidden state: inner layer, queries, keys, values and their scores.
        _, memory = torch.cuda.mem_get_info(backbone.device)
        return int(np.clip(memory // 4 // (64 * 4 * backbone.width), 4096, 65536))
    if backbone.device.type == "mps":
        return 8192
    # Inner layers of a wider model would leave the cache.
    return 4096 if backbone.width <= 384 else 2048


def _batches(
    lengths: np.ndarray, *, max_texts: int, max_tokens: float, longest_mixed: float
) -> Iterator[np.ndarray]:
    """Rows of each batch, longest first, so that what does not fit into memory fails at once.

    Nothing is padded: a batch with a text of more than ``longest_mixed`` tokens has only texts
    of its length. A text longer than ``max_tokens`` is a batch of its own.
    """
    order = np.argsort(-lengths, kind="stable")
    lengths = lengths[order]
    ends = np.cumsum(lengths)
    start = 0
    while start < len(order):
        limit = ends[start] - lengths[start] + max_tokens
        stop = min(start + max_texts, int(np.searchsorted(ends, limit, "right")))
        if lengths[start] > longest_mixed:
            stop = min(stop, int(np.searchsorted(-lengths, -lengths[start], "right")))
        stop = max(stop, start + 1)
        yield order[start:stop]
        start = stop
