"""Loss and gradient of the default Glow, written out by hand.

A batch of 32 BERT vectors keeps a processor busy for a tenth of a millisecond. Autograd needs
longer than that for the bookkeeping of a step's several hundred small operations. Here the
operations are few, and they read and write halves of buffers that are allocated once. The
result equals autograd's up to rounding.

**One buffer.** A step of width w, of which c columns condition the others, keeps its columns in
the middle of a buffer, between two ones. One of them multiplies the bias:

               15 entries
    as given   | unused | 1 | y1, c columns     | y2, w - c columns | 1 | unused |
                        |-------[1, y1]---------|
    reversed   | unused | 1 | y2, w - c columns | y1, c columns     | 1 | unused |
                                                |-------[y1, 1]---------|

So a reversal of the dimensions moves no data: steps read y1 from either end in turn, and a
step that gets its columns reversed keeps its parameters in reversed order.

**Forward.** With rows as vectors, a step on x is

    y  = x * s + b                          s = exp(log_scale), ActNorm
    h1 = relu([y1, 1] W1)                   the last row of each W is the bias; of W1 the
    h2 = relu([h1, 1] W2)                   first row in [1, y1]
    y2 <- y2 + [h2, 1] W3

and the loss of a batch of B rows is, up to a constant,

    L = sum(z^2) / 2 - B sum(log_scale),

where z is what leaves the flow: y2 after the last step of each level, and y1 of the last.

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
alone and the clipping on their norm, so neither depends on the order.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from skcalib.calibration.flow.glow import Glow

# Number of entries before the columns in a row of a buffer. In float32 they fill a cache line,
# so that the columns start at one.
PAD = 16


class AdditiveGradient:
    """Loss of a batch of ``n_rows`` and its gradient, under the parameters in ``vector``.

    ``vector`` and ``gradient`` have shape (n_parameters,). ``order`` is the position of each of
    their entries among the flow's parameters laid end to end: ``vector = flat[order]``. It is
    the first row of ``state``, whose two others are for the optimizer.
    """

    def __init__(self, flow: Glow, n_rows: int):
        flat, places = parameters_to_vector(flow.parameters()).detach(), _places(flow)
        self.order = torch.cat([part.flatten() for part in places]).to(flat.device)
        self.state = flat[self.order].repeat(3, 1)
        self.vector = self.state[0]
        self.gradient = torch.zeros_like(self.vector)
        (shift, self._log_scale), *weights = views(self.vector, places)
        self._norm_gradient, *weight_gradients = views(self.gradient, places)
        self._scale = torch.empty_like(self._log_scale)
        self._standardize, self._n_rows = flow.standardize, n_rows
        # The normal density and the standardization add the same to the loss of every row.
        self._constant = 0.5 * math.log(2.0 * math.pi) * flow.n_features - float(
            flow.standardize.scale.cpu().double().log().sum()  # not every GPU has float64
        )
        x = x_gradient = flat.new_empty(n_rows, flow.n_features)  # of the batch, not read
        self._steps: list[_Step] = []
        self._leaving: list[tuple[Tensor, Tensor]] = []
        columns, stack = slice(0, 0), None
        for i, (*_, ends_level) in enumerate(flow.steps()):
            columns = slice(columns.stop, columns.stop + x.shape[1])
            if stack is None:  # the steps of a level share one stack
                stack = _buffer(x, 2 * n_rows, x.shape[1])
            of_step = slice(3 * i, 3 * i + 3)
            parameters = (shift[columns], self._scale[columns], *weights[of_step])
            gradients = (self._norm_gradient[:, columns], *weight_gradients[of_step])
            step = _Step(i % 2 == 0, parameters, gradients, x, x_gradient, stack)
            self._steps.append(step)
            x, x_gradient = step.y, step.g
            if ends_level:
                self._leaving.append((step.y2, step.g2))
                x, x_gradient, stack = step.y1, step.g1, None
        self._leaving.append((x, x_gradient))

    @torch.inference_mode()
    def __call__(self, batch: Tensor) -> Tensor:
        """Write the gradient of the summed loss to ``gradient``; return that loss, in nats."""
        torch.exp(self._log_scale, out=self._scale)
        self._steps[0].x = self._standardize.columns(batch)
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


def views(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return consecutive parts of a vector, in the shapes of the tensors ``like``."""
    parts = vector.split([tensor.numel() for tensor in like])
    return [part.view_as(tensor) for part, tensor in zip(parts, like, strict=True)]


