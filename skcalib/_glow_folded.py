"""A trained Glow with additive couplings, folded into as few matrix products as it takes.

In an additive flow every transform but the couplings' networks acts on columns one by one,
so that all scales, offsets and orders can wait until the end. With r the standardised
columns, in the order in which z wants them, each column of the flow is at every step

    p * r + c

for one scale p and one offset c. ActNorm changes p and c only; a permutation changes which
columns the next coupling reads; and a coupling, which reads y1 = p1 r1 + c1 and shifts
y2 = p2 r2 + c2 by t(y1), becomes

    h1 = relu(r1 (p1 W1) + (b1 + c1 W1))
    h2 = relu(h1 W2 + b2)
    r2 <- r2 + h2 (W3 / p2),  c2 <- c2 + b3.

Whole vectors are touched three times: when they are read, standardised and put in order,
and when z = p r + c leaves. Folding is done in float64.
"""

import math

import numpy as np
import torch
from torch import nn

__all__ = ["FoldedGlow"]


class FoldedGlow:
    """The forward and inverse passes of a Glow, as they are now, for inference only.

    Parameters
    ----------
    flow : Glow
        With additive couplings and fixed permutations, without rotation and gain.
    """

    def __init__(self, flow):
        d = flow.n_features
        scale, offset, columns = np.ones(d), np.zeros(d), np.arange(d)
        outputs, couplings = [], []
        for norm, permutation, coupling, ends_level in flow.steps():
            factor = _float64(norm.log_scale.exp())
            scale[columns] *= factor
            offset[columns] = factor * offset[columns] + _float64(norm.shift)
            columns = columns[permutation.index.cpu().numpy()]
            one, two = np.split(columns, [coupling.n_conditioning])
            layers = [layer for layer in coupling.network if isinstance(layer, nn.Linear)]
            w1, w2, w3 = (_float64(layer.weight).T for layer in layers)
            b1, b2, b3 = (_float64(layer.bias) for layer in layers)
            first = (scale[one, None] * w1, b1 + offset[one] @ w1)
            couplings.append((one, *first, w2, b2, two, w3 / scale[two]))
            offset[two] += b3
            if ends_level:  # what conditioned the last coupling stays in the flow
                outputs.append(two)
                columns = one
        *outputs, last = outputs
        order = np.concatenate((*outputs, columns, last))
        loc, data_scale = flow.standardize.loc, flow.standardize.scale

        def tensor(values):
            return torch.as_tensor(values, dtype=loc.dtype, device=loc.device)

        self._order = torch.as_tensor(order, device=loc.device)
        self._back = self._order.argsort()
        self._loc, self._data_scale = loc[self._order], data_scale[self._order]
        self._scale, self._offset = tensor(scale[order]), tensor(offset[order])
        log_scales = np.log(scale).sum() + np.log(_float64(data_scale)).sum()
        self._logabsdet = tensor(log_scales)
        place = order.argsort()  # where z has each column
        self._couplings = []
        for one, w1, b1, w2, b2, two, w3 in couplings:
            read, w1 = _spread(place[one], w1)
            written, w3 = _spread(place[two], w3.T)
            weights = [tensor(values) for values in (w1, b1, w2, b2, w3.T.copy())]
            self._couplings.append((read, *weights, written))

    def forward(self, x):
        """Map u (n, d) to z (n, d); also return log |det dz/du|, shape (n,), in nats."""
        z = torch.index_select(x, 1, self._order)
        z.sub_(self._loc).mul_(self._data_scale)
        for read, w1, b1, w2, b2, w3, written in self._couplings:
            hidden = torch.addmm(b1, z[:, read], w1).relu_()
            hidden = torch.addmm(b2, hidden, w2).relu_()
            z[:, written].addmm_(hidden, w3)
        torch.addcmul(self._offset, z, self._scale, out=z)
        return z, self._logabsdet.expand(len(z))

    def inverse(self, z):
        """Map z (n, d) to u (n, d); also return log |det du/dz|, shape (n,), in nats."""
        x = (z - self._offset).div_(self._scale)
        for read, w1, b1, w2, b2, w3, written in reversed(self._couplings):
            hidden = torch.addmm(b1, x[:, read], w1).relu_()
            hidden = torch.addmm(b2, hidden, w2).relu_()
            x[:, written].addmm_(hidden, w3, alpha=-1.0)
        x.div_(self._data_scale).add_(self._loc)
        return x[:, self._back], -self._logabsdet.expand(len(z))

    def decode(self, z):
        """Map z (n, d) to u (n, d)."""
        return self.inverse(z)[0]

    def log_prob(self, x):
        """Log-density of each row of x (n, d), shape (n,), in nats."""
        z, logabsdet = self.forward(x)
        constant = 0.5 * z.shape[1] * math.log(2.0 * math.pi)
        return logabsdet - constant - 0.5 * z.square().sum(dim=1)


def _float64(tensor):
    return tensor.detach().cpu().numpy().astype(np.float64)


def _spread(places, weights):
    """Spread rows over the shortest slice that holds their places, with zeros between.

    Half of the columns that a level reverses are one slice, without zeros; after a shuffle
    products with some zeros still take less time than gathering columns.
    """
    start, stop = int(places.min()), int(places.max()) + 1
    spread = np.zeros((stop - start, weights.shape[1]))
    spread[places - start] = weights
    return slice(start, stop), spread
