"""Torch modules of fitted steps, and of a pipeline from token ids to vectors."""

from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import Normalizer
from torch import nn
from torch.nn.functional import normalize

from skcalib.calibration import LinearMap
from skcalib.calibration.flow import NormalizingFlow
from skcalib.calibration.neighbors import ALPHA, ZERO, NeighborSmoothing
from skcalib.cosines import EQUAL
from skcalib.encoders.model.load import read
from skcalib.encoders.recipe import POOLINGS
from skcalib.export._parts import Parts, combined


def module_of(part: Any) -> nn.Module:
    """Torch module of a linear map, or of a fitted step that has none."""
    if isinstance(part, LinearMap):
        return LinearModule(part)
    if isinstance(part, Normalizer):
        return UnitLength()
    if isinstance(part, NormalizingFlow):
        return Latent(part.to_torch()).requires_grad_(False)
    if isinstance(part, NeighborSmoothing):
        return SmoothingModule(part.vectors_, **part.parameters_)
    raise TypeError(f"{part!r:.80} cannot be exported: it is not linear, and no torch module.")


class LinearModule(nn.Module):
    """``x -> (x - mean) W + bias``, in float64 where float32 is not ``safe`` for the digits."""

    mean: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor

    def __init__(self, linear: LinearMap):
        super().__init__()
        self.safe = linear.float32_is_safe
        buffers = {"mean": linear.mean, "weight": linear.projection, "bias": linear.bias}
        for name, array in buffers.items():
            # A copy, since an array may be read-only or have negative strides.
            self.register_buffer(name, torch.from_numpy(np.array(array, np.float64, order="C")))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map the last axis of ``x``, in its own dtype."""
        centered = x - self.mean  # float64, by the mean's
        work = torch.float32 if self.safe and x.dtype != torch.float64 else self.weight.dtype
        return (centered.to(work) @ self.weight.to(work) + self.bias.to(work)).to(x.dtype)


class UnitLength(nn.Module):
    """Scale vectors to unit length."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale the last axis of ``x``; zeros stay zeros."""
        return _unit(x)


class Latent(nn.Module):
    """z of a flow, without the log-determinant."""

    def __init__(self, flow: Any):
        super().__init__()
        self.flow = flow

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map the last axis of ``x``."""
        rows = x.reshape(-1, x.shape[-1])
        return self.flow.encode(rows).reshape(x.shape)


class SmoothingModule(nn.Module):
    """A `NeighborSmoothing` that searches in float32 and weighs in float64."""

    vectors: torch.Tensor

    def __init__(self, vectors: np.ndarray, n_neighbors: int, weight: float):
        super().__init__()
        self.register_buffer("vectors", torch.from_numpy(vectors).clone())
        self.n_neighbors, self.weight = n_neighbors, weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Smooth vectors of shape (..., n_features), in their own dtype."""
        unit = _unit(x.double())
        k = min(self.n_neighbors + 1, len(self.vectors))  # since a text finds itself
        rows = (unit.float() @ self.vectors.float().T).topk(k).indices
        near = _unit(self.vectors[rows].double())  # (..., k, n_features)
        cosines = (near @ unit[..., None])[..., 0]
        # A vector equal to x is left out, or else the farthest if there is one too many.
        is_equal = cosines.amax(-1, keepdim=True) >= EQUAL
        farthest = cosines.argmin(-1, keepdim=True) if k > self.n_neighbors else -1
        left_out = torch.where(is_equal, cosines.argmax(-1, keepdim=True), farthest)
        counts = (cosines > ZERO) & (torch.arange(k, device=x.device) != left_out)
        weights = torch.where(counts, cosines.abs() ** ALPHA, 0.0)
        total = weights.sum(-1, keepdim=True)
        weights = self.weight * weights / torch.where(total > 0, total, 1.0)
        return _unit(unit + (weights[..., None, :] @ near)[..., 0, :]).to(x.dtype)


def _unit(x: torch.Tensor) -> torch.Tensor:
    """Scale rows of any magnitude to unit length; zeros stay zeros."""
    largest = x.abs().amax(-1, keepdim=True)
    return normalize(x / torch.where(largest > 0, largest, 1.0), dim=-1)


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
        self.pooling = POOLINGS[recipe.pooling]
        added = torch.zeros(len(backbone.tokens), dtype=torch.bool)
        added[backbone.tokens.added_ids] = True
        self.register_buffer("added", added)
        zipf = (
            backbone.tokens.zipf if self.pooling.by_frequency else np.zeros(0, dtype=np.float32)
        )
        self.register_buffer("zipf", torch.tensor(zipf))
        self.nothing = backbone.tokens.tokenizer.pad_token_id
        modules = [module_of(part) for part in combined(parts.steps)]
        # The model computes in float32, the flow in the type of its fit.
        modules = [m.float() if isinstance(m, Latent) else m for m in modules]
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
        how = self.pooling
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
        return (weights[:, None] @ hidden)[:, 0] / weights.sum(dim=1, keepdim=True)
