"""Training of a Glow: maximum likelihood with the Adam of the BERT papers.

All parameters live in one vector, and so do their gradients and Adam's two moments, so that
an optimiser step, a gradient norm or a snapshot is one call over one array whatever the
number of layers.
"""

import math

import numpy as np
import torch

__all__ = ["Diverged", "Trainer"]

# The settings of BERT-flow's published training code.
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-6
MAX_GRADIENT_NORM = 1.0

# Steps between two looks at the loss: each look waits for the device and takes a snapshot.
CHECK_EVERY = 64


class Diverged(ArithmeticError):
    """The loss turned NaN or infinite; the trainer is back at its last good state."""


class Trainer:
    """Adam over the parameters of a flow, laid out in one vector.

    The update is that of BERT's and BERT-flow's optimisers, Adam (arXiv:1412.6980) without
    its bias correction and with decoupled weight decay (arXiv:1711.05101) on matrices only:

        m <- beta1 m + (1 - beta1) g,  v <- beta2 v + (1 - beta2) g^2
        p <- p - learning_rate (m / (sqrt(v) + epsilon) + weight_decay p)

    Without the correction the first few hundred steps are up to six times as long, which is
    what lets a single epoch over some thousand sentences suffice.

    Parameters
    ----------
    flow : Glow
        Trained in place; its parameters become views of ``vector``.
    learning_rate, weight_decay : float
    """

    def __init__(self, flow, learning_rate, weight_decay):
        self.flow = flow
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        # Matrices first, so that what decays is one slice.
        parameters = sorted(flow.parameters(), key=lambda parameter: parameter.ndim < 2)
        self._n_decayed = sum(p.numel() for p in parameters if p.ndim == 2)
        self.vector = torch.cat([p.detach().flatten() for p in parameters])
        self.gradient = torch.zeros_like(self.vector)
        self.first_moment = torch.zeros_like(self.vector)
        self.second_moment = torch.zeros_like(self.vector)
        start = 0
        for parameter in parameters:
            stop = start + parameter.numel()
            parameter.data = self.vector[start:stop].view_as(parameter)
            parameter.grad = self.gradient[start:stop].view_as(parameter)
            start = stop

    def state(self):
        """Copy the parameters and Adam's moments."""
        return tuple(t.clone() for t in (self.vector, self.first_moment, self.second_moment))

    def restore(self, state):
        """Go back to what :meth:`state` returned."""
        for tensor, saved in zip(
            (self.vector, self.first_moment, self.second_moment), state, strict=True
        ):
            tensor.copy_(saved)

    def step(self, batch):
        """Take one step on a batch (b, d); return its loss before, nats per sample."""
        loss = -self.flow.log_prob(batch).mean()
        self.gradient.zero_()
        # Bits per dimension, so that the clipping means the same at every d (BERT-flow).
        (loss / (batch.shape[1] * math.log(2.0))).backward()
        with torch.no_grad():
            self._clip()
            self._adam()
        return loss.detach()

    def _clip(self):
        norm = torch.linalg.vector_norm(self.gradient)
        self.gradient.mul_((MAX_GRADIENT_NORM / norm).clamp_(max=1.0))

    def _adam(self):
        self.first_moment.lerp_(self.gradient, 1.0 - BETA1)
        self.second_moment.mul_(BETA2)
        self.second_moment.addcmul_(self.gradient, self.gradient, value=1.0 - BETA2)
        self.vector[: self._n_decayed].mul_(1.0 - self.learning_rate * self.weight_decay)
        denominator = self.second_moment.sqrt().add_(EPSILON)
        self.vector.addcdiv_(self.first_moment, denominator, value=-self.learning_rate)

    def moments(self):
        """Return Adam's two moments as numpy arrays."""
        return [m.cpu().numpy().copy() for m in (self.first_moment, self.second_moment)]

    def load_moments(self, moments):
        """Go on from what :meth:`moments` returned."""
        self.first_moment.copy_(torch.tensor(moments[0]))
        self.second_moment.copy_(torch.tensor(moments[1]))

    def epoch(self, X, rows, batch_size, rng, progress=iter):
        """Train on the given rows of X in random order.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            May be a memory map: rows are read as they are needed.
        rows : ndarray of int
        batch_size : int
            Rows per step. The last batch is filled up from the head of the same order, so
            that none is small.
        rng : numpy.random.RandomState
        progress : callable, default=iter
            Wraps the range over the batches.

        Returns
        -------
        loss : float
            Mean of the batches' losses, nats per sample.

        Raises
        ------
        Diverged
            If the loss or a parameter turns NaN or infinite.
        """
        order = rng.permutation(rows)
        order = np.concatenate((order, order[: -len(order) % batch_size]))
        jitter = self.flow.standardize.jitter.cpu().numpy()
        degenerate = np.flatnonzero(jitter)
        good, total, steps = self.state(), 0.0, range(0, len(order), batch_size)
        recent = torch.zeros_like(self.vector[0])
        for number, start in enumerate(progress(steps), start=1):
            batch = X[order[start : start + batch_size]]
            if len(degenerate):
                noise = rng.standard_normal((len(batch), len(degenerate)))
                batch[:, degenerate] += jitter[degenerate] * noise
            recent += self.step(self._tensor(batch))
            if number % CHECK_EVERY == 0 or number == len(steps):
                good = self._checked(good, recent)
                total += float(recent)
                recent.zero_()
        return total / len(steps)

    def evaluate(self, blocks):
        """Return the mean loss over all rows, nats per sample; change nothing."""
        with torch.inference_mode():
            losses = [-self.flow.log_prob(self._tensor(block)).double() for block in blocks]
            return float(torch.cat(losses).mean())

    def _checked(self, good, loss):
        # The parameters count too: a loss is taken before the update that follows it.
        if torch.isfinite(loss + self.vector.sum()):
            return self.state()
        self.restore(good)
        raise Diverged(
            "The loss turned NaN or infinite: the flow is back at its last good state, at "
            f"most {CHECK_EVERY} steps before."
        )

    def _tensor(self, rows):
        return torch.as_tensor(rows, dtype=self.vector.dtype, device=self.vector.device)
