"""A pipeline as a torch module of padded batches, and its export to ONNX."""

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from skcalib.calibration.glow import Latent
from skcalib.encoders.model.load import read
from skcalib.encoders.recipe import POOLINGS, SLOTS
from skcalib.export._modules import module_of
from skcalib.export._parts import Parts, combined


class PaddedPipeline(nn.Module):
    """From ids and mask, (B, N) each, to calibrated vectors, (B, k)."""

    added: torch.Tensor
    zipf: torch.Tensor

    def __init__(self, parts: Parts):
        super().__init__()
        self.recipe = recipe = parts.recipe
        backbone = parts.backbone()
        self.model = read(backbone.folder)[1]
        self.n_layers = backbone.n_layers
        self.slot = SLOTS[recipe.slot]
        added = torch.zeros(len(backbone.tokens), dtype=torch.bool)
        added[backbone.tokens.added_ids] = True
        self.register_buffer("added", added)
        zipf = backbone.tokens.zipf if self.slot.by_frequency else np.zeros(0, dtype=np.float32)
        self.register_buffer("zipf", torch.tensor(zipf))
        self.nothing = backbone.tokens.tokenizer.pad_token_id
        modules = [_module(step) for step in combined(parts.steps)]
        self.calibration = nn.Sequential(*modules)
        self.requires_grad_(False)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        # As in the pipeline, a text without any token gets one that is not a word.
        is_first = torch.arange(input_ids.shape[1], device=input_ids.device) == 0
        lacks = is_first & ~attention_mask.bool().any(dim=1, keepdim=True)
        input_ids = torch.where(lacks, self.nothing, input_ids)
        attention_mask = torch.where(lacks, 1, attention_mask)
        output = self.model(
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True
        )
        recipe = self.recipe
        states = [*output.hidden_states[: self.n_layers], output.last_hidden_state]
        mask = attention_mask.bool()
        if any(recipe.skip):  # leave out tokens of the prompt, unless a text has no others
            first, place = recipe.skip[0], torch.arange(mask.shape[1], device=mask.device)
            stop = mask.sum(dim=1, keepdim=True) - recipe.skip[1]
            inside = mask & (place >= first) & (place < stop)
            mask = inside | (mask & ~inside.any(dim=1, keepdim=True))
        # Tokens of the text's own; a text without any counts its special tokens.
        own = mask & ~self.added[input_ids]
        own = own | (mask & ~own.any(dim=1, keepdim=True))
        pooled = [
            self._pool(states[layer], input_ids, mask, own)[:, : recipe.truncate_dim]
            for layer in recipe.layers
        ]
        if recipe.concatenates:
            return self.calibration(torch.cat(pooled, dim=1))
        return self.calibration(torch.stack(pooled).mean(dim=0))

    def _pool(
        self, hidden: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor, own: torch.Tensor
    ) -> torch.Tensor:
        how = self.slot
        places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
        if how.token is not None:
            order = places if how.token else places.flip(0)
            one = (mask * order).argmax(dim=1)
            return hidden[torch.arange(hidden.shape[0], device=one.device), one]
        seen = own if how.own else mask
        if how.maximum:
            return hidden.masked_fill(~seen[:, :, None], -torch.inf).amax(dim=1)
        weights = seen.float()
        if how.weight is not None:
            zipf = self.zipf[ids] if how.by_frequency else None
            weights = (seen * how.weight(places, zipf)).float()
        # If all tokens of a text have weight zero, they get equal weights.
        has_weight = weights.sum(dim=1, keepdim=True) > 0
        weights = torch.where(has_weight, weights, seen.float())
        total = weights.sum(dim=1, keepdim=True)
        if POOLINGS[self.recipe.pooling].by_root:
            total = total.sqrt()
        return (weights[:, None] @ hidden)[:, 0] / total


def _module(part: Any) -> nn.Module:
    module = module_of(part)
    return module.float() if isinstance(module, Latent) else module


def export(
    graph: PaddedPipeline, inputs: dict[str, np.ndarray], metadata: dict[str, str], path: Path
) -> None:
    """Write the graph, with batch and length of any size; ``inputs`` are an example."""
    axes = {0: torch.export.Dim("n_texts"), 1: torch.export.Dim("n_tokens")}
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    # torch warns about its own code, and about operators of packages that are not installed.
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            program: Any = torch.onnx.export(
                graph.eval(),
                tuple(map(torch.from_numpy, inputs.values())),
                input_names=list(inputs),
                output_names=["sentence_embedding"],
                dynamic_shapes=dict.fromkeys(inputs, axes),
                dynamo=True,
                verbose=False,
            )
            program.model.metadata_props.update(metadata)
            program.save(path, external_data=False)
        finally:
            logger.setLevel(level)
