"""Training of a Glow: maximum likelihood with the Adam of the BERT papers.

All parameters live in one vector, and so do their gradients and Adam's two moments, so that
an optimiser step, a gradient norm or a snapshot is one call over one array whatever the
number of layers.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from skcalib._flow.cuda_graph import RecordedStep
from skcalib._flow.glow import Glow
from skcalib._flow.gradient import AdditiveGradient, has_written_gradient
from skcalib._flow.rows import shuffled_batches

__all__ = ["AutogradGradient", "Diverged", "Trainer"]

# The settings of BERT-flow's published training code.
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-6
MAX_GRADIENT_NORM = 1.0

# Record a step only when an epoch has this many: recording costs several.
RECORDED_FROM = 32

# Steps between two checks of the loss. A check waits for the device and takes a snapshot.
CHECK_EVERY = 64


class Diverged(ArithmeticError):
    """The loss turned NaN or infinite; the trainer is back at its last good state."""


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep torch to one thread.

    A step is some two hundred operations of a few microseconds, too small to share: threads
    would mostly wait for each other, long where another process has the core.
    """
    n_threads = torch.get_num_threads()
    try:  # Python raises an interrupt after a call, so that none comes between the two
        torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(n_threads)


class AutogradGradient:
    """Loss of a batch and its gradient by autograd, for any Glow.

    It has the attributes of :class:`~skcalib._flow.gradient.AdditiveGradient`; the flow's
    own parameters are views of ``vector``.
    """

    def __init__(self, flow: Glow):
        self._flow, self._parameters = flow, list(flow.parameters())
        self.vector = parameters_to_vector(self._parameters).detach()
        self.gradient = torch.zeros_like(self.vector)
        self.order = torch.arange(len(self.vector), device=self.vector.device)
        vector_to_parameters(self.vector, self._parameters)

    def __call__(self, batch: Tensor) -> Tensor:
        """Write the gradient of the summed loss to ``gradient``; return that loss, in nats."""
        loss = -self._flow.log_prob(batch).sum()
        slopes = torch.autograd.grad(loss, self._parameters)
        torch.cat([slope.flatten() for slope in slopes], out=self.gradient)
        return loss.detach()


