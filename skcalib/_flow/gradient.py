"""Loss and gradient of the default Glow, written out by hand.

A batch of 32 BERT vectors keeps a processor busy for a tenth of a millisecond. Autograd takes
longer than that to keep the books of a step's several hundred small operations. Here they are
few, and read and write halves of buffers made once. The result is autograd's up to rounding.

**One buffer.** A step of width w, of which c columns condition the others, keeps its columns in
the middle of a buffer, between two ones. One of them multiplies the bias:

               15 entries
    as given   | unused | 1 | y1, c columns     | y2, w - c columns | 1 | unused |
                        |-------[1, y1]---------|
    reversed   | unused | 1 | y2, w - c columns | y1, c columns     | 1 | unused |
                                                |-------[y1, 1]---------|

So a reversal of the dimensions moves no data: steps take y1 from either end in turn, and the
parameters of a step that sees its columns reversed are kept in reversed order.

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

**Parameters.** One vector holds all parameters: the shifts of all steps, the log-scales, then
W1, W2 and W3 of each step, each a contiguous block with its bias. Adam acts on each entry
alone and the clipping on their norm, so neither sees the order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from skcalib._flow.glow import Glow

__all__ = ["AdditiveGradient", "has_written_gradient"]

# Entries of a buffer's rows before the columns. In float32 they fill a cache line, so that the
# columns start at one.
PAD = 16


def has_written_gradient(flow: Glow) -> bool:
    """Whether the couplings of a Glow are additive and its permutations reversals."""
    return flow.coupling == "additive" and flow.permutation == "reverse"


class AdditiveGradient:
    """Loss of a batch and its gradient, under the parameters in ``vector``.

    ``vector`` and ``gradient`` have shape (n_parameters,). ``order`` says where each of their
    entries is among the flow's parameters laid end to end: ``vector = flat[order]``.
    """

    def __init__(self, flow: Glow):
        shifts, log_scales, *networks = zip(*_positions(flow), strict=True)
        blocks = [block for network in zip(*networks, strict=True) for block in network]
        self._widths = [len(shift) for shift in shifts]
        self._shapes = [block.shape for block in blocks]
        self._ends_level = [ends_level for *_, ends_level in flow.steps()]
        flat = parameters_to_vector(flow.parameters()).detach()
        order = np.concatenate([*shifts, *log_scales, *(block.ravel() for block in blocks)])
        self.order = torch.from_numpy(order).to(flat.device)
        self.vector = flat[self.order]
        self.gradient = torch.zeros_like(self.vector)
        (self._shift, self._log_scale), self._weights = self._views(self.vector)
        self._norm_gradient, self._weight_gradients = self._views(self.gradient)
        self._scale = torch.empty_like(self._log_scale)
        self._standardize = flow.standardize
        # The normal density and the standardisation: the same in the loss of every row.
        self._constant = 0.5 * math.log(2.0 * math.pi) * flow.n_features - float(
            flow.standardize.scale.cpu().double().log().sum()  # not every GPU has float64
        )
        self._n_rows = 0

    def _views(self, vector: Tensor) -> tuple[Tensor, list[list[Tensor]]]:
        """Return views of all shifts over all log-scales, and of W1, W2, W3 of each step."""
        n_columns = sum(self._widths)
        norms, *blocks = vector.split([2 * n_columns, *map(math.prod, self._shapes)])
        blocks = [block.view(shape) for block, shape in zip(blocks, self._shapes, strict=True)]
        return norms.view(2, n_columns), [blocks[i : i + 3] for i in range(0, len(blocks), 3)]

    @torch.inference_mode()
    def __call__(self, batch: Tensor) -> Tensor:
        """Write the gradient of the summed loss to ``gradient``; return that loss, in nats."""
        if self._n_rows != len(batch):
            self._allocate(len(batch))
        torch.exp(self._log_scale, out=self._scale)
        loc, axes = self._standardize.loc, self._standardize.axes
        if axes is None:
            torch.sub(batch, loc, out=self._input)
        else:
            torch.mm(batch - loc, axes, out=self._input)
        self._input.mul_(self._standardize.scale)
        for step in self._steps:
            step.forward()
        loss = self._n_rows * (self._constant - self._log_scale.sum())
        for z, g in self._leaving:
            loss += 0.5 * z.square().sum()
            g.copy_(z)
        for step in reversed(self._steps):
            step.backward()
        self._norm_gradient[1].mul_(self._scale).sub_(self._n_rows)
        return loss

    def _allocate(self, n_rows: int) -> None:
        """Make the buffers for batches of so many rows, and all views into them."""
        shifts, scales = self._shift.split(self._widths), self._scale.split(self._widths)
        norm_gradients = self._norm_gradient.split(self._widths, dim=1)
        # Column sums of g and of g * x, one above the other, are one matrix product.
        ones = torch.eye(2, dtype=self.vector.dtype, device=self.vector.device)
        ones = ones.repeat_interleave(n_rows, dim=1)
        self._input = x = self.vector.new_empty(n_rows, self._widths[0])
        self._steps: list[_Step] = []
        self._leaving: list[tuple[Tensor, Tensor]] = []
        x_gradient, stack = x, None  # the input is overwritten by its gradient, of no use
        for i, ends_level in enumerate(self._ends_level):
            if stack is None:  # the steps of a level hand g down in one stack
                stack = _buffer(x, 2 * n_rows, self._widths[i])
            parameters = (shifts[i], scales[i], *self._weights[i])
            gradients = (norm_gradients[i], *self._weight_gradients[i])
            step = _Step(i % 2 == 0, parameters, gradients, x, x_gradient, stack, ones)
            self._steps.append(step)
            x, x_gradient = step.y, step.g
            if ends_level:
                self._leaving.append((step.y2, step.g2))
                x, x_gradient, stack = step.y1, step.g1, None
        self._leaving.append((x, x_gradient))
        self._n_rows = n_rows


def _positions(flow: Glow) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield where shift, log-scale, W1, W2 and W3 of each step are among the parameters.

    Biases are rows of their W, and entries are in the order of the step's buffer.
    """
    parameters = list(flow.parameters())
    stops = np.cumsum([p.numel() for p in parameters])
    index = {
        p: np.arange(stop - p.numel(), stop).reshape(tuple(p.shape))
        for p, stop in zip(parameters, stops, strict=True)
    }
    for i, (norm, _, coupling, _) in enumerate(flow.steps()):
        shift, log_scale = index[norm.shift], index[norm.log_scale]
        layers = coupling.network[::2]  # the linear ones
        (w1, b1), (w2, b2), (w3, b3) = ((index[m.weight].T, index[m.bias]) for m in layers)
        if i % 2 == 0:  # the coupling sees the columns reversed
            w1, w3, b3 = np.vstack((w1[::-1], b1)), w3[:, ::-1], b3[::-1]
        else:  # the ActNorm before it does
            shift, log_scale = shift[::-1], log_scale[::-1]
            w1 = np.vstack((b1, w1))
        yield shift, log_scale, w1, np.vstack((w2, b2)), np.vstack((w3, b3))


