"""Loss and gradient of an additive Glow, written out by hand.

A batch of 32 BERT vectors keeps a processor busy for a tenth of a millisecond; autograd
takes more than that to book-keep the several hundred small operations of a training step.
Here the operations are few, write into buffers made once, and read and write halves of
them in place. The result is that of autograd up to rounding.

**One buffer.** A step of width w, of which c columns condition the others, keeps its columns in
the middle of a buffer, between two ones. One of them multiplies the bias:

               15 entries
    as given   | unused | 1 | y1, c columns     | y2, w - c columns | 1 | unused |
                        |-------[1, y1]---------|
    reversed   | unused | 1 | y2, w - c columns | y1, c columns     | 1 | unused |
                                                |-------[y1, 1]---------|

A reversal of the dimensions so moves no data: steps take y1 from either end in turn, and
parameters of a step that sees its columns reversed are kept in reversed order. Only a shuffle
gathers columns.

**Forward.** With rows as vectors, a step on x is

    y  = x * s + b                          s = exp(log_scale), ActNorm
    h1 = relu([y1, 1] W1)                   the last row of each W is the bias; of W1 the
    h2 = relu([h1, 1] W2)                   first row in [1, y1]
    y2 <- y2 + [h2, 1] W3

and the loss of a batch of B rows is, up to a constant,

    L = sum(z^2) / 2 - B sum(log_scale),

z being what leaves the flow: y2 after the last step of each level, and y1 of the last.

**Backward.** With g = dL/dy, which is z itself where y leaves the flow,

    dL/dW3 = [h2, 1]' g2,       a2 = (g2 W3') * (h2 > 0)
    dL/dW2 = [h1, 1]' a2,       a1 = (a2 W2') * (h1 > 0)
    dL/dW1 = [y1, 1]' a1,       g1 <- g1 + a1 W1'
    dL/db = sum of g over rows,  dL/dlog_scale = s * (sum of g * x over rows) - B
    dL/dx = g * s.

A buffer with twice as many rows, ``stack``, holds g and, under it, g * x. One product with a
matrix of ones and zeros, (2, 2 B), then gives the sums over rows of both:

    [1 ... 1  0 ... 0]   [g    ]   [sums of g    ]
    [0 ... 0  1 ... 1] x [g * x] = [sums of g * x]

**Parameters.** One vector holds all parameters, permuted so that every W above, biases
included, is a contiguous block. Adam acts on each entry alone and the clipping on their norm,
so neither sees the permutation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from skcalib._flow.glow import Glow
from skcalib._flow.transforms import ActNorm, Coupling

__all__ = ["AdditiveGradient", "has_written_gradient"]

# Entries of a buffer's rows before the columns. In float32 they fill a cache line, so that the
# columns start at one.
PAD = 16


def has_written_gradient(flow: Glow) -> bool:
    """Whether a Glow consists of additive couplings and fixed permutations only."""
    return flow.coupling == "additive" and flow.permutation != "lu"


class AdditiveGradient:
    """Loss of a batch and its gradient, under the parameters in ``vector``.

    Attributes
    ----------
    order : Tensor of int, shape (n_parameters,)
        Where each entry of ``vector`` comes from, among the flow's parameters laid end to
        end: ``vector = flat[order]``.
    vector, gradient : Tensor of shape (n_parameters,)
    """

    def __init__(self, flow: Glow):
        flat = parameters_to_vector(flow.parameters()).detach()
        self._plans = _plans(flow)
        self._n_norm = sum(plan.width for plan in self._plans)
        norms = [plan.shift for plan in self._plans] + [plan.log_scale for plan in self._plans]
        blocks = [block.ravel() for plan in self._plans for block in plan.blocks]
        self.order = torch.from_numpy(np.concatenate(norms + blocks)).to(flat.device)
        self.vector = flat[self.order]
        self.gradient = torch.zeros_like(self.vector)
        self._loc, self._data_scale = flow.standardize.loc, flow.standardize.scale
        self._axes = flow.standardize.axes
        # The normal density and the standardisation: the same in the loss of every row.
        self._constant = 0.5 * math.log(2.0 * math.pi) * flow.n_features - float(
            self._data_scale.cpu().double().log().sum()  # not every GPU has float64
        )
        self._n_rows = 0

    @torch.inference_mode()
    def __call__(self, batch: Tensor) -> Tensor:
        """Write the gradient of the summed loss to ``gradient``; return that loss, in nats."""
        if self._n_rows != len(batch):
            self._allocate(len(batch))
        log_scale = self.vector[self._n_norm : 2 * self._n_norm]
        torch.exp(log_scale, out=self._scale)
        if self._axes is None:
            torch.sub(batch, self._loc, out=self._input)
        else:
            torch.mm(batch - self._loc, self._axes, out=self._input)
        self._input.mul_(self._data_scale)
        for step in self._steps:
            step.forward()
        loss = self._n_rows * (self._constant - log_scale.sum())
        for z in self._leaving:
            loss += 0.5 * z.square().sum()
        for step in reversed(self._steps):
            step.backward()
        gradient = self.gradient[self._n_norm : 2 * self._n_norm]
        gradient.mul_(self._scale).sub_(self._n_rows)
        return loss

    def _allocate(self, n_rows: int) -> None:
        """Make the buffers for batches of so many rows, and all views into them."""
        self._input = self.vector.new_empty(n_rows, self._plans[0].width)
        self._scale = self.vector.new_empty(self._n_norm)
        # Column sums of g and of g * x, one above the other, are one matrix product.
        ones = self.vector.new_zeros(2, 2 * n_rows)
        ones[0, :n_rows] = 1.0
        ones[1, n_rows:] = 1.0
        self._steps, self._leaving = [], []
        x, stack = self._input, self._input  # the first step makes the first stack
        step: _Step | None = None
        for plan in self._plans:
            # Steps that move no columns hand g down in one buffer.
            if step is None or step.ends_level or plan.columns is not None:
                stack = _buffer(x, 2 * n_rows, plan.width)
            step = _Step(plan, self.vector, self.gradient, self._scale, x, stack, ones, step)
            self._steps.append(step)
            self._leaving += [step.y2] if step.ends_level else []
            x = step.y1 if step.ends_level else step.y
        self._leaving.append(x)
        self._n_rows = n_rows


def _plans(flow: Glow) -> list[_Plan]:
    """Plan the steps of a flow, in their order."""
    parameters = list(flow.parameters())
    sizes = [p.numel() for p in parameters]
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    index = {p: part.reshape(tuple(p.shape)) for p, part in zip(parameters, parts, strict=True)}
    reverses, is_reversed = flow.permutation == "reverse", False
    plans, norm_start, block_start = [], 0, 0
    for norm, permutation, coupling, ends_level in flow.steps():
        # ActNorm comes before the permutation; its buffer's columns are those after it.
        order = permutation.index.cpu().numpy()
        if reverses:
            is_reversed = not is_reversed
            order = order[::-1] if is_reversed else order
        columns = None if reverses else permutation.index
        plan = _Plan(norm, coupling, index, order, is_reversed, columns, ends_level)
        plan.norm = slice(norm_start, norm_start + plan.width)
        plan.block = slice(block_start, block_start + sum(b.size for b in plan.blocks))
        norm_start, block_start = plan.norm.stop, plan.block.stop
        plans.append(plan)
    plans[-1].ends_flow = True
    return plans


class _Plan:
    """Where the parameters and the columns of one step are.

    ``shift``, ``log_scale`` and ``blocks`` (W1, W2 and W3, biases included) hold positions
    among the flow's parameters laid end to end, in the order of the buffer's columns.
    ``columns`` are those of the buffer before that a shuffle takes.
    """

    ends_flow = False
    norm: slice  # of the shifts, and of the log-scales, of all steps
    block: slice  # of what follows them in the parameter vector

    def __init__(
        self,
        norm: ActNorm,
        coupling: Coupling,
        index: dict[Any, np.ndarray],
        order: np.ndarray,
        is_reversed: bool,
        columns: Tensor | None,
        ends_level: bool,
    ):
        self.width, self.n_conditioning = len(order), coupling.n_conditioning
        self.is_reversed, self.columns, self.ends_level = is_reversed, columns, ends_level
        self.shift, self.log_scale = index[norm.shift][order], index[norm.log_scale][order]
        layers = coupling.network[::2]  # the linear ones
        (w1, b1), (w2, b2), (w3, b3) = ((index[m.weight].T, index[m.bias]) for m in layers)
        if is_reversed:
            first, w3, b3 = np.vstack((w1[::-1], b1)), w3[:, ::-1], b3[::-1]
        else:
            first = np.vstack((b1, w1))
        self.blocks = (first, np.vstack((w2, b2)), np.vstack((w3, b3)))

    def split(self, networks: Tensor) -> list[Tensor]:
        """Return the views that are W1, W2 and W3 of a vector without shifts and log-scales."""
        parts = networks[self.block].split([block.size for block in self.blocks])
        return [p.view(b.shape) for p, b in zip(parts, self.blocks, strict=True)]

    def transposed(self, weights: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return W1', W2' and W3' without the biases."""
        first, second, third = weights
        first = first[:-1] if self.is_reversed else first[1:]
        return first.T, second[:-1].T, third[:-1].T

    def halves(self, buffer: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return a buffer's columns, those that condition, the others, and [y1, 1]."""
        c, stop = self.n_conditioning, PAD + self.width
        y = buffer[:, PAD:stop]
        if self.is_reversed:
            return y, y[:, -c:], y[:, :-c], buffer[:, stop - c : stop + 1]
        return y, y[:, :c], y[:, c:], buffer[:, PAD - 1 : PAD + c]


def _buffer(like: Tensor, n_rows: int, width: int) -> Tensor:
    """Make room for columns, with a one at both ends of each row."""
    buffer = like.new_zeros(n_rows, PAD + -(-width // PAD) * PAD + PAD)
    buffer[:, PAD - 1] = buffer[:, PAD + width] = 1.0
    return buffer


class _Step:
    """The buffers of one step, and the passes through it.

    Names are those of the equations above; ``stack`` holds g and, under it, g * x.
    """

    def __init__(
        self,
        plan: _Plan,
        vector: Tensor,
        gradient: Tensor,
        scale: Tensor,
        x: Tensor,
        stack: Tensor,
        ones: Tensor,
        previous: _Step | None,
    ):
        n_norm = len(scale)
        self.shift, self.scale = vector[plan.norm], scale[plan.norm]
        self.norm_gradient = gradient[: 2 * n_norm].view(2, n_norm)[:, plan.norm]
        self.weights = plan.split(vector[2 * n_norm :])
        self.gradients = plan.split(gradient[2 * n_norm :])
        self.transposed_weights = plan.transposed(self.weights)

        n_rows, width, n_hidden = len(x), plan.width, plan.blocks[1].shape[1]
        self.ends_level, self.ends_flow = plan.ends_level, plan.ends_flow
        self.columns, self.ones = plan.columns, ones
        self.source = x
        self.x = x if self.columns is None else x.new_empty(n_rows, width)

        # At the end of the flow g = z = y, and dL/dy takes the place of y.
        y = stack[:n_rows] if plan.ends_flow else _buffer(x, n_rows, width)
        self.y, self.y1, self.y2, self.y1_and_one = plan.halves(y)
        self.g, self.g1, self.g2, _ = plan.halves(stack[:n_rows])
        self.product = stack[n_rows:, PAD : PAD + width]
        self.stack = stack[:, PAD : PAD + width]

        self.h1_and_one, self.h2_and_one = (
            _buffer(x, n_rows, n_hidden)[:, PAD : PAD + n_hidden + 1] for _ in range(2)
        )
        self.h1, self.h2 = self.h1_and_one[:, :-1], self.h2_and_one[:, :-1]
        self.a1, self.a2, self.mask = (x.new_empty(n_rows, n_hidden) for _ in range(3))

        self.target = None
        if previous is not None:
            self.target = previous.g1 if previous.ends_level else previous.g
        if self.columns is not None:
            self.back = self.columns.argsort().expand(n_rows, width)

    def forward(self) -> None:
        if self.columns is not None:
            torch.index_select(self.source, 1, self.columns, out=self.x)
        w1, w2, w3 = self.weights
        torch.addcmul(self.shift, self.x, self.scale, out=self.y)
        torch.mm(self.y1_and_one, w1, out=self.h1).relu_()
        torch.mm(self.h1_and_one, w2, out=self.h2).relu_()
        self.y2.addmm_(self.h2_and_one, w3)

    def backward(self) -> None:
        w1_t, w2_t, w3_t = self.transposed_weights
        w1_gradient, w2_gradient, w3_gradient = self.gradients
        if self.ends_level and not self.ends_flow:
            self.g2.copy_(self.y2)
        torch.mm(self.h2_and_one.T, self.g2, out=w3_gradient)
        torch.mm(self.g2, w3_t, out=self.a2)
        self.a2.mul_(torch.sign(self.h2, out=self.mask))
        torch.mm(self.h1_and_one.T, self.a2, out=w2_gradient)
        torch.mm(self.a2, w2_t, out=self.a1)
        self.a1.mul_(torch.sign(self.h1, out=self.mask))
        torch.mm(self.y1_and_one.T, self.a1, out=w1_gradient)
        self.g1.addmm_(self.a1, w1_t)
        torch.mul(self.g, self.x, out=self.product)
        torch.mm(self.ones, self.stack, out=self.norm_gradient)
        if self.target is None:
            return
        if self.columns is None:
            torch.mul(self.g, self.scale, out=self.target)
        else:
            torch.gather(self.g.mul_(self.scale), 1, self.back, out=self.target)