class Trainer:
    """Adam over the parameters of a flow, laid out in one vector.

    BERT and BERT-flow train with this update: Adam (arXiv:1412.6980) without its bias
    correction and with decoupled weight decay (arXiv:1711.05101) on matrices only,

        m <- beta1 m + (1 - beta1) g,  v <- beta2 v + (1 - beta2) g^2
        p <- p - learning_rate (m / (sqrt(v) + epsilon) + weight_decay p)

    Without the correction the first few hundred steps are up to six times as long, so that a
    single epoch over some thousand sentences suffices.

    The flow is on its device; :meth:`write_back` brings its parameters up to date.
    """

    def __init__(self, flow: Glow, learning_rate: float, weight_decay: float):
        self.flow = flow
        self.learning_rate = learning_rate
        self._objective: AdditiveGradient | AutogradGradient = (
            AdditiveGradient(flow) if has_written_gradient(flow) else AutogradGradient(flow)
        )
        self.vector, self.gradient = self._objective.vector, self._objective.gradient
        self.first_moment = torch.zeros_like(self.vector)
        self.second_moment = torch.zeros_like(self.vector)
        self._state = (self.vector, self.first_moment, self.second_moment)
        self._denominator = torch.empty_like(self.vector)
        is_matrix = torch.cat(
            [torch.full((p.numel(),), p.ndim == 2) for p in flow.parameters()]
        )
        is_matrix = is_matrix.to(self.vector)[self._objective.order]
        self._decay = 1.0 - learning_rate * weight_decay * is_matrix
        self._records = self.vector.device.type == "cuda"  # whether to record steps
        self._recorded: RecordedStep | None = None

    def state(self) -> tuple[Tensor, ...]:
        """Copy the parameters and Adam's moments."""
        return tuple(tensor.clone() for tensor in self._state)

    def restore(self, state: tuple[Tensor, ...]) -> None:
        """Go back to what :meth:`state` returned."""
        for tensor, saved in zip(self._state, state, strict=True):
            tensor.copy_(saved)

    @torch.no_grad()
    def write_back(self) -> None:
        """Write the parameters, as they are now, into the flow."""
        parameters = list(self.flow.parameters())
        parts = self._in_the_flows_order(self.vector).split([p.numel() for p in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.copy_(part.view_as(parameter))

    def weights(self) -> dict[str, np.ndarray]:
        """Return the state of the flow, as it is now, as numpy arrays."""
        self.write_back()
        return {k: v.cpu().numpy().copy() for k, v in self.flow.state_dict().items()}

    def moments(self) -> list[np.ndarray]:
        """Return Adam's two moments as numpy arrays, in the order of the flow's parameters."""
        return [self._in_the_flows_order(m).cpu().numpy() for m in self._state[1:]]

    def load_moments(self, moments: list[np.ndarray]) -> None:
        """Go on from what :meth:`moments` returned."""
        for moment, saved in zip(self._state[1:], moments, strict=True):
            moment.copy_(self._tensor(saved)[self._objective.order])

    def _in_the_flows_order(self, entries: Tensor) -> Tensor:
        flat = torch.empty_like(entries)
        flat[self._objective.order] = entries
        return flat

    def step(self, batch: Tensor) -> Tensor:
        """Take one step on a batch (b, d); return its loss before, nats per sample."""
        loss = self._objective(batch)
        with torch.inference_mode():
            # BERT-flow clips the gradient in bits per dimension, which is this one divided by
            # n_bits, so that the limit means the same at every d.
            n_bits = batch.numel() * math.log(2.0)
            norm = torch.linalg.vector_norm(self.gradient)
            self.gradient.div_(norm.div_(MAX_GRADIENT_NORM).clamp_(min=n_bits))

            self.first_moment.lerp_(self.gradient, 1.0 - BETA1)
            self.second_moment.mul_(BETA2)
            self.second_moment.addcmul_(self.gradient, self.gradient, value=1.0 - BETA2)
            self.vector.mul_(self._decay)
            root = torch.sqrt(self.second_moment, out=self._denominator).add_(EPSILON)
            self.vector.addcdiv_(self.first_moment, root, value=-self.learning_rate)
            return loss / len(batch)

    @_one_thread()
    def epoch(
        self,
        X: np.ndarray,
        rows: np.ndarray,
        batch_size: int,
        rng: np.random.RandomState,
        advance: Callable[[], Any] = lambda: None,
    ) -> float:
        """Train on the given rows of X in random order; return the batches' mean loss, nats.

        X may be a memory map. All epochs of a trainer have the same number of rows and the
        same batch size. ``advance`` is called after each batch.

        Raises
        ------
        Diverged
            If the loss or a parameter turns NaN or infinite.
        torch.OutOfMemoryError
            If a step does not fit into the device's memory.
        """
        jitter, axes = self.flow.standardize.jitter.cpu().numpy(), self.flow.standardize.axes
        degenerate = np.flatnonzero(jitter)
        n_steps = -(-len(rows) // batch_size)
        take_step: Callable[[Tensor], Tensor] = self.step
        if self._records and n_steps >= RECORDED_FROM:
            take_step = self._recorded_step((batch_size, X.shape[1]))
        good, total = self.state(), 0.0
        recent = torch.zeros_like(self.vector[0])
        for step, drawn in enumerate(shuffled_batches(X, rows, batch_size, rng), start=1):
            batch = self._tensor(drawn)
            if len(degenerate):
                normal = rng.standard_normal((len(batch), len(degenerate)))
                noise = self._tensor(jitter[degenerate] * normal)
                if axes is None:
                    batch[:, degenerate] += noise
                else:
                    batch += noise @ axes[:, degenerate].T
            recent += take_step(batch)
            if step % CHECK_EVERY == 0 or step == n_steps:
                good = self._checked(good, recent)
                total += float(recent)
                recent.zero_()
            advance()
        return total / n_steps

    def _recorded_step(self, shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        """Return the step as a CUDA graph, recorded once; where that fails, the step itself."""
        if self._recorded is None:
            try:
                self._recorded = RecordedStep(self, shape)
            except torch.cuda.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self._records = False
                warnings.warn(
                    f"A training step could not be recorded as a CUDA graph ({error}); "
                    "training goes on without, at a fraction of the speed.",
                    UserWarning,
                    stacklevel=2,
                )
                return self.step
        return self._recorded

    def evaluate(self, blocks: Iterable[np.ndarray]) -> float:
        """Return the mean loss over the rows of all blocks, nats per sample."""
        self.write_back()
        with torch.inference_mode():
            # Summed on the CPU: not every GPU has float64.
            losses = [-self.flow.log_prob(self._tensor(block)).cpu() for block in blocks]
            return float(torch.cat(losses).double().mean())

    def round_trip(self, rows: np.ndarray) -> tuple[float, float]:
        """Send rows to the latent space and back, and as many samples the other way.

        Return the largest difference of standardised entries, divided by the largest entry
        where that is above 1, and how far a sample's entries lie from their mean at most, in
        standard deviations.
        """
        self.write_back()
        with torch.inference_mode():
            x, _ = self.flow.standardize(self._tensor(rows))
            z = self._tensor(np.random.RandomState(0).standard_normal(x.shape))
            sample, _ = self.flow.back_through_levels(z)
            latent, _ = self.flow.through_levels(x)
            x_back, _ = self.flow.back_through_levels(latent)
            z_back, _ = self.flow.through_levels(sample)
            errors = [
                (back - start).abs().max() / start.abs().max().clamp(min=1.0)
                for back, start in ((x_back, x), (z_back, z))
            ]
            return float(torch.stack(errors).max()), float(sample.abs().max())

    def _checked(self, good: tuple[Tensor, ...], loss: Tensor) -> tuple[Tensor, ...]:
        """Return the state if all is finite; else go back to the good one and raise."""
        # The parameters count too, since a loss is from before its update.
        if torch.isfinite(loss + self.vector.sum()):
            return self.state()
        self.restore(good)
        raise Diverged(
            "The loss turned NaN or infinite: the flow is back at its last good state, at "
            f"most {CHECK_EVERY} steps before."
        )

    def _tensor(self, rows: Any) -> Tensor:
        return torch.as_tensor(rows, dtype=self.vector.dtype, device=self.vector.device)