def _places(flow: Glow) -> list[Tensor]:
    """Return the positions of the shifts over the log-scales, and of W1, W2, W3 of each step.

    Positions are those of the parameters laid end to end. Biases are rows of their W, and
    columns are in the order of the step's buffer.
    """
    parameters = list(flow.parameters())
    counted = torch.arange(sum(parameter.numel() for parameter in parameters))
    places = dict(zip(parameters, views(counted, parameters), strict=True))
    norms, blocks = [], []
    for i, (norm, _, coupling, _) in enumerate(flow.steps()):
        shift_and_scale = torch.stack((places[norm.shift], places[norm.log_scale]))
        w1, w2, w3 = (
            torch.vstack((places[layer.weight].T, places[layer.bias]))
            for layer in coupling.network[::2]  # the linear ones
        )
        w1 = w1.roll(1, dims=0)  # the bias first
        if i % 2 == 0:  # the coupling gets the columns reversed
            w1, w3 = w1.flip(0), w3.flip(1)
        else:  # the ActNorm before it does
            shift_and_scale = shift_and_scale.flip(1)
        norms.append(shift_and_scale)
        blocks += [w1, w2, w3]
    return [torch.hstack(norms), *blocks]


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
    ):
        self.x, self.x_gradient = x, x_gradient
        self.shift, self.scale, self.w1, self.w2, self.w3 = parameters
        self.norm_gradient, *self.weight_gradients = gradients
        w1_without_bias = self.w1[:-1] if is_reversed else self.w1[1:]
        self.transposed_weights = w1_without_bias.T, self.w2[:-1].T, self.w3[:-1].T
        (n_rows, width), (c, n_hidden) = x.shape, w1_without_bias.shape

        def parts(buffer: Tensor) -> tuple[Tensor, ...]:
            """Return a buffer's columns y, y1 and y2, and y1 with the ones next to it."""
            y = buffer[:, PAD : PAD + width]
            if is_reversed:
                return y, y[:, -c:], y[:, :-c], buffer[:, PAD + width - c : PAD + width + 1]
            return y, y[:, :c], y[:, c:], buffer[:, PAD - 1 : PAD + c]

        self.y, self.y1, self.y2, self.y1_and_one = parts(_buffer(x, n_rows, width))
        self.g, self.g1, self.g2, _ = parts(stack[:n_rows])
        self.stack = stack[:, PAD : PAD + width]
        self.g_times_x = self.stack[n_rows:]
        # Column sums of g and of g * x, one above the other, are one matrix product.
        self.ones = torch.eye(2, dtype=x.dtype, device=x.device)
        self.ones = self.ones.repeat_interleave(n_rows, dim=1)
        self.h1_and_one, self.h2_and_one = (
            _buffer(x, n_rows, n_hidden)[:, PAD : PAD + n_hidden + 1] for _ in range(2)
        )
        self.h1, self.h2 = self.h1_and_one[:, :-1], self.h2_and_one[:, :-1]

    def forward(self) -> None:
        torch.addcmul(self.shift, self.x, self.scale, out=self.y)
        torch.mm(self.y1_and_one, self.w1, out=self.h1).relu_()
        torch.mm(self.h1_and_one, self.w2, out=self.h2).relu_()
        self.y2.addmm_(self.h2_and_one, self.w3)

    def backward(self) -> None:
        w1_t, w2_t, w3_t = self.transposed_weights
        w1_gradient, w2_gradient, w3_gradient = self.weight_gradients
        torch.mm(self.h2_and_one.T, self.g2, out=w3_gradient)
        a2 = torch.mm(self.g2, w3_t).mul_(self.h2.sign_())
        torch.mm(self.h1_and_one.T, a2, out=w2_gradient)
        a1 = torch.mm(a2, w2_t).mul_(self.h1.sign_())
        torch.mm(self.y1_and_one.T, a1, out=w1_gradient)
        self.g1.addmm_(a1, w1_t)
        torch.mul(self.g, self.x, out=self.g_times_x)
        torch.mm(self.ones, self.stack, out=self.norm_gradient)
        torch.mul(self.g, self.scale, out=self.x_gradient)


@torch.inference_mode()  # its tensors do not record what is written to them
def _buffer(like: Tensor, n_rows: int, width: int) -> Tensor:
    """Return a buffer for columns, with a one at both ends of each row."""
    buffer = like.new_zeros(n_rows, PAD + -(-width // PAD) * PAD + PAD)
    buffer[:, PAD - 1] = buffer[:, PAD + width] = 1.0
    return buffer
