"""Training of a Glow: maximum likelihood with the Adam of the BERT papers.

All parameters live in one vector, and so do their gradients and Adam's two moments, so that
an optimiser step, a gradient norm or a snapshot is one call over one array whatever the
number of layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.utils import gen_batches
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from skcalib._base import progress
from skcalib._flow.fitted import FittedFlow
from skcalib._flow.glow import Glow
from skcalib._flow.gradient import AdditiveGradient, has_written_gradient
from skcalib._flow.rows import shuffled_batches

__all__ = ["AutogradGradient", "Trainer", "train"]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep torch to one thread: operations of a few microseconds are too small to share.

    Threads would mostly wait for each other, long where another process has the core.
    """
    n_threads = torch.get_num_threads()
    try:  # Python raises an interrupt after a call, so that none comes between the two
        torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(n_threads)


class AutogradGradient:
    """Loss of a batch and its gradient by autograd, for any Glow, as an `AdditiveGradient`.

    The flow's own parameters are views of ``vector``.
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
    ``adam_state`` is what :meth:`adam_state` returned, m and v; by default zeros.
    """

    def __init__(
        self, flow: Glow, learning_rate: float, weight_decay: float, adam_state: Any = None
    ):
        self.flow, self.learning_rate = flow, learning_rate
        self._objective: AdditiveGradient | AutogradGradient = (
            AdditiveGradient(flow) if has_written_gradient(flow) else AutogradGradient(flow)
        )
        self.vector, self.gradient = self._objective.vector, self._objective.gradient
        self._denominator = torch.empty_like(self.vector)
        order = self._objective.order
        self.first_moment, self.second_moment = (
            torch.zeros_like(self.vector) if moment is None else self._tensor(moment)[order]
            for moment in adam_state or (None, None)
        )
        self._state = (self.vector, self.first_moment, self.second_moment)
        is_matrix = torch.cat(
            [torch.full((p.numel(),), p.ndim == 2) for p in flow.parameters()]
        )
        self._decay = 1.0 - learning_rate * weight_decay * self._tensor(is_matrix)[order]
        self._jitter = flow.standardize.jitter.cpu().numpy()
        self.n_kept = 0  # states that an epoch found good

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

    def adam_state(self) -> list[np.ndarray]:
        """Return Adam's two moments as numpy arrays, in the order of the flow's parameters."""
        moments = (self.first_moment, self.second_moment)
        return [self._in_the_flows_order(moment).cpu().numpy() for moment in moments]

    def _in_the_flows_order(self, entries: Tensor) -> Tensor:
        flat = torch.empty_like(entries)
        flat[self._objective.order] = entries
        return flat

    def step(self, batch: Tensor) -> Tensor:
        """Take one step on a batch (b, d); return its loss before, nats per sample."""
        loss = self._objective(batch)
        beta1, beta2, epsilon = 0.9, 0.999, 1e-6  # those of BERT-flow's code
        with torch.inference_mode():
            # BERT-flow clips the gradient in bits per dimension to norm 1, so that the limit
            # means the same at every d. That gradient is this one divided by n_bits.
            n_bits = batch.numel() * math.log(2.0)
            norm = torch.linalg.vector_norm(self.gradient)
            self.gradient.div_(norm.clamp_(min=n_bits))

            self.first_moment.lerp_(self.gradient, 1.0 - beta1)
            self.second_moment.mul_(beta2)
            self.second_moment.addcmul_(self.gradient, self.gradient, value=1.0 - beta2)
            self.vector.mul_(self._decay)
            root = torch.sqrt(self.second_moment, out=self._denominator).add_(epsilon)
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

        ``advance`` is called after each batch. Where the loss or a parameter turns NaN or
        infinite, the loss is NaN and the state the last good one, at most 64 steps before;
        after Ctrl-C it is that, too.
        """
        n_steps = -(-len(rows) // batch_size)
        good, total = self.state(), 0.0
        recent = torch.zeros_like(self.vector[0])
        try:
            for step, drawn in enumerate(shuffled_batches(X, rows, batch_size, rng), start=1):
                recent += self.step(self._with_jitter(self._tensor(drawn), rng))
                if step % 64 == 0 or step == n_steps:  # to look at it waits for the device
                    # A loss is from before its update, so the parameters count too.
                    if not torch.isfinite(recent + self.vector.sum()):
                        self.restore(good)
                        return math.nan
                    good, self.n_kept = self.state(), self.n_kept + 1
                    total += float(recent)
                    recent.zero_()
                advance()
        except KeyboardInterrupt:
            self.restore(good)
            raise
        return total / n_steps

    def _with_jitter(self, batch: Tensor, rng: np.random.RandomState) -> Tensor:
        """Add noise to a batch, in place, where the data hardly vary."""
        degenerate, axes = np.flatnonzero(self._jitter), self.flow.standardize.axes
        if len(degenerate):
            normal = rng.standard_normal((len(batch), len(degenerate)))
            noise = self._tensor(self._jitter[degenerate] * normal)
            if axes is None:
                batch[:, degenerate] += noise
            else:
                batch += noise @ axes[:, degenerate].T
        return batch

    def evaluate(self, X: np.ndarray, rows: np.ndarray) -> float:
        """Return the mean loss over the given rows of X, nats per sample."""
        self.write_back()
        blocks = (self._tensor(X[rows[block]]) for block in gen_batches(len(rows), 1024))
        with torch.inference_mode():
            # Summed on the CPU: not every GPU has float64.
            losses = [-self.flow.log_prob(block).cpu() for block in blocks]
            return float(torch.cat(losses).double().mean())

    def doubts(self, rows: np.ndarray) -> Iterator[str]:
        """Yield why the flow is of no use, where its round trips do not return.

        Rows go to the latent space and back, and as many samples the other way. Errors are
        relative to the largest entry, or to 1 if that is more, all of standardised columns.
        """
        self.write_back()
        encode, decode = self.flow.through_levels, self.flow.back_through_levels
        with torch.inference_mode():
            x, _ = self.flow.standardize(self._tensor(rows))
            z = self._tensor(np.random.RandomState(0).standard_normal(x.shape))
            sample, _ = decode(z)
            pairs = (x, decode(encode(x)[0])[0]), (z, encode(sample)[0])
            errors = [(b - a).abs().max() / a.abs().max().clamp(min=1.0) for a, b in pairs]
            error, reach = float(torch.stack(errors).max()), float(sample.abs().max())
        # A sound flow stays far below: the worst seen in float32 were 1e-5 and 50 deviations.
        if not (error < 1e-3 and reach < 1e3):
            yield (
                f"The flow diverged though its loss is finite: round trips are off by "
                f"{error:.1g} of the largest entry, samples lie up to {reach:.1g} standard "
                "deviations from the mean. Its vectors and densities mean nothing: fit again "
                "with a lower learning_rate."
            )

    def _tensor(self, rows: Any) -> Tensor:
        return torch.as_tensor(rows, dtype=self.vector.dtype, device=self.vector.device)


def train(
    start: FittedFlow,
    X: np.ndarray,
    rows: np.ndarray,
    held_out: np.ndarray,
    device: torch.device,
    settings: Any,
) -> tuple[FittedFlow, list[str], bool]:
    """Train on the given rows of X, on the device; draw from the generator of ``start``.

    ``settings`` has the parameters of :class:`NormalizingFlow`. Returns the flow, that of the
    best epoch if rows are held out, reasons why it may be of no use, and whether Ctrl-C ended
    the training.
    """
    network, batch_size = start.network().to(device), settings.batch_size
    trainer = Trainer(network, settings.learning_rate, settings.weight_decay, start.adam_state)
    n_batches, desc = settings.max_epochs * -(-len(rows) // batch_size), "NormalizingFlow"
    curve: list[tuple[float, float | None]] = []
    doubts, interrupted = [], False
    best_loss, best_state, stale = math.inf, None, 0
    try:
        bar = progress(n_batches, unit="batch", desc=desc, verbose=settings.verbose)
        with bar as advance:
            while len(curve) < settings.max_epochs and stale != settings.n_iter_no_change:
                note = f"epoch {len(start.curve) + len(curve) + 1}"
                count = partial(advance, 1, note)
                loss = trainer.epoch(X, rows, batch_size, start.rng, count)
                if math.isnan(loss):
                    doubts.append(
                        "The loss turned NaN or infinite: the flow is back at its last good "
                        "state. A lower learning_rate may help."
                    )
                    break
                held_out_loss = trainer.evaluate(X, held_out) if len(held_out) else None
                curve.append((loss, held_out_loss))
                watched = loss if held_out_loss is None else held_out_loss
                stale = 0 if watched < best_loss - settings.tol else stale + 1
                if watched < best_loss:
                    best_loss, best_state = watched, trainer.state() if len(held_out) else None
    except KeyboardInterrupt:
        if not trainer.n_kept:
            raise
        interrupted = True
    if best_state is not None:
        trainer.restore(best_state)
    doubts += trainer.doubts(X[rows[:batch_size]])
    weights, adam_state = network.arrays(), trainer.adam_state()
    fitted = replace(start, weights=weights, adam_state=adam_state, curve=start.curve + curve)
    return fitted, doubts, interrupted
