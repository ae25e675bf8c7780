"""A frozen transformer with its tokenizer: texts to token ids, token ids to hidden states."""

from pathlib import Path
from typing import Any

import torch

from skcalib.encoders.model.forward import ForwardPass, moved
from skcalib.encoders.model.proof import check, fastest_way, proof_of
from skcalib.encoders.model.reading import (
    limit_of,
    n_embedded,
    n_positions,
    quiet_transformers,
)
from skcalib.encoders.model.tokens import Tokens


class Backbone:
    """A loaded model.

    Attributes
    ----------
    tokens : Tokens
        Its tokenizer.
    forward : ForwardPass
        The forward pass, with matrix products in ``dtype`` on ``device``.
    n_layers, width, n_positions, max_length : int
        Number of transformer blocks; hidden size d; most tokens of a text, special ones
        included, that the model has positions for; the smaller of this and the tokenizer's
        limit.
    is_causal : bool
        Each token attends only to itself and the tokens before it, as in decoders.
    precision : str
        The dtype; in half precision also the device, because devices round differently.
    """

    def __init__(
        self,
        folder: Path,
        fingerprint: str,
        tokenizer: Any,
        module: Any,
        device: torch.device,
        dtype: torch.dtype,
    ):
        self.folder, self.fingerprint, self.device = folder, fingerprint, device
        self.module = module
        self.n_layers, self.width = module.config.num_hidden_layers, module.config.hidden_size
        self.n_positions = n_positions(module)
        self.max_length = min(limit_of(tokenizer), self.n_positions)
        self.tokens = Tokens(tokenizer, n_embedded(folder, tokenizer, module))
        marks = [i for i in tokenizer.all_special_ids if i < self.tokens.n_embedded]
        proof = proof_of(module, self.tokens.words, marks, self.n_positions)
        self.is_causal = proof.is_causal
        with quiet_transformers():
            way = fastest_way(module, proof)
        self.forward = ForwardPass(module, way, device, moved(module, way, device, dtype))
        check(self.forward, proof, tolerance=0.2)
        self.precision = str(dtype).removeprefix("torch.")
        if dtype != torch.float32 and device.type != "cpu":
            self.precision += f" on {device.type}"
