"""Training of a Glow: maximum likelihood with the Adam of BERT-flow's code."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import gen_batches
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from skcalib.base import progress, warn
from skcalib.calibration.glow import Glow
from skcalib.callbacks import subtask
from skcalib.process.threads import one_torch_thread

# Of Adam, as in BERT-flow's code.
BETA1, BETA2, EPSILON, WEIGHT_DECAY = 0.9, 0.999, 1e-6, 0.01

NOT_FINITE = (
    "The loss became NaN or infinite. The flow was reset to its last good state. Try a lower "
    "learning_rate; if it is the loss of held-out rows, drop rows that are far from the others."
)


class Trainer:
    """The training of a flow on some rows of X, on its device, epoch by epoch.

    BERT trains with this update: Adam (arXiv:1412.6980) without its bias correction and with
    decoupled weight decay (arXiv:1711.05101) on matrices only. Without the correction the first
    few hundred steps are up to six times as long, so that a single epoch over a few thousand
    sentences suffices.

    ``state`` has the rows p, m and v, each with all parameters, which are views of p.
    """

    def __init__(
        self,
        flow: Glow,
        X: np.ndarray,
        rows: np.ndarray,
        settings: Any,
        rng: np.random.RandomState,
    ):
        self.flow, self._X, self._rows, self._rng = flow, X, rows, rng
        self._batch_size, self._learning_rate = settings.batch_size, settings.learning_rate
        self.n_steps = math.ceil(len(rows) / settings.batch_size)
        self._parameters = list(flow.parameters())
        vector = parameters_to_vector(self._parameters).detach()
        self.state = torch.stack((vector, *torch.zeros(2, len(vector)).to(vector)))
        vector_to_parameters(self.state[0], self._parameters)
        matrices = [torch.full_like(p, p.ndim == 2) for p in self._parameters]
        is_matrix = parameters_to_vector(matrices).detach()
        self._decay = 1.0 - self._learning_rate * WEIGHT_DECAY * is_matrix

    def step(self, batch: Tensor) -> Tensor:
        """Take one step on a batch (b, d); return the loss before it, in nats per sample."""
        loss = -self.flow.log_prob(batch).mean()
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
            p.mul_(self._decay)
            p.addcdiv_(m, v.sqrt().add_(EPSILON), value=-self._learning_rate)
            return loss.detach()

    def epoch(self, advance: Callable[[], Any]) -> float:
        """Train on all rows in random order; return the mean loss of the batches, in nats.

        ``advance`` is called after each batch. If the loss or a parameter becomes NaN or
        infinite, the loss is NaN and the state is the last good one, at most 64 steps before.
        """
        state, jitter = self.state, self.flow.standardize.jitter.cpu().numpy()
        degenerate = np.flatnonzero(jitter)
        good, total, recent = state.clone(), 0.0, torch.zeros_like(state[0, 0])
        order = self._rng.permutation(self._rows)
        # The last batch is filled up from the start of the order.
        order = np.concatenate((order, order[: -len(order) % self._batch_size]))
        batches = gen_batches(len(order), self._batch_size)
        # Operations of a few microseconds are too small to share: threads would mostly wait
        # for each other, for long if another process uses the core.
        with one_torch_thread():
            for step, batch in enumerate(batches, start=1):
                drawn = self._X[order[batch]]
                noise = self._rng.standard_normal((len(drawn), len(degenerate)))
                drawn[:, degenerate] += jitter[degenerate] * noise
                recent += self.step(self._tensor(drawn))
                if step % 64 == 0 or step == self.n_steps:  # reading waits for the device
                    # A loss is from before its update, so check the parameters too.
                    if not torch.isfinite(recent + state[0].sum()):
                        state.copy_(good)
                        return math.nan
                    good, total = state.clone(), total + float(recent)
                    recent.zero_()
                advance()
        return total / self.n_steps

    def evaluate(self, rows: np.ndarray) -> float:
        """Return the mean loss of the given rows, in nats, in float64."""
        blocks = (self._tensor(self._X[rows[block]]) for block in gen_batches(len(rows), 1024))
        with torch.inference_mode():
            # On the CPU: not every GPU has float64.
            losses = [-self.flow.log_prob(block).cpu() for block in blocks]
            return float(torch.cat(losses).double().numpy().mean())

    def warn_of_divergence(self) -> None:
        """Warn if round trips do not return to their start, which makes the flow useless."""
        encode, decode = self.flow.through_levels, self.flow.back_through_levels
        with torch.inference_mode():
            x = self.flow.standardize(self._tensor(self._X[self._rows[: self._batch_size]]))
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
        return torch.as_tensor(rows, dtype=self.state.dtype, device=self.state.device)


def train(
    flow: Glow,
    X: np.ndarray,
    rows: np.ndarray,
    held_out: np.ndarray,
    settings: Any,
    rng: np.random.RandomState,
) -> list[list[float]]:
    """Train a flow in place; return for each epoch the loss, and that of rows held out."""
    trainer = Trainer(flow, X, rows, settings, rng)
    curve: list[list[float]] = []
    best: tuple[float, Any] = math.inf, None  # loss of held-out rows, and the state
    state, n_batches = trainer.state, settings.max_epochs * trainer.n_steps
    # Callbacks score rows that a fit holds out, or else all; a scorer insists on targets.
    data = partial(X.take, held_out, axis=0) if len(held_out) else X
    scored: dict[str, Any] = {"X": data, "y": data}
    scored["reconstruction_attributes"] = lambda: {"weights_": weights_of(flow)}
    shown = {"desc": "NormalizingFlow", "verbose": settings.verbose}
    with progress(n_batches, unit="batch", **shown) as bar:
        is_stopped = False
        while len(curve) < settings.max_epochs and not is_stopped:
            end = subtask("epoch")
            bar.set_postfix_str(f"epoch {len(curve) + 1}", refresh=False)
            losses = [trainer.epoch(bar.update)]
            if len(held_out):
                losses.append(trainer.evaluate(held_out))
            if not np.isfinite(losses).all():
                warn(NOT_FINITE, ConvergenceWarning)
                break
            curve.append(losses)
            if len(held_out) and losses[-1] < best[0]:
                best = losses[-1], state.clone()
            is_stopped = end(**scored)
    if best[1] is not None:
        state.copy_(best[1])
    trainer.warn_of_divergence()
    return curve


def weights_of(flow: Glow) -> dict[str, np.ndarray]:
    """Return a copy of all that a flow has learned."""
    return {name: tensor.cpu().numpy().copy() for name, tensor in flow.state_dict().items()}
