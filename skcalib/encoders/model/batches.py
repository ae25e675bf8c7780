"""Encode texts in batches: tokenize, sort by length, run the model, pool."""

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from skcalib.base import warn
from skcalib.encoders.lookup import BLOCK, Model, Records
from skcalib.encoders.model.load import Backbone
from skcalib.encoders.model.pooling import Joined, Pooler
from skcalib.encoders.model.tokens import around
from skcalib.encoders.recipe import POOLINGS, Recipe, Slots
from skcalib.encoders.store import VectorStore

# Limits of a block of texts that are read in windows: the number of their characters, and the
# bytes of vectors that wait for other windows of their texts.
CHARACTERS, HELD = 2**20, 2**27


class BackboneModel(Model):
    """The `Model` of `lookup` for a backbone and a recipe."""

    def __init__(self, backbone: Backbone, recipe: Recipe):
        self._backbone, self._recipe, self._budget = backbone, recipe, token_budget(backbone)
        self.slots, self.width = recipe.slots, backbone.width
        self.key = recipe.slots_key, backbone.device

    def keep_in(self, store: VectorStore) -> None:
        """Compute all slots that a store keeps, too."""
        backbone, recipe = self._backbone, self._recipe
        self.slots = kept_slots(recipe, backbone, store)
        self.around = around(recipe.prompt)
        n_before, *n_later = map(len, self.around)
        name = [recipe.fingerprint, recipe.max_length, recipe.skip[0], backbone.precision]
        if recipe.truncation_side == "left":
            name += ["end", n_before] if n_before else ["end"]
        if recipe.windows:
            name += ["windows", 0, len(self.around[0].rstrip())]
        if any(n_later) or len(n_later) > 1:
            name += ["around", n_before, *n_later, recipe.skip[1]]
        self.name = "|".join(map(str, [*name, *self.slots.names]))
        self.reading = recipe.reading

    def cause(self) -> str:
        """Explain why an entry may not be finite, and what to do."""
        return (
            f"the model in {str(self._backbone.folder)!r} overflows dtype="
            f"{self._recipe.dtype!r} or the dtype of the VectorStore, or has weights that are "
            "not finite. Try dtype='float32'."
        )

    def encode(self, texts: Sequence[str]) -> Iterator[Records]:
        """Yield all slots of the texts, those of long texts first."""
        most, characters = BLOCK, np.inf
        if self._recipe.windows:
            most = int(np.clip(HELD // (8 * len(self.slots.names) * self.width), 1, BLOCK))
            characters = CHARACTERS
        # Blocks are tokenized and sorted together.
        for block in runs([len(text) for text in texts], most, characters):
            yield from self._encode_block(texts[block], block.start)

    def _encode_block(self, texts: Sequence[str], start: int) -> Iterator[Records]:
        """Yield the slots of texts; rows count from ``start``."""
        tokens = self._backbone.tokens
        windows = tokens.windows(texts, self._recipe)
        lack_content = tokens.lack_content(windows, self._recipe.prompt)
        ids, rows, is_cut, second = windows
        rows, has_windows = rows + start, len(rows) > len(texts)
        joined = Joined(rows, self.slots) if has_windows else None
        lengths = np.array([len(i) for i in ids])
        pending = deque(self._batches(lengths))
        while pending:
            batch = pending.popleft()
            try:
                places = None if second is None else second[batch]
                pooled = self._pool([ids[i] for i in batch.tolist()], places)
            except torch.cuda.OutOfMemoryError:
                pooled = None  # Leave `except` first: the traceback keeps the tensors.
            if pooled is None:
                self._make_room(lengths[batch])
                left = np.concatenate([batch, *pending])
                pending = deque(left[rows] for rows in self._batches(lengths[left]))
                continue
            vectors, counts, weights = pooled
            counts = np.column_stack([counts, is_cut[batch]]).astype(np.int32)
            empty = lack_content[batch]
            counts[empty, 2] = counts[empty, 1]  # all own tokens count as unknown
            if joined is None:
                yield Records(rows[batch], vectors, counts)
                continue
            yield from joined.add(batch, vectors, counts, weights)

    def _batches(self, lengths: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the windows of each batch, by their lengths."""
        longest = self._backbone.forward.longest_packed
        return batches(lengths, max_tokens=self._budget, longest_mixed=longest)

    def _pool(
        self, ids: list[list[int]], second: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return slots of B windows, numbers of tokens pooled, own and unknown, and weights."""
        backbone, slots, kinds = self._backbone, self.slots, self._backbone.tokens
        tokens, lengths = np.concatenate(ids), np.array([len(i) for i in ids])
        special = np.isin(tokens, kinds.added_ids)
        ranked = any(POOLINGS[name].by_frequency for name in slots.poolings)
        zipf = kinds.zipf[tokens] if ranked else None
        where = backbone.width, backbone.device, self._recipe.skip
        pooler = Pooler(lengths, special, zipf, slots, *where, second)
        backbone.forward(tokens, lengths, slots.layers, pooler.add)
        n_unknown = pooler.count(tokens == kinds.unknown_id)
        counts = np.column_stack([pooler.lengths, pooler.n_own, n_unknown])
        return pooler.vectors, counts, pooler.weights

    def _make_room(self, lengths: np.ndarray) -> None:
        """Halve the batches after one that did not fit; refuse one that cannot be halved."""
        amount = f"{len(lengths)} texts of up to {max(lengths)} tokens"
        message = f"Out of memory on {self._backbone.device} with {amount}"
        if len(lengths) == 1:
            raise MemoryError(f"{message}. Set a lower max_length, or device='cpu'.")
        warn(f"{message}; continuing with half as many at a time.")
        self._budget = int(lengths.sum()) // 2
        torch.cuda.empty_cache()


def kept_slots(recipe: Recipe, backbone: Backbone, store: VectorStore) -> Slots:
    """Return all slots that a store keeps, if those that a recipe needs are among them."""
    pooling, needed = recipe.pooling, list(recipe.layers)
    n_states = backbone.n_layers + 1
    kept_layers = range(n_states) if store.layers is None else store.layers
    layers = sorted({i + n_states if i < 0 else i for i in kept_layers})
    kept = {name for p in store._poolings for name in (p, f"{p}_own")}
    if pooling not in kept or not {*needed} <= {*layers} <= {*range(n_states)}:
        raise ValueError(
            f"The store keeps the hidden states {layers} with pooling={store.pooling!r}; this "
            f"encoder uses {needed} with {pooling!r}, and its model has 0 to "
            f"{backbone.n_layers}. Create a VectorStore with the layers and the pooling of the "
            "encoder, or without both."
        )
    rare = store.pooling is not None or POOLINGS[pooling].of_decoders or backbone.is_causal
    poolings = [
        name
        for name, how in POOLINGS.items()
        if name in kept
        and (rare or not how.of_decoders)
        and (backbone.tokens.has_zipf or not how.by_frequency)
    ]
    places = [layers.index(i) * len(poolings) + poolings.index(pooling) for i in needed]
    return Slots.of(layers, poolings, places)


def token_budget(backbone: Backbone) -> int:
    """Tokens of an automatic batch: enough for efficient matrix products."""
    if backbone.device.type == "cuda":
        # A batch may fill a quarter of the GPU's memory. A token needs at most 64 times the
        # memory of its hidden state.
        _, memory = torch.cuda.mem_get_info(backbone.device)
        return int(np.clip(memory // 4 // (64 * 4 * backbone.width), 4096, 65536))
    if backbone.device.type == "mps":
        return 8192
    # Inner layers of a wider model would leave the cache.
    return 4096 if backbone.width <= 384 else 2048


def batches(
    lengths: np.ndarray, *, max_tokens: float, longest_mixed: float
) -> Iterator[np.ndarray]:
    """Rows of each batch, longest first, so that a lack of memory shows at once.

    A batch with a text of more than ``longest_mixed`` tokens has only texts of its length.
    """
    order = np.argsort(-lengths, kind="stable")
    alike = np.where(lengths > longest_mixed, lengths, 0)[order]
    for group in np.split(order, np.flatnonzero(np.diff(alike)) + 1):
        for batch in runs(lengths[group], len(group), max_tokens):
            yield group[batch]


def runs(sizes: Sequence[int] | np.ndarray, most: int, total: float) -> Iterator[slice]:
    """Yield slices of at most ``most`` sizes and a sum of at most ``total``, or one size."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        limit = ends[start] - sizes[start] + total
        stop = min(start + most, int(np.searchsorted(ends, limit, "right")))
        yield slice(start, stop := max(stop, start + 1))
        start = stop
