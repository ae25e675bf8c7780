"""Training of a Glow: maximum likelihood with the Adam of BERT-flow's code.

All parameters live in one vector, and so do their gradients and Adam's two moments, so that
an optimizer step, a gradient norm or a snapshot is one call over one array whatever the
number of layers.
"""

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, gen_batches
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from skcalib.base import progress, warn
from skcalib.calibration.flow.fitted import FittedFlow, on_device, untrained
from skcalib.calibration.flow.glow import Glow
from skcalib.process.threads import one_torch_thread

# Of Adam, as in BERT-flow's code.
BETA1, BETA2, EPSILON, WEIGHT_DECAY = 0.9, 0.999, 1e-6, 0.01

NOT_FINITE = (
    "The loss became NaN or infinite. The flow was reset to its last good state. Try a lower "
    "learning_rate; if it is the loss of held-out rows, drop rows that are far from the others."
)


def split(
    n_samples: int, validation_fraction: float | None, rng: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to train on and those to hold out, each in increasing order."""
    if validation_fraction is None:
        return np.arange(n_samples), np.arange(0)
    n_held_out = int(n_samples * validation_fraction)
    if n_held_out < 1 or n_samples - n_held_out < 2:
        raise ValueError(
            f"validation_fraction={validation_fraction} of {n_samples} samples holds out "
            f"{n_held_out} and leaves {n_samples - n_held_out} to train on; at least 1 and "
            "2 are needed. Set another fraction, pass more samples, or set None for no split."
        )
    order = rng.permutation(n_samples)
    return np.sort(order[n_held_out:]), np.sort(order[:n_held_out])


def shuffled_batches(
    X: np.ndarray, rows: np.ndarray, batch_size: int, rng: np.random.RandomState
) -> Iterator[np.ndarray]:
    """Yield copies of the given rows of X in random order, batch by batch.

    The last batch is filled up from the start of the order.
    """
    order = rng.permutation(rows)
    order = np.concatenate((order, order[: -len(order) % batch_size]))
    for batch in gen_batches(len(order), batch_size):
        yield X[order[batch]]


class Adam:
    """The parameters of a flow in one vector, and their updates.

    BERT and BERT-flow train with this update: Adam (arXiv:1412.6980) without its bias
    correction and with decoupled weight decay (arXiv:1711.05101) on matrices only,

        m <- beta1 m + (1 - beta1) g,  v <- beta2 v + (1 - beta2) g^2
        p <- p - learning_rate (m / (sqrt(v) + epsilon) + weight_decay p)

    Without the correction the first few hundred steps are up to six times as long, so that a
    single epoch over some thousand sentences suffices.

    ``state`` has the rows p, m and v. The parameters of the flow, which is on its device, are
    views of p.
    """

    def __init__(self, flow: Glow, moments: np.ndarray, learning_rate: float):
        self._flow, self._learning_rate = flow, learning_rate
        self._parameters = list(flow.parameters())
        vector = parameters_to_vector(self._parameters).detach()
        self.state = vector.repeat(3, 1)
        self.state[1:] = torch.as_tensor(moments, dtype=vector.dtype)
        vector_to_parameters(self.state[0], self._parameters)
        matrices = [torch.full_like(p, p.ndim == 2) for p in self._parameters]
        is_matrix = parameters_to_vector(matrices).detach()
        self._decay = 1.0 - learning_rate * WEIGHT_DECAY * is_matrix
        self._denominator = torch.empty_like(vector)

    def step(self, batch: Tensor) -> Tensor:
        """Take one step on a batch (b, d); return the loss before it, in nats per sample."""
        loss = -self._flow.log_prob(batch).mean()
        slopes = torch.autograd.grad(loss, self._parameters)
        with torch.inference_mode():
            # BERT-flow clips the gradient in bits per dimension to norm 1, so that the limit
            # means the same at every d. That gradient is this one divided by n_bits.
            gradient = torch.cat([slope.flatten() for slope in slopes])
            n_bits = batch.shape[1] * math.log(2.0)
            norm = torch.linalg.vector_norm(gradient)
            gradient.div_(norm.clamp_(min=n_bits))

            p, m, v = self.state
            m.lerp_(gradient, 1.0 - BETA1)
            v.mul_(BETA2).addcmul_(gradient, gradient, value=1.0 - BETA2)
            root = torch.sqrt(v, out=self._denominator).add_(EPSILON)
            p.mul_(self._decay)
            p.addcdiv_(m, root, value=-self._learning_rate)
            return loss.detach()


class Trainer:
    """The training of a flow on some rows of X, on a device, epoch by epoch."""

    def __init__(
        self,
        start: FittedFlow,
        X: np.ndarray,
        rows: np.ndarray,
        settings: Any,
        device: torch.device,
    ):
        self.flow = start.network().to(device)
        self._X, self._rows, self._rng = X, rows, start.rng
        self._batch_size = settings.batch_size
        self.adam = Adam(self.flow, start.moments, settings.learning_rate)
        self.n_kept = 0  # good states of the epochs so far

    @property
    def n_steps(self) -> int:
        """Batches of an epoch."""
        return -(-len(self._rows) // self._batch_size)

    def epoch(self, advance: Callable[[], Any]) -> float:
        """Train on all rows in random order; return the mean loss of the batches, in nats.

        ``advance`` is called after each batch. If the loss or a parameter becomes NaN or
        infinite, the loss is NaN and the state is the last good one, at most 64 steps before.
        After Ctrl-C the state is also the last good one.
        """
        state, jitter = self.adam.state, self.flow.standardize.jitter.cpu().numpy()
        good, total, recent = state.clone(), 0.0, torch.zeros_like(state[0, 0])
        batches = shuffled_batches(self._X, self._rows, self._batch_size, self._rng)
        try:
            # Operations of a few microseconds are too small to share: threads would mostly
            # wait for each other, for long if another process uses the core.
            with one_torch_thread():
                for step, drawn in enumerate(batches, start=1):
                    recent += self.adam.step(self._with_jitter(self._tensor(drawn), jitter))
                    if step % 64 == 0 or step == self.n_steps:  # reading waits for the device
                        # A loss is from before its update, so check the parameters too.
                        if not torch.isfinite(recent + state[0].sum()):
                            return math.nan
                        good, self.n_kept = state.clone(), self.n_kept + 1
                        total += float(recent)
                        recent.zero_()
                    advance()
        finally:
            state.copy_(good)
        return total / self.n_steps

    def _with_jitter(self, batch: Tensor, jitter: np.ndarray) -> Tensor:
        """Add random numbers to a batch, in place, where the data hardly vary."""
        degenerate, axes = np.flatnonzero(jitter), self.flow.standardize.axes
        if len(degenerate):
            normal = self._rng.standard_normal((len(batch), len(degenerate)))
            noise = self._tensor(jitter[degenerate] * normal)
            if axes is None:
                batch[:, degenerate] += noise
            else:
                batch += noise @ axes[:, degenerate].T
        return batch

    def evaluate(self, rows: np.ndarray) -> float:
        """Return the mean loss of the given rows, in nats, in float64."""
        blocks = (self._tensor(self._X[rows[block]]) for block in gen_batches(len(rows), 1024))
        with torch.inference_mode():
            # On the CPU: not every GPU has float64.
            losses = [-self.flow.log_prob(block).cpu() for block in blocks]
            return float(torch.cat(losses).double().numpy().mean())

    def warn_of_divergence(self) -> None:
        """Warn if round trips do not return to their start, which makes the flow useless.

        Rows go to the latent space and back, and as many samples the other way. Errors, in
        standardized columns, are relative to the largest entry of a row, or to 1 if that is
        more.
        """
        encode, decode = self.flow.through_levels, self.flow.back_through_levels
        with torch.inference_mode():
            rows = self._X[self._rows[: self._batch_size]]
            x = self.flow.standardize(self._tensor(rows))
            z = self._tensor(np.random.RandomState(0).standard_normal(x.shape))
            sample = decode(z)
            start = torch.cat((x, z))
            back = torch.cat((decode(encode(x)), encode(sample)))
            errors = (back - start).abs().amax(dim=1) / start.abs().amax(dim=1).clamp(min=1.0)
            error, reach = float(errors.max()), float(sample.abs().max())
        # A sound flow stays far below: the worst seen in float32 were 1e-5 and 50 deviations.
        if not (error < 1e-3 and reach < 1e3):
            warn(
                f"The flow diverged although its loss is finite: round trips are off by "
                f"{error:.1g} of the largest entry, samples lie up to {reach:.1g} standard "
                "deviations from the mean. Its vectors and densities are meaningless. Fit "
                "again with a lower learning_rate.",
                ConvergenceWarning,
            )

    def _tensor(self, rows: Any) -> Tensor:
        state = self.adam.state
        return torch.as_tensor(rows, dtype=state.dtype, device=state.device)


@on_device
def train(
    X: np.ndarray,
    start: FittedFlow | None,
    settings: Any,
    n_epochs: int,
    validation_fraction: float | None,
    *,
    device: torch.device,
) -> tuple[FittedFlow, bool]:
    """Train a new flow on the device, or ``start`` further.

    ``settings`` has the parameters of :class:`NormalizingFlow`. Returns the flow (that of the
    best epoch if rows are held out) and whether Ctrl-C ended the training.
    """
    # The training has its own generator, so that no other draw interferes.
    if start is None:
        seed = check_random_state(settings.random_state).randint(np.iinfo(np.int32).max)
        rng = np.random.RandomState(seed)
    else:
        rng = deepcopy(start.rng)
    rows, held_out = split(len(X), validation_fraction, rng)
    start = replace(start, rng=rng) if start else untrained(X, rows, rng, settings)
    trainer = Trainer(start, X, rows, settings, device)
    curve, state, interrupted = list(start.curve), trainer.adam.state, False
    best: tuple[float, Any] = math.inf, None  # loss of held-out rows, and the state
    n_batches, n_before = n_epochs * trainer.n_steps, len(curve)
    bar = progress(n_batches, unit="batch", desc="NormalizingFlow", verbose=settings.verbose)
    try:
        with bar as advance:
            while len(curve) < n_before + n_epochs:
                losses = [trainer.epoch(partial(advance, 1, f"epoch {len(curve) + 1}"))]
                if len(held_out):
                    losses.append(trainer.evaluate(held_out))
                if not np.isfinite(losses).all():
                    warn(NOT_FINITE, ConvergenceWarning)
                    break
                curve.append(losses)
                if len(held_out) and losses[-1] < best[0]:
                    best = losses[-1], state.clone()
    except KeyboardInterrupt:
        if not trainer.n_kept:
            raise
        interrupted = True
    if best[1] is not None:
        state.copy_(best[1])
    trainer.warn_of_divergence()
    moments = state[1:].cpu().numpy()
    fitted = replace(start, weights=trainer.flow.arrays(), moments=moments, curve=curve)
    return fitted, interrupted
