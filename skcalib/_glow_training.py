"""Training of a Glow: maximum likelihood with the Adam of the BERT papers.

All parameters live in one vector, and so do their gradients and Adam's two moments, so that
an optimiser step, a gradient norm or a snapshot is one call over one array whatever the
number of layers.
"""

import math
import warnings
from functools import reduce, wraps

import numpy as np
import torch

from skcalib._glow_gradient import AdditiveGradient, has_written_gradient
from skcalib._moments import Moments
from skcalib._noise import regularise, whitening_gain
from skcalib._recorded_step import RecordedStep
from skcalib._spectrum import decompose

__all__ = ["Diverged", "Trainer", "column_moments", "principal_axes"]

# The settings of BERT-flow's published training code.
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-6
MAX_GRADIENT_NORM = 1.0

# Larger data are shuffled in runs of consecutive rows, of which as many as fit into a pool are
# read and shuffled row by row: the file behind a memory map is then read in long stretches.
LARGE_BYTES, POOL_BYTES, RUN_ROWS = 2**30, 2**28, 256

# Rows of a float64 copy, few enough to stay in the cache.
MOMENT_ROWS = 256

# Rows of a copy whose scatter matrix is merged with that of the others.
SCATTER_ROWS = 8192

# Below it a square has lost digits.
LEAST_SPREAD = math.sqrt(np.finfo(np.float64).tiny / np.finfo(np.float64).eps)

# Steps of an epoch from which recording one, which takes as long as some, pays.
RECORDED_FROM = 32

# Steps between two looks at the loss: each look waits for the device and takes a snapshot.
CHECK_EVERY = 64


class Diverged(ArithmeticError):
    """The loss turned NaN or infinite; the trainer is back at its last good state."""


@np.errstate(over="ignore", invalid="ignore")  # which shows in the result
def column_moments(X, rows):
    """Mean and standard deviation of the columns of X over the given rows, in float64.

    Blocks are measured from the first row, so that a large common mean costs no digits and
    a constant column has a deviation of exactly 0, and merge as in Chan, Golub & LeVeque
    (1983).
    """
    n, mean, scatter, spread = 0, 0.0, 0.0, 0.0
    origin = X[rows[0]].astype(np.float64)
    for start in range(0, len(rows), MOMENT_ROWS):
        block = X[rows[start : start + MOMENT_ROWS]] - origin
        spread = max(spread, float(np.abs(block).max()))
        total = n + len(block)
        block_mean = block.mean(axis=0)
        block -= block_mean
        shift = block_mean - mean
        scatter += np.einsum("ij,ij->j", block, block) + shift**2 * (n * len(block) / total)
        mean += shift * (len(block) / total)
        n = total
    if 0 < spread < LEAST_SPREAD:
        raise ValueError(
            f"X varies by no more than {spread:.3g}, whose square underflows float64. Scale X "
            "to about 1."
        )
    return origin + mean, np.sqrt(scatter / n)


@np.errstate(over="ignore", invalid="ignore")  # which shows in the result
def principal_axes(X, rows, noise):
    """Principal axes of X over the given rows, and how a filter of noise weighs them.

    Returns
    -------
    mean : ndarray of shape (d,)
    deviation : ndarray of shape (d,)
        Along the axes.
    axes : ndarray of shape (d, d)
        In columns.
    whitening : ndarray of shape (d,)
        Gain of ``Whitening(noise=noise)`` along the axes, positive.
    noise : float
        In units of the mean eigenvalue, chosen if "auto".
    """
    starts = range(0, len(rows), SCATTER_ROWS)
    parts = (Moments.from_array(X[rows[start : start + SCATTER_ROWS]]) for start in starts)
    moments = reduce(Moments.merge, parts)
    if not (np.isfinite(moments.quartic) and np.isfinite(moments.scatter).all()):
        raise ValueError("X is so large that its squares overflow float64. Scale X to about 1.")
    variance, axes = decompose(moments.covariance())
    if not variance[0] > 0:
        raise ValueError(
            f"All {moments.n} samples are equal: noise={noise!r} needs samples that differ. "
            "Fit on such, or set noise=0."
        )
    eigenvalues, _, noise = regularise(moments, variance, 0.0, noise)
    # The gain of a direction without variance is a limit.
    least = len(variance) * np.finfo(np.float64).eps * eigenvalues[0]
    whitening = whitening_gain(np.maximum(eigenvalues, least), noise * variance.mean())
    return moments.mean, np.sqrt(variance), axes, whitening, noise


