"""The forward pass: tokens in, hidden states out, one layer at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch

from skcalib._encoder.packed_attention import NAME, packed_attention
from skcalib._encoder.packed_linear import pack_linears
from skcalib._machine.private import attention_of

__all__ = ["ForwardPass", "by_longest", "first_position", "in_short"]


class _LastLayerReached(Exception):
    """Ends a forward pass early."""


class ForwardPass:
    """A model that hands over the hidden states of texts, run in the fastest way that is right.

    A way is right if it reproduces what the plain forward pass gives some texts: layers may be
    elsewhere than the blocks of a model suggest, and texts may see their neighbours in a row,
    or even in a batch. The texts are token ids of three, the last two of equal length; the
    states, (n_layers + 1, length, d), are what each has alone. The module is changed in place.

    Attributes
    ----------
    packed : bool
        Texts are laid end to end in one row; else a batch holds texts of one length.
    hooked : bool
        Blocks show their inputs, and the pass can end early; else the model lists all hidden
        states.
    """

    def __init__(
        self,
        module: Any,
        texts: Sequence[np.ndarray],
        states: Sequence[torch.Tensor],
        *,
        packs: bool,
    ):
        self.module = module
        self.device = torch.device("cpu")
        self._n_layers = len(states[0]) - 1
        self._padding = first_position(module) - 1
        self._autocast: torch.dtype | None = None
        # One pass at a time: torch parallelises inside it, and the hooks serve one caller.
        self._lock = threading.Lock()
        lists = (part for part in module.modules() if isinstance(part, torch.nn.ModuleList))
        # There is none where the blocks are one and the same, as in ALBERT.
        self._blocks = next((part for part in lists if len(part) == self._n_layers), ())
        usual = attention_of(module)
        faults = []
        packings = (True, False) if packs and usual else (False,)  # fastest first
        for self.packed, self.hooked in product(packings, (True, False)):
            try:
                self._attend_by(NAME if self.packed else usual)
                self.check(texts, states, tolerance=1e-4)
                if self.packed:
                    self._check_rows(texts[0], states[0])
                return
            except Exception as error:  # of a model that does not take the arguments
                faults.append(in_short(error))
        raise ValueError(
            "its hidden states of a text depend on the texts beside it, or on chance. Each way "
            f"to run it failed: {'; '.join(dict.fromkeys(faults))}"
        )

    def _attend_by(self, attention: str | None) -> None:
        if attention_of(self.module) != attention:
            from transformers import AttentionInterface  # not in old releases

            AttentionInterface.register(NAME, packed_attention)
            self.module.set_attn_implementation(attention)

    def _check_rows(self, text: np.ndarray, states: torch.Tensor) -> None:
        """Refuse a model that looks at a row as a whole in ways that few short texts hide."""
        if by_longest(self.module):
            raise ValueError(
                "rotations of rope_type='longrope' go by the longest text of a row"
            )
        # Some models refuse a row of more tokens than they have positions. They embed it first.
        n_positions = max(0, getattr(self.module.config, "max_position_embeddings", None) or 0)
        n_texts = min(n_positions, 2**16) // len(text) + 1
        self.check([text] * n_texts, [states[:1]] * n_texts, tolerance=1e-4)

    def check(
        self, texts: Sequence[np.ndarray], states: Sequence[torch.Tensor], *, tolerance: float
    ) -> None:
        """Refuse to go on unless texts that are run together get these hidden states.

        The states are those of the first layers, or of all. An entry may deviate by
        ``tolerance`` times the largest one of its text.
        """
        layers = range(len(states[0]))
        found: list[torch.Tensor] = []
        for batch in [texts] if self.packed else [texts[:1], texts[1:]]:
            lengths = np.array([len(text) for text in batch])
            kept: dict[int, torch.Tensor] = {}
            self(np.concatenate(batch), lengths, layers, kept.__setitem__)
            stacked = torch.stack([kept[layer] for layer in layers]).float().cpu()
            found += stacked.split(lengths.tolist(), dim=1)
        for f, e in zip(found, states, strict=True):
            atol = tolerance * e.nan_to_num(0, 0, 0).abs().max().item()
            if not torch.allclose(f, e, rtol=0, atol=atol, equal_nan=True):
                raise ValueError(
                    "its hidden states are not those of a text alone with dtype='float32'"
                )

    def prepare(self, device: torch.device, dtype: torch.dtype) -> None:
        """Move to a device, for matrix products in ``dtype``."""
        # bfloat16 has the range of float32: hidden states stay in it between the products.
        # float16 could overflow, and models that are not packed mix in float32 of their own.
        throughout = dtype == torch.bfloat16 and self.packed
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

        The model runs no further than the last of them; they count from 0, the output of the
        embedding layer. The token ids, of shape (N,), are those of B texts, one after the
        other. Texts of one length stand together; unless packed, all are of one.
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
            # The input of a block is the hidden state of its number.
            for layer in {*layers} - {self._n_layers} if self.hooked else ():
                register = self._blocks[layer].register_forward_pre_hook
                hook = register(partial(show, layer), with_kwargs=True, prepend=True)
                hooks.enter_context(hook)
            inputs = self._inputs(ids, lengths)
            output = self.module(**inputs, output_hidden_states=not self.hooked)
            for layer, hidden in enumerate(() if self.hooked else output.hidden_states[:-1]):
                visit(layer, hidden)
            # The last one comes from the model itself, which may normalise it.
            visit(self._n_layers, output.last_hidden_state)

    def _inputs(self, ids: np.ndarray, lengths: np.ndarray) -> dict[str, Any]:
        """Arguments of the module; those of a row tell its texts apart."""
        if not self.packed:
            batch = torch.from_numpy(ids.reshape(len(lengths), -1))
            return {"input_ids": batch.to(self.device)}
        counted = ids != self._padding
        numbers = np.cumsum(counted)
        before = (numbers - counted)[np.cumsum(lengths) - lengths]
        positions = (numbers - np.repeat(before, lengths)) * counted + self._padding
        row = torch.from_numpy(np.stack([ids, positions])).to(self.device)
        ends = np.flatnonzero(np.diff(lengths, append=0))  # of the runs of one length
        runs = zip(np.diff(ends, prepend=-1).tolist(), lengths[ends].tolist(), strict=True)
        return {"input_ids": row[:1], "position_ids": row[1:], "packed_runs": list(runs)}


def first_position(module: Any) -> int:
    """Position of a text's first token.

    RoBERTa's relatives start after that of padding tokens, which they do not count.
    """
    table = getattr(getattr(module, "embeddings", None), "position_embeddings", None)
    padding_idx = getattr(table, "padding_idx", None)
    return 0 if padding_idx is None else padding_idx + 1


def by_longest(module: Any) -> bool:
    """Whether the longest text of a row or batch decides how positions rotate."""
    return '"longrope"' in module.config.to_json_string(use_diff=False)


def in_short(error: Exception) -> str:
    """Kind of an error, unless it is a ValueError, and its first line."""
    message = (str(error).strip() or "no details").splitlines()[0].rstrip(".")
    return message if type(error) is ValueError else f"{type(error).__name__}: {message}"
