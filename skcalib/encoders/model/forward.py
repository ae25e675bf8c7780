"""The forward pass: tokens in, hidden states out, one layer at a time."""

from __future__ import annotations

import contextlib
import re
import textwrap
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np
import torch

from skcalib.compat import attention_of
from skcalib.encoders.model.packed import (
    NAME,
    PackedRow,
    pack_linears,
    packed_attention,
)
from skcalib.process.devices import plain_torch
from skcalib.process.forks import fork_safe_lock


class _LastLayerReached(Exception):
    """Ends a forward pass early."""


class ForwardPass:
    """Runs a module on the CPU, until it is moved to a device.

    Texts of up to ``longest_packed`` tokens share a row; in a batch of longer ones all have one
    length. If ``hooked``, hooks read the inputs of blocks, so that the pass can end early.
    """

    def __init__(self, module: Any, longest_packed: float, is_causal: bool):
        self.module, self.longest_packed, self._is_causal = module, longest_packed, is_causal
        self.device = torch.device("cpu")
        self._autocast: torch.dtype | None = None
        self._n_layers = module.config.num_hidden_layers
        self._padding = first_position(module) - 1
        self._usual = self._attention = attention_of(module)  # its own, and that in use
        # One pass at a time: torch parallelizes inside it, and the hooks serve one caller.
        self._lock = fork_safe_lock()
        lists = (part for part in module.modules() if isinstance(part, torch.nn.ModuleList))
        # A model that reuses one block, such as ALBERT, has no such list.
        self._blocks = next((part for part in lists if len(part) == self._n_layers), ())
        self.hooked = len(self._blocks) > 0

    def move(self, device: torch.device, dtype: torch.dtype) -> None:
        """Move the module to a device, for matrix products in ``dtype``."""
        # bfloat16 has the range of float32, so hidden states stay in it between the products.
        # float16 could overflow, models that are not packed create float32 themselves, and
        # decoders and models with windows or relative positions lose digits.
        module = self.module
        n_heads = getattr(module.config, "num_attention_heads", None)
        grouped = getattr(module.config, "num_key_value_heads", n_heads) != n_heads
        plain = not (self._is_causal or grouped or windows_of(module))
        throughout = dtype == torch.bfloat16 and self.longest_packed > 0 and plain
        for part in module.modules():
            if throughout or isinstance(part, torch.nn.Linear):
                for parameter in part.parameters(recurse=False):
                    parameter.data = parameter.data.to(dtype)
        module.to(device)
        prepacked = device.type == "cpu" and pack_linears(module, dtype)
        self.device = device
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

        ``ids``, (N,), holds the token ids of B texts, one after the other, grouped by length.
        """
        last, hooked = max(layers), self.hooked

        def visit(layer: int, hidden: torch.Tensor) -> None:
            if layer in layers:
                receive(layer, hidden.reshape(len(ids), -1))
            if layer == last:
                raise _LastLayerReached

        def show(layer: int, block: Any, args: tuple, kwargs: dict) -> None:
            visit(layer, args[0] if args else kwargs["hidden_states"])

        with (
            self._lock,
            plain_torch(self.device),
            torch.inference_mode(),
            torch.autocast(
                self.device.type, self._autocast, enabled=self._autocast is not None
            ),
            contextlib.suppress(_LastLayerReached),
            contextlib.ExitStack() as hooks,
        ):
            # The input of block i is hidden state i.
            for layer in {*layers} - {self._n_layers} if hooked else ():
                register = self._blocks[layer].register_forward_pre_hook
                hook = register(partial(show, layer), with_kwargs=True, prepend=True)
                hooks.enter_context(hook)
            inputs = self._inputs(ids, lengths)
            output = self.module(**inputs, output_hidden_states=not hooked)
            for layer, hidden in enumerate(() if hooked else output.hidden_states[:-1]):
                visit(layer, hidden)
            # The last one comes from the model's output, because the model may normalize it.
            visit(self._n_layers, output.last_hidden_state)

    def _inputs(self, ids: np.ndarray, lengths: np.ndarray) -> dict[str, Any]:
        """Arguments of the module; for a packed row they also separate its texts."""
        if lengths.max() > self.longest_packed:
            self._attend_by(self._usual)
            batch = torch.from_numpy(ids.reshape(len(lengths), -1))
            return {"input_ids": batch.to(self.device)}
        counted = ids != self._padding
        numbers = np.cumsum(counted)
        before = (numbers - counted)[np.cumsum(lengths) - lengths]
        positions = (numbers - np.repeat(before, lengths)) * counted + self._padding
        row = torch.from_numpy(np.stack([ids, positions])).to(self.device)
        ends = np.flatnonzero(np.diff(lengths, append=0))  # of runs of texts of one length
        runs = zip(np.diff(ends, prepend=-1).tolist(), lengths[ends].tolist(), strict=True)
        packed_row = PackedRow(list(runs), self._is_causal)
        self._attend_by(NAME)
        return {"input_ids": row[:1], "position_ids": row[1:], "packed_row": packed_row}

    def _attend_by(self, attention: str | None) -> None:
        if attention != self._attention:
            from transformers import AttentionInterface

            AttentionInterface.register(NAME, packed_attention)
            self.module.set_attn_implementation(attention)
            self._attention = attention


def first_position(module: Any) -> int:
    """Position of a text's first token; RoBERTa's follows that of padding tokens."""
    table = getattr(getattr(module, "embeddings", None), "position_embeddings", None)
    padding_idx = getattr(table, "padding_idx", None)
    return 0 if padding_idx is None else padding_idx + 1


def windows_of(module: Any) -> list[int]:
    """Numbers in a config that may limit how far tokens attend, by the names of entries."""
    pattern = r'"\w*(?:window|chunk|local|block|bucket|relative)\w*": ([1-9]\d*)\b'
    return [int(n) for n in re.findall(pattern, module.config.to_json_string(use_diff=False))]


def by_longest(module: Any) -> bool:
    """Whether rotations of positions depend on the longest text of a row or batch."""
    return '"longrope"' in module.config.to_json_string(use_diff=False)


def in_short(error: Exception) -> str:
    """Return an error on one line, with its type unless it is a ValueError."""
    message = re.sub(r"\x1b\[[0-9;]*m", "", str(error)) or "no details"  # colors, of torch
    message = textwrap.shorten(message, 300).rstrip(".: ")
    return message if type(error) is ValueError else f"{type(error).__name__}: {message}"
