"""Encode texts in batches: tokenize, sort by length, run the model, pool."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from skcalib.encoders.model.backbone import Backbone
from skcalib.encoders.model.pooling import Pooler
from skcalib.encoders.model.tokens import tokenise
from skcalib.encoders.model.windows import Joined
from skcalib.encoders.recipe import Recipe
from skcalib.encoders.sources import BLOCK, Model, Records
from skcalib.encoders.store.poolings import POOLINGS, SLOTS, slot_of
from skcalib.encoders.store.store import VectorStore
from skcalib.utils.base import warn

# Where texts are read whole, also the number of their characters, and of bytes that are held
# of those whose windows are not complete.
CHARACTERS, HELD = 2**20, 2**27


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
        slot = slot_of(recipe.pooling, recipe.special_tokens)
        self._layers, self._pooled = list(recipe.layers), [slot]
        if store is not None:
            self._layers, self._pooled = _kept(store, backbone, recipe, slot)
        self.slots = [f"{i} {name}" for i in self._layers for name in self._pooled]
        self.asked = [self.slots.index(f"{i} {slot}") for i in recipe.layers]
        self.width = backbone.width
        self.key = recipe, backbone.device
        self.prompt = recipe.prompt
        name = [backbone.fingerprint, recipe.max_length, recipe.skip, backbone.precision]
        if recipe.stride is not None:
            name += ["windows", recipe.stride, len(recipe.prompt)]
        self.name = "|".join(map(str, [*name, *self.slots]))
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
        backbone, recipe = self._backbone, self._recipe
        automatic = self._batch_size == "auto"
        limits: dict[str, Any] = {
            "max_texts": BLOCK if automatic else self._batch_size,
            "max_tokens": _token_budget(backbone) if automatic else np.inf,
            "longest_mixed": backbone.forward.longest_packed,
        }
        slots = [SLOTS[name] for name in self._pooled] * len(self._layers)
        for block in self._blocks(texts):
            ids, rows, cut = tokenise(
                *(backbone.tokenizer, texts[block], recipe.max_length),
                prompt=recipe.prompt,
                stride=recipe.stride,
            )
            backbone.check_embedded(ids, rows, texts[block])
            joined, n_seen = Joined(rows, slots), 0
            for batch in _batches(np.array([len(i) for i in ids]), **limits):
                for some, vectors, n_tokens, weights in self._run(ids, batch):
                    counts = np.column_stack([n_tokens, cut[rows[some]]]).astype(np.int32)
                    for done in joined.add(some, vectors, counts, weights):
                        yield done._replace(rows=block.start + done.rows)
                n_seen += len(batch)
                if len(rows) > len(texts[block]):  # a long text may take minutes
                    self.note(f"{n_seen:,} of {len(rows):,} windows")

    def _blocks(self, texts: Sequence[str]) -> Iterator[slice]:
        """Yield the texts that are tokenized and sorted together."""
        most, characters = BLOCK, np.inf
        if self._recipe.stride is not None:
            characters = CHARACTERS
            most = int(np.clip(HELD // (8 * len(self.slots) * self.width), 1, BLOCK))
        return _runs([len(text) for text in texts], most, characters)

    def merged(self, vectors: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Merge the layers of the recipe, (b, n_layers, d), into (b, n_features)."""
        if POOLINGS[self._recipe.pooling].by_root:
            n_tokens = counts[:, 0 if self._recipe.special_tokens else 1]
            vectors *= np.sqrt(n_tokens, dtype=np.float32)[:, None, None]
        if self._recipe.layer_merge == "mean":
            return vectors.mean(axis=1)
        n, n_layers, d = vectors.shape
        return vectors.reshape(n, n_layers * d)

    def _run(self, ids: list[Any], batch: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield windows of a batch, vectors, tokens, (b, 3), and weights, (b, n_slots)."""
        some = [ids[i] for i in batch.tolist()]
        try:
            found = self._run_at_once(some)
        except torch.cuda.OutOfMemoryError:
            found = None  # Leave `except` first: the traceback keeps the tensors of the pass.
        if found is not None:
            yield batch, *found
            return
        message = f"Out of memory on {self._backbone.device} with {len(some)} texts of up to "
        message += f"{max(map(len, some))} tokens"
        if len(some) == 1:
            raise MemoryError(f"{message}. Set a lower max_length, or device='cpu'.")
        message += "; continuing with half as many at a time. A smaller batch_size avoids this."
        warn(message)
        torch.cuda.empty_cache()
        for half in np.array_split(batch, 2):
            yield from self._run(ids, half)

    def _run_at_once(self, ids: list[Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        backbone, layers, slots = self._backbone, self._layers, self._pooled
        tokens = np.concatenate(ids)
        lengths = np.array([len(i) for i in ids])
        special = np.isin(tokens, backbone.added_ids)
        ranks = any(SLOTS[name].by_frequency for name in slots)
        zipf = backbone.zipf[tokens] if ranks else None
        skip = self._recipe.skip
        pooler = Pooler(lengths, special, zipf, slots, backbone.device, skip)
        shape = (len(ids), len(layers), len(slots), backbone.width)
        vectors = torch.empty(shape, device=backbone.device)

        def receive(layer: int, hidden: torch.Tensor) -> None:
            for i in np.flatnonzero(np.equal(layers, layer)):
                pooler(hidden, out=vectors[:, i])

        backbone.forward(tokens, lengths, layers, receive)
        is_unknown = tokens == backbone.unknown_id
        n_unknown = np.add.reduceat(is_unknown, np.cumsum(lengths) - lengths, dtype=np.int64)
        n_tokens = np.column_stack([pooler.lengths, pooler.n_own, n_unknown])
        weights = np.tile(pooler.weights, len(layers))
        return vectors.flatten(1, 2).cpu().numpy(), n_tokens, weights


def _kept(
    store: VectorStore, backbone: Backbone, recipe: Recipe, slot: str
) -> tuple[list[int], list[str]]:
    """Hidden states and slots of each that a store keeps; refuse it if some are missing."""
    n_states = backbone.n_layers + 1
    asked = range(n_states) if store.layers is None else store.layers
    states = sorted({i + n_states if i < 0 else i for i in asked})
    kept = {slot_of(p, special) for p in store._poolings for special in (True, False)}
    there = set(recipe.layers) <= set(states) <= set(range(n_states))
    if not there or slot not in kept:
        raise ValueError(
            f"The store keeps the hidden states {states} with pooling={store.pooling!r}; this "
            f"model has 0 to {backbone.n_layers}, and this encoder uses {list(recipe.layers)} "
            f"with {recipe.pooling!r}. Create a VectorStore with the layers and the pooling of "
            "the encoder, or leave both out."
        )
    all_kept = store.pooling is not None or SLOTS[slot].of_decoders or backbone.is_causal
    return states, [
        name
        for name, how in SLOTS.items()
        if name in kept
        and (all_kept or not how.of_decoders)
        and (backbone.has_zipf or not how.by_frequency)
    ]


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
    alike = np.where(lengths > longest_mixed, lengths, 0)[order]
    for group in np.split(order, np.flatnonzero(np.diff(alike)) + 1):
        for some in _runs(lengths[group], max_texts, max_tokens):
            yield group[some]


def _runs(sizes: Sequence[int] | np.ndarray, most: int, total: float) -> Iterator[slice]:
    """Slices of at most ``most`` sizes of at most ``total`` together, or of one larger size."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        limit = ends[start] - sizes[start] + total
        stop = min(start + most, int(np.searchsorted(ends, limit, "right")))
        yield slice(start, stop := max(stop, start + 1))
        start = stop