def _on_one_thread(function):
    """Keep torch to one thread while the function runs.

    A step is some two hundred operations of a few microseconds. Threads have nothing to
    share there but the wait for each other, which is long where another process has the
    core: two threads took from 2 to 200 times as long as one on a machine in use.
    """

    @wraps(function)
    def limited(*args, **kwargs):
        n_threads = torch.get_num_threads()
        try:  # an interrupt comes before or after a call of torch's, not within
            torch.set_num_threads(1)
            return function(*args, **kwargs)
        finally:
            torch.set_num_threads(n_threads)

    return limited


class AutogradGradient:
    """Loss of a batch and its gradient by autograd, for any Glow.

    It has the attributes of :class:`~skcalib._glow_gradient.AdditiveGradient`; the flow's
    own parameters and their gradients are views of ``vector`` and ``gradient``.
    """

    def __init__(self, flow):
        self._flow = flow
        parameters = list(flow.parameters())
        self.vector = torch.cat([p.detach().flatten() for p in parameters])
        self.gradient = torch.zeros_like(self.vector)
        self.order = torch.arange(len(self.vector), device=self.vector.device)
        sizes = [p.numel() for p in parameters]
        for parameter, part, slope in zip(
            parameters, self.vector.split(sizes), self.gradient.split(sizes), strict=True
        ):
            parameter.data = part.view_as(parameter)
            parameter.grad = slope.view_as(parameter)

    def __call__(self, batch):
        """Write the gradient of the summed loss to ``gradient``; return that loss, in nats."""
        self.gradient.zero_()
        loss = -self._flow.log_prob(batch).sum()
        loss.backward()
        return loss.detach()


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
        What is trained; :meth:`write_back` brings its parameters up to date.
    learning_rate, weight_decay : float
    """

    def __init__(self, flow, learning_rate, weight_decay):
        self.flow = flow
        self.learning_rate = learning_rate
        written = has_written_gradient(flow)
        self._objective = AdditiveGradient(flow) if written else AutogradGradient(flow)
        self.vector, self.gradient = self._objective.vector, self._objective.gradient
        self.first_moment = torch.zeros_like(self.vector)
        self.second_moment = torch.zeros_like(self.vector)
        self._denominator = torch.empty_like(self.vector)
        is_matrix = torch.cat(
            [torch.full((p.numel(),), p.ndim == 2) for p in flow.parameters()]
        )
        is_matrix = is_matrix.to(self.vector)[self._objective.order]
        self._decay = 1.0 - learning_rate * weight_decay * is_matrix
        self._on_gpu = self.vector.device.type == "cuda"
        self._recorded = None
        self._data = None  # an array, and the same on the device

    def state(self):
        """Copy the parameters and Adam's moments."""
        return tuple(t.clone() for t in (self.vector, self.first_moment, self.second_moment))

    def restore(self, state):
        """Go back to what :meth:`state` returned."""
        for tensor, saved in zip(
            (self.vector, self.first_moment, self.second_moment), state, strict=True
        ):
            tensor.copy_(saved)

    @torch.no_grad()
    def write_back(self):
        """Write the parameters, as they are now, into the flow."""
        parameters = list(self.flow.parameters())
        parts = self._in_the_flows_order(self.vector).split([p.numel() for p in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.copy_(part.view_as(parameter))

    def weights(self):
        """Return the state of the flow, as it is now, as numpy arrays."""
        self.write_back()
        return {k: v.cpu().numpy().copy() for k, v in self.flow.state_dict().items()}

    def moments(self):
        """Return Adam's two moments as numpy arrays, in the order of the flow's parameters."""
        moments = (self.first_moment, self.second_moment)
        return [self._in_the_flows_order(m).cpu().numpy() for m in moments]

    def load_moments(self, moments):
        """Go on from what :meth:`moments` returned."""
        for moment, saved in zip((self.first_moment, self.second_moment), moments, strict=True):
            moment.copy_(self._tensor(saved)[self._objective.order])

    def _in_the_flows_order(self, entries):
        flat = torch.empty_like(entries)
        flat[self._objective.order] = entries
        return flat

    def step(self, batch):
        """Take one step on a batch (b, d); return its loss before, nats per sample."""
        loss = self._objective(batch)
        with torch.inference_mode():
            self._clip(batch.numel() * math.log(2.0))
            self._adam()
            return loss / len(batch)

    def _clip(self, n_bits):
        # What is clipped is the gradient in bits per dimension, the one at hand divided by
        # n_bits, so that the clipping means the same at every d (BERT-flow).
        norm = torch.linalg.vector_norm(self.gradient)
        self.gradient.div_(norm.div_(MAX_GRADIENT_NORM).clamp_(min=n_bits))

    def _adam(self):
        self.first_moment.lerp_(self.gradient, 1.0 - BETA1)
        self.second_moment.mul_(BETA2)
        self.second_moment.addcmul_(self.gradient, self.gradient, value=1.0 - BETA2)
        self.vector.mul_(self._decay)
        torch.sqrt(self.second_moment, out=self._denominator).add_(EPSILON)
        self.vector.addcdiv_(self.first_moment, self._denominator, value=-self.learning_rate)

    @_on_one_thread
    def epoch(self, X, rows, batch_size, rng, progress=iter):
        """Train on the given rows of X in random order.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            May be a memory map: rows are read as they are needed.
        rows : ndarray of int
        batch_size : int
            Rows per step.
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
        jitter, axes = self.flow.standardize.jitter.cpu().numpy(), self.flow.standardize.axes
        degenerate = np.flatnonzero(jitter)
        batches = _batches(self._resident(X), rows, batch_size, rng)
        steps = range(-(-len(rows) // batch_size))
        good, total = self.state(), 0.0
        recent = torch.zeros_like(self.vector[0])
        for step in progress(steps):
            batch = self._tensor(next(batches))
            if len(degenerate):
                noise = rng.standard_normal((len(batch), len(degenerate)))
                noise = self._tensor(jitter[degenerate] * noise)
                if axes is None:
                    batch[:, degenerate] += noise
                else:
                    batch += noise @ axes[:, degenerate].T
            recent += self._taking(batch.shape, len(steps))(batch)
            if (step + 1) % CHECK_EVERY == 0 or step == steps[-1]:
                good = self._checked(good, recent)
                total += float(recent)
                recent.zero_()
        return total / len(steps)

    def _taking(self, shape, n_steps):
        """Return what takes ``n_steps`` steps on batches of this shape fastest."""
        if not self._on_gpu or (self._recorded is None and n_steps < RECORDED_FROM):
            return self.step
        if self._recorded is None:
            try:
                self._recorded = RecordedStep(self, shape)
            except torch.cuda.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self._on_gpu = False
                warnings.warn(
                    f"A training step could not be recorded as a CUDA graph ({error}); "
                    "training goes on without, at a fraction of the speed.",
                    UserWarning,
                    stacklevel=2,
                )
                return self.step
        return self._recorded if shape == self._recorded.batch.shape else self.step

    def _resident(self, X):
        """Return X on the GPU, where there is one with room for it; else X itself."""
        if not self._on_gpu or X.nbytes > LARGE_BYTES:
            return X
        if self._data is None or self._data[0] is not X:
            try:
                self._data = X, self._tensor(np.array(X))
            except torch.cuda.OutOfMemoryError:
                return X
        return self._data[1]

    def evaluate(self, blocks):
        """Return the mean loss over all rows, nats per sample; change nothing."""
        self.write_back()
        with torch.inference_mode():
            losses = [-self.flow.log_prob(self._tensor(block)).double() for block in blocks]
            return float(torch.cat(losses).mean())

    def round_trip(self, rows):
        """Send rows to the latent space and back, and as many samples the other way.

        Returns
        -------
        error : float
            Largest difference over the largest entry, if that is above 1; of standardised
            columns.
        reach : float
            Farthest that a sample lies from the mean, in standard deviations.
        """
        self.write_back()
        with torch.inference_mode():
            x, _ = self.flow.standardize(self._tensor(rows))
            z = self._tensor(np.random.RandomState(0).standard_normal(x.shape))
            sample, _ = self.flow.back_through_levels(z)
            there, _ = self.flow.through_levels(x)
            x_error = self.flow.back_through_levels(there)[0] - x
            z_error = self.flow.through_levels(sample)[0] - z
            errors = [
                error.abs().max() / start.abs().max().clamp(min=1.0)
                for error, start in ((x_error, x), (z_error, z))
            ]
            return float(torch.stack(errors).max()), float(sample.abs().max())

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


def _batches(X, rows, batch_size, rng):
    """Yield copies of the given rows of X in random order, batch by batch.

    The last batch is filled up from the head of the order, so that none is small. X may be a
    tensor, if it is not large.
    """
    if X.nbytes <= LARGE_BYTES:
        order = _filled_up(rng.permutation(rows), batch_size)
        if isinstance(X, torch.Tensor):
            order = torch.from_numpy(order).to(X.device)
        for start in range(0, len(order), batch_size):
            yield X[order[start : start + batch_size]]
        return
    runs = np.array_split(rows, -(-len(rows) // RUN_ROWS))
    order = np.concatenate([runs[index] for index in rng.permutation(len(runs))])
    order = _filled_up(order, batch_size)
    pool_rows = batch_size * max(1, POOL_BYTES // (batch_size * X[0].nbytes))
    for pool_start in range(0, len(order), pool_rows):
        pool = X[np.sort(order[pool_start : pool_start + pool_rows])]
        pool_order = rng.permutation(len(pool))
        for start in range(0, len(pool), batch_size):
            yield pool[pool_order[start : start + batch_size]]


def _filled_up(order, batch_size):
    return np.concatenate((order, order[: -len(order) % batch_size]))
