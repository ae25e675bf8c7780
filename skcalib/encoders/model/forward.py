"""The forward pass: tokens in, hidden states out, one layer at a time."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch

from skcalib.encoders.model.packed_attention import NAME, PackedRow, packed_attention
from skcalib.encoders.model.packed_linear import pack_linears
from skcalib.encoders.model.packed_positions import parts_that_give_way
from skcalib.utils.torch_compat import attention_of

# Tokens of a text that proves how a model attends: enough for the windows of most encoders.
LONGEST_PROOF = 520


class _LastLayerReached(Exception):
    """Ends a forward pass early."""


class ForwardPass:
    """Runs a model in the fastest way that gives the right hidden states.

    A way is right if it reproduces the plain forward pass on three texts. Not every way does:
    layers may not be the blocks of a model, and texts may attend to other texts of a row, or
    even of a batch. ``texts`` holds the token ids of the three, the last two of equal length,
    and ``states`` the hidden states, (n_layers + 1, length, d), that each text has alone. The
    module is changed in place.

    Attributes
    ----------
    longest_packed : float
        Texts of up to this number of tokens are laid end to end in one row; a batch of longer
        ones holds texts of one length.
    hooked : bool
        Hooks read the inputs of blocks, so that the pass can end early; otherwise the model
        returns all hidden states.
    """

    def __init__(
        self,
        module: Any,
        texts: Sequence[np.ndarray],
        states: Sequence[torch.Tensor],
        *,
        causal: bool,
    ):
        self.module = module
        self.device = torch.device("cpu")
        self._n_layers = len(states[0]) - 1
        self._padding = first_position(module) - 1
        self._autocast: torch.dtype | None = None
        self._causal = causal
        # One pass at a time: torch parallelizes inside it, and the hooks serve one caller.
        self._lock = threading.Lock()
        lists = (part for part in module.modules() if isinstance(part, torch.nn.ModuleList))
        # A model that reuses one block, such as ALBERT, has no such list.
        self._blocks = next((part for part in lists if len(part) == self._n_layers), ())
        self._usual = self._attention = attention_of(module)
        self._parts = parts_that_give_way(module)
        faults = []
        # Windows longer than the first text are not proved. Some begin at half their length.
        unproved = min((n for n in _windows(module) if n >= len(texts[0])), default=np.inf)
        longest = max(unproved / 2, len(texts[0]))
        packings = (longest, 0) if self._usual else (0,)  # fastest first
        for longest, self.hooked in product(packings, (True, False)):
            try:
                # Where some texts are packed and others are not, both ways must be right.
                for self.longest_packed in (0, longest) if 0 < longest < np.inf else (longest,):
                    self.check(texts, states, tolerance=1e-4)
                if self.longest_packed:
                    self._check_rows(texts[0], states[0])
                return
            except Exception as error:  # any kind, if the model does not accept the arguments
                faults.append(in_short(error))
        raise ValueError(
            "its hidden states of a text depend on other texts or on chance. Each way to run "
            f"it failed: {'; '.join(dict.fromkeys(faults))}"
        )

    def _attend_by(self, attention: str | None) -> None:
        if attention == self._attention:
            return
        if attention_of(self.module) != attention:
            from transformers import AttentionInterface  # not in old releases

            AttentionInterface.register(NAME, packed_attention)
            self.module.set_attn_implementation(attention)
        for part, *classes in self._parts:
            part.__class__ = classes[attention == NAME]
        self._attention = attention

    def _check_rows(self, text: np.ndarray, states: torch.Tensor) -> None:
        """Refuse a model that uses a row as a whole, which a few short texts do not show."""
        if by_longest(self.module):
            raise ValueError(
                "rotations of rope_type='longrope' depend on the longest text of a row"
            )
        # Some models refuse a row with more tokens than positions, already when embedding it.
        n_positions = max(0, getattr(self.module.config, "max_position_embeddings", None) or 0)
        if not self.hooked and n_positions > 4096:
            raise ValueError("without hooks a row as long as its positions takes too long")
        n_texts = min(n_positions, 2**16) // len(text) + 1
        self.check([text] * n_texts, [states[:1]] * n_texts, tolerance=1e-4)

    def check(
        self, texts: Sequence[np.ndarray], states: Sequence[torch.Tensor], *, tolerance: float
    ) -> None:
        """Raise a ValueError unless texts that are run together get these hidden states.

        ``states`` holds those of the first layers, or of all. An entry may deviate by
        ``tolerance`` times the largest entry of its text.
        """
        layers = range(len(states[0]))
        found: list[torch.Tensor] = []
        for batch in [texts] if self.longest_packed else [texts[:1], texts[1:]]:
            lengths = np.array([len(text) for text in batch])
            kept: dict[int, torch.Tensor] = {}
            self(np.concatenate(batch), lengths, layers, kept.__setitem__)
            stacked = torch.stack([kept[layer] for layer in layers]).float().cpu()
            found += stacked.split(lengths.tolist(), dim=1)
        for f, e in zip(found, states, strict=True):
            atol = tolerance * e.nan_to_num(0, 0, 0).abs().max().item()
            if not torch.allclose(f, e, rtol=0, atol=atol, equal_nan=True):
                raise ValueError(
                    "its hidden states differ from those of a text alone with dtype='float32'"
                )

    def prepare(self, device: torch.device, dtype: torch.dtype) -> None:
        """Move the model to a device, for matrix products in ``dtype``."""
        # bfloat16 has the range of float32, so hidden states stay in it between the products.
        # float16 could overflow, models that are not packed create float32 themselves, and
        # decoders and models with windows or relative positions lose digits.
        config = self.module.config
        n_heads = getattr(config, "num_attention_heads", None)
        grouped = getattr(config, "num_key_value_heads", n_heads) != n_heads
        plain = not (self._causal or grouped or self._parts or _windows(self.module))
        throughout = dtype == torch.bfloat16 and self.longest_packed > 0 and plain
        for part in self.module.modules():
            if throughout or isinstance(part, torch.nn.Linear):
                for parameter in part.parameters(recurse=False):
                    parameter.data = parameter.data.to(dtype)
        self.module.to(device)
        self.device = device
        prepacked = device.type == "cpu" and pack_linears(self.module, dtype)
        if not (throughout or prepacked or dtype == torch.float32):
            self._autocast = dtype

    def __call__(
        self,
        ids: np.ndarray,
        lengths: np.ndarray,
        layers: Collection[int],
        receive: Callable[[int, torch.Tensor], None],
    ) -> None:
        """Call ``receive(layer, hidden)`` with hidden states of shape (N, d) of some layers.

        Layers count from 0, the output of the embedding layer. The model stops after the last
        of them. ``ids``, of shape (N,), holds the token ids of B texts, one after the other,
        grouped by length; if one is longer than ``longest_packed``, all have its length.
        """
        last = max(layers)

        def visit(layer: int, hidden: torch.Tensor) -> None:
            if layer in layers:
                receive(layer, hidden.reshape(len(ids), -1))
            if layer == last:
                raise _LastLayerReached

        def show(layer: int, block: Any, args: tuple, kwargs: dict) -> None:
            visit(layer, args[0] if args else kwargs["hidden_states"])

        with (
            self._lock,
            torch.inference_mode(),
            torch.autocast(
                self.device.type, self._autocast, enabled=self._autocast is not None
            ),
            contextlib.suppress(_LastLayerReached),
            contextlib.ExitStack() as hooks,
        ):
            # The input of block i is hidden state i.
            for layer in {*layers} - {self._n_layers} if self.hooked else ():
                register = self._blocks[layer].register_forward_pre_hook
                hook = register(partial(show, layer), with_kwargs=True, prepend=True)
                hooks.enter_context(hook)
            inputs = self._inputs(ids, lengths)
            output = self.module(**inputs, output_hidden_states=not self.hooked)
            for layer, hidden in enumerate(() if self.hooked else output.hidden_states[:-1]):
                visit(layer, hidden)
            # The last one comes from the model's output, because the model may normalize it.
            visit(self._n_layers, output.last_hidden_state)

    def _inputs(self, ids: np.ndarray, lengths: np.ndarray) -> dict[str, Any]:
        """Arguments of the module; for a packed row they also separate its texts."""
        packs = lengths.max() <= self.longest_packed
        self._attend_by(NAME if packs else self._usual)
        if not packs:
            batch = torch.from_numpy(ids.reshape(len(lengths), -1))
            return {"input_ids": batch.to(self.device)}
        counted = ids != self._padding
        numbers = np.cumsum(counted)
        before = (numbers - counted)[np.cumsum(lengths) - lengths]
        positions = (numbers - np.repeat(before, lengths)) * counted + self._padding
        row = torch.from_numpy(np.stack([ids, positions])).to(self.device)
        ends = np.flatnonzero(np.diff(lengths, append=0))  # of runs of texts of one length
        runs = zip(np.diff(ends, prepend=-1).tolist(), lengths[ends].tolist(), strict=True)
        packed_row = PackedRow(list(runs), self._causal)
        for part, *_ in self._parts:
            part.packed_row = packed_row
        return {"input_ids": row[:1], "position_ids": row[1:], "packed_row": packed_row}


def first_position(module: Any) -> int:
    """Position of a text's first token.

    RoBERTa and its relatives start after the position of padding tokens.
    """
    table = getattr(getattr(module, "embeddings", None), "position_embeddings", None)
    padding_idx = getattr(table, "padding_idx", None)
    return 0 if padding_idx is None else padding_idx + 1


def _windows(module: Any) -> list[int]:
    """Numbers of a config that may limit how far tokens attend, as names of entries tell.

    Relative positions are cut off, or coarser, beyond some distance.
    """
    pattern = r'"\w*(?:window|chunk|local|block|bucket|relative)\w*": ([1-9]\d*)\b'
    return [int(n) for n in re.findall(pattern, module.config.to_json_string(use_diff=False))]


def proof_length(module: Any) -> int:
    """Tokens of a text that exceeds the windows of a model, unless they are long."""
    return max([16, *(n + 8 for n in _windows(module) if n + 8 <= LONGEST_PROOF)])


def by_longest(module: Any) -> bool:
    """Whether the longest text of a row or batch decides how positions rotate."""
    return '"longrope"' in module.config.to_json_string(use_diff=False)


def in_short(error: Exception) -> str:
    """First line of an error, with its type unless it is a ValueError."""
    message = (str(error).strip() or "no details").splitlines()[0].rstrip(".")
    return message if type(error) is ValueError else f"{type(error).__name__}: {message}"
