"""Loss and gradient of an additive Glow, written out by hand.

A batch of 32 BERT vectors keeps a processor busy for a tenth of a millisecond; autograd
takes more than that to book-keep the several hundred small operations of a training step.
Here the operations are few, write into buffers made once, and read and write halves of
them in place. The result is that of autograd up to rounding.

**Forward.** With rows as vectors, a step on x of width w = c + (w - c) is

    y  = x * s + b                          s = exp(log_scale), ActNorm
    h1 = relu([y1, 1] W1)                   y1: the c dimensions that condition
    h2 = relu([h1, 1] W2)                   the last row of each W is the bias
    y2 <- y2 + [h2, 1] W3                   y2: the w - c that are shifted

and the loss of a batch of B rows is, up to a constant,

    L = sum(z^2) / 2 - B sum(log_scale),

z being what leaves the flow: y2 after the last step of each level, and y1 of the last.

**Backward.** With g = dL/dy, which is z itself where y leaves the flow,

    dL/dW3 = [h2, 1]' g2,       a2 = (g2 W3') * (h2 > 0)
    dL/dW2 = [h1, 1]' a2,       a1 = (a2 W2') * (h1 > 0)
    dL/dW1 = [y1, 1]' a1,       g1 <- g1 + a1 W1'
    dL/db = sum of g over rows,  dL/dlog_scale = s * (sum of g * x over rows) - B
    dL/dx = g * s.

**Layout.** One vector holds all parameters, permuted so that every W above, biases
included, is a contiguous block. A reversal of the dimensions moves nothing: parameters of
a step that sees them reversed are themselves kept in reversed order, so that y1 and y2
are the two ends of the same buffer, in turn. Only a shuffle gathers columns. Adam acts on
each entry alone and the clipping on their norm, so neither sees the permutation.
"""

import math

import numpy as np
import torch

from skcalib._glow import Coupling, Permutation

__all__ = ["AdditiveGradient", "has_written_gradient"]

# Floats before the columns of a buffer, one of which holds the ones that biases multiply:
# a cache line, so that rows start at one.
PAD = 16


def has_written_gradient(flow):
    """Whether a Glow consists of additive couplings and fixed permutations only."""
    couplings = (m for m in flow.modules() if isinstance(m, Coupling))
    return flow.permutation != "lu" and not any(m.affine for m in couplings)


def _padded_width(width):
    return -(-width // PAD) * PAD


class AdditiveGradient:
    """Loss and gradient of a batch under the parameters in ``vector``.

    Parameters
    ----------
    flow : Glow
        Gives the architecture; its parameters are read once, into ``vector``.

    Attributes
    ----------
    order : Tensor of int, shape (n_parameters,)
        Where each entry of ``vector`` comes from, among the flow's parameters laid end to
        end: ``vector = flat[order]``.
    vector, gradient : Tensor of shape (n_parameters,)
    is_matrix : Tensor of bool, shape (n_parameters,)
        Entries that belong to a matrix, not to a bias or an ActNorm.
    """

    def __init__(self, flow):
        self.flow = flow
        parameters = list(flow.parameters())
        flat = torch.cat([p.detach().flatten() for p in parameters])
        entries = np.arange(len(flat))
        ends = np.cumsum([p.numel() for p in parameters])
        indices = {
            id(p): part.reshape(tuple(p.shape))
            for p, part in zip(parameters, np.split(entries, ends[:-1]), strict=True)
        }
        self._plans = _plan(flow, indices)
        shifts = [plan.shift for plan in self._plans]
        log_scales = [plan.log_scale for plan in self._plans]
        blocks = [block.ravel() for plan in self._plans for block in plan.blocks]
        order = np.concatenate(shifts + log_scales + blocks)
        self.n_norm = sum(map(len, shifts))
        matrix = np.concatenate([np.full(p.numel(), p.ndim == 2) for p in parameters])
        device = flat.device
        self.order = torch.from_numpy(order).to(device)
        self.is_matrix = torch.from_numpy(matrix[order]).to(device)
        with torch.inference_mode():
            self.vector = flat[self.order]
            self.gradient = torch.zeros_like(self.vector)
            self._scale = torch.empty_like(self.vector[: self.n_norm])
        self._steps = []
        self._n_rows = None

    def _allocate(self, n_rows):
        """Make the buffers for batches of so many rows, and all views into them."""
        new = self.vector.new_zeros
        width = self._plans[0].width
        self.input = new(n_rows, width)
        self._steps = []
        self._outputs = []
        # Column sums of g and of g * x, one above the other, are one matrix product.
        self._ones = new(2, 2 * n_rows)
        self._ones[0, :n_rows] = 1.0
        self._ones[1, n_rows:] = 1.0
        x, norm_start, block_start = self.input, 0, 2 * self.n_norm
        for plan in self._plans:
            step = _Step(self, plan, x, n_rows, norm_start, block_start)
            norm_start += plan.width
            block_start += sum(block.size for block in plan.blocks)
            self._steps.append(step)
            if plan.ends_level:
                self._outputs.append(step.y2)
                x = step.y1
            else:
                x = step.y
        self._outputs[-1] = self._steps[-1].y
        self._n_rows = n_rows

    @torch.inference_mode()
    def __call__(self, batch):
        """Write the gradient of the batch's summed loss; return that loss, in nats.

        Parameters
        ----------
        batch : Tensor of shape (b, d)
            Standardised rows.

        Returns
        -------
        loss : Tensor, scalar
            Sum over the batch of the negative log-density of the standardised rows.
        """
        if self._n_rows != len(batch):
            self._allocate(len(batch))
        self.input.copy_(batch)
        n_norm, n_rows = self.n_norm, self._n_rows
        log_scale = self.vector[n_norm : 2 * n_norm]
        torch.exp(log_scale, out=self._scale)
        for step in self._steps:
            step.forward()
        squares = sum(torch.linalg.vector_norm(z).square() for z in self._outputs)
        constant = 0.5 * math.log(2.0 * math.pi) * self.input.shape[1]
        loss = 0.5 * squares + n_rows * (constant - log_scale.sum())
        for step in reversed(self._steps):
            step.backward()
        gradient = self.gradient[n_norm : 2 * n_norm]
        gradient.mul_(self._scale).sub_(n_rows)
        return loss