class _Step:
    """Parameters and buffers of one step, and the passes through it.

    Names are those of the equations above. ``parameters`` are b, s, W1, W2 and W3;
    ``gradients`` are those of b over those of log_scale, and of W1, W2 and W3. ``x`` and
    ``x_gradient`` are views into the buffers of the step before.
    """

    def __init__(
        self,
        is_reversed: bool,
        parameters: tuple[Tensor, ...],
        gradients: tuple[Tensor, ...],
        x: Tensor,
        x_gradient: Tensor,
        stack: Tensor,
        ones: Tensor,
    ):
        self.is_reversed, self.x, self.x_gradient, self.ones = is_reversed, x, x_gradient, ones
        self.shift, self.scale, *self.weights = parameters
        self.norm_gradient, *self.weight_gradients = gradients
        w1, w2, w3 = self.weights
        w1_without_bias = w1[:-1] if is_reversed else w1[1:]
        self.transposed_weights = w1_without_bias.T, w2[:-1].T, w3[:-1].T
        n_rows, (n_conditioning, n_hidden) = len(x), w1_without_bias.shape
        y = _buffer(x, n_rows, len(self.shift))
        self.y, self.y1, self.y2, self.y1_and_one = self._parts(y, n_conditioning)
        self.g, self.g1, self.g2, _ = self._parts(stack[:n_rows], n_conditioning)
        self.stack = stack[:, PAD : PAD + len(self.shift)]
        self.g_times_x = self.stack[n_rows:]
        self.h1_and_one, self.h2_and_one = (
            _buffer(x, n_rows, n_hidden)[:, PAD : PAD + n_hidden + 1] for _ in range(2)
        )
        self.h1, self.h2 = self.h1_and_one[:, :-1], self.h2_and_one[:, :-1]
        self.a1, self.a2, self.mask = (x.new_empty(n_rows, n_hidden) for _ in range(3))

    def _parts(self, buffer: Tensor, c: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return a buffer's columns y, y1 and y2, and y1 with the one beside it."""
        stop = PAD + len(self.shift)
        y = buffer[:, PAD:stop]
        if self.is_reversed:
            return y, y[:, -c:], y[:, :-c], buffer[:, stop - c : stop + 1]
        return y, y[:, :c], y[:, c:], buffer[:, PAD - 1 : PAD + c]

    def forward(self) -> None:
        w1, w2, w3 = self.weights
        torch.addcmul(self.shift, self.x, self.scale, out=self.y)
        torch.mm(self.y1_and_one, w1, out=self.h1).relu_()
        torch.mm(self.h1_and_one, w2, out=self.h2).relu_()
        self.y2.addmm_(self.h2_and_one, w3)

    def backward(self) -> None:
        w1_t, w2_t, w3_t = self.transposed_weights
        w1_gradient, w2_gradient, w3_gradient = self.weight_gradients
        torch.mm(self.h2_and_one.T, self.g2, out=w3_gradient)
        torch.mm(self.g2, w3_t, out=self.a2)
        self.a2.mul_(torch.sign(self.h2, out=self.mask))
        torch.mm(self.h1_and_one.T, self.a2, out=w2_gradient)
        torch.mm(self.a2, w2_t, out=self.a1)
        self.a1.mul_(torch.sign(self.h1, out=self.mask))
        torch.mm(self.y1_and_one.T, self.a1, out=w1_gradient)
        self.g1.addmm_(self.a1, w1_t)
        torch.mul(self.g, self.x, out=self.g_times_x)
        torch.mm(self.ones, self.stack, out=self.norm_gradient)
        torch.mul(self.g, self.scale, out=self.x_gradient)


def _buffer(like: Tensor, n_rows: int, width: int) -> Tensor:
    """Make room for columns, with a one at both ends of each row."""
    buffer = like.new_zeros(n_rows, PAD + -(-width // PAD) * PAD + PAD)
    buffer[:, PAD - 1] = buffer[:, PAD + width] = 1.0
    return buffer
