"""Time NormalizingFlow against other Glows on sentence vectors.

All contenders have 2 levels (or as many steps as the library allows), depth 3, coupling width
32, additive couplings, reversed order, and one epoch of batches of 32:

- ``skcalib``: ``NormalizingFlow().fit``
- ``autograd``: the same Glow with plain autograd and torch's fused AdamW
- ``published``: BERT-flow's layout, 1 x 1 convolutions on 1 x 1 images with an ActNorm after
  each hidden one, and AdamW
- ``nflows``, ``normflows``, ``zuko``: the closest flow that each library offers, where it is
  installed

Each seed is a round of all contenders. Speeds are compared within a round, so that a slow
minute affects all of them. The seconds of skcalib are those of ``fit``, including its checks of
the data and its standardization. Those of the others start when they are ready to train::

    SKCALIB_DATA=folder python benchmarks/flow.py --features 384 --threads 1 --seeds 5

Without SKCALIB_DATA the rows are drawn from a normal distribution, and the bits per dimension
mean nothing.
"""

import argparse
import contextlib
import math
import os
import time

import numpy as np
import torch
from torch import nn

from skcalib import BertEncoder, NormalizingFlow
from skcalib.calibration.flow.glow import Glow
from skcalib.datasets import fetch_sts, minilm_path

WIDTH, LEVELS, DEPTH, BATCH = 32, 2, 3, 32
SETS = ("sickr", "sts12", "sts13", "sts14", "sts15", "sts16", "stsb")


def load_rows(n_rows, n_features):
    if "SKCALIB_DATA" not in os.environ:
        rng = np.random.default_rng(0)
        return rng.standard_normal((n_rows, n_features), dtype=np.float32)
    pairs = np.concatenate([fetch_sts(task, return_X_y=True)[0] for task in SETS])
    texts = np.random.default_rng(0).permutation(np.unique(pairs.astype(str)))[:n_rows]
    layers = {384: 0, 768: (0, 3)}[n_features]
    encoder = BertEncoder(minilm_path(), layers=layers, layer_merge="concat", device="cpu")
    return encoder.fit_transform(texts.tolist())


class ConvNorm(nn.Module):
    """ActNorm on (n, d, 1, 1), initialized by its first batch, with a log-scale in thirds."""

    def __init__(self, width):
        super().__init__()
        self.loc = nn.Parameter(torch.zeros(1, width, 1, 1))
        self.log_scale = nn.Parameter(torch.zeros(1, width, 1, 1))
        self.ready = False

    def forward(self, x):
        if not self.ready:
            with torch.no_grad():
                self.loc.copy_(-x.mean(dim=0, keepdim=True))
                std = x.std(dim=0, keepdim=True, correction=0)
                self.log_scale.copy_(-torch.log(std + 1e-6) / 3)
            self.ready = True
        return torch.exp(3 * self.log_scale) * (x + self.loc)


class ConvStep(nn.Module):
    """ActNorm, reversed order and additive coupling as convolutions."""

    def __init__(self, width):
        super().__init__()
        half = width // 2
        self.norm = ConvNorm(width)
        order = torch.eye(width).flip(0)[:, :, None, None]
        self.register_buffer("order", order.contiguous())
        self.hidden = nn.Sequential(
            nn.Conv2d(half, WIDTH, 1, bias=False),
            ConvNorm(WIDTH),
            nn.ReLU(),
            nn.Conv2d(WIDTH, WIDTH, 1, bias=False),
            ConvNorm(WIDTH),
            nn.ReLU(),
        )
        self.last = nn.Conv2d(WIDTH, half, 1)
        self.last_scale = nn.Parameter(torch.zeros(1, half, 1, 1))
        for layer in self.hidden:
            if isinstance(layer, nn.Conv2d):
                nn.init.normal_(layer.weight, 0, 0.05)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, x):
        x = nn.functional.conv2d(self.norm(x), self.order)
        x1, x2 = x.chunk(2, dim=1)
        shift = self.last(self.hidden(x1)) * torch.exp(3 * self.last_scale)
        return torch.cat((x1, x2 + shift), dim=1), 3 * self.norm.log_scale.sum()


class ConvGlow(nn.Module):
    """Multi-scale architecture of these steps."""

    def __init__(self, width):
        super().__init__()
        levels = [width // 2**level for level in range(LEVELS)]
        self.levels = nn.ModuleList(
            nn.ModuleList(ConvStep(w) for _ in range(DEPTH)) for w in levels
        )

    def forward(self, x):
        x, logabsdet, leaving = x[:, :, None, None], 0.0, []
        for level in self.levels:
            for step in level:
                x, term = step(x)
                logabsdet = logabsdet + term
            if level is not self.levels[-1]:
                x, out = x.chunk(2, dim=1)
                leaving.append(out)
        return torch.cat((*leaving, x), dim=1).flatten(1), logabsdet

    def log_prob(self, x):
        z, logabsdet = self(x)
        return logabsdet - 0.5 * (z.square() + math.log(2 * math.pi)).sum(dim=1)


class MLP(nn.Module):
    """Coupling network for the libraries; nflows passes a context, which is None."""

    def __init__(self, n_in, n_out):
        super().__init__()
        last = nn.Linear(WIDTH, n_out)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.layers = nn.Sequential(
            nn.Linear(n_in, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), last
        )

    def forward(self, x, context=None):
        return self.layers(x)


def nflows_glow(d):
    from nflows.distributions import StandardNormal
    from nflows.flows import Flow
    from nflows.transforms import (
        ActNorm,
        AdditiveCouplingTransform,
        CompositeTransform,
        ReversePermutation,
    )

    mask = (torch.arange(d) >= d // 2).int()
    steps = []
    for _ in range(LEVELS * DEPTH):
        steps += [ActNorm(d), ReversePermutation(d), AdditiveCouplingTransform(mask, MLP)]
    flow = Flow(CompositeTransform(steps), StandardNormal([d]))
    return flow, flow.log_prob, lambda x: flow.transform_to_noise(x)


def normflows_glow(d):
    import normflows as nf

    steps = []
    for _ in range(LEVELS * DEPTH):
        coupling = nf.flows.AffineCouplingBlock(MLP(d // 2, d - d // 2), scale=False)
        steps += [coupling, nf.flows.Permute(d, mode="swap"), nf.flows.ActNorm(d)]
    flow = nf.NormalizingFlow(nf.distributions.DiagGaussian(d, trainable=False), steps)
    return flow, flow.log_prob, lambda x: flow.inverse(x)


def zuko_nice(d):
    import zuko

    flow = zuko.flows.NICE(d, transforms=LEVELS * DEPTH, hidden_features=(WIDTH, WIDTH))
    return flow, lambda x: flow().log_prob(x), lambda x: flow().transform(x)


def our_glow(X):
    flow = Glow(X.shape[1], LEVELS, DEPTH, WIDTH, "additive", "reverse")
    flow.initialize(np.random.RandomState(0), X.mean(axis=0), X.std(axis=0))
    return flow, flow.log_prob, flow


def conv_glow(d):
    flow = ConvGlow(d)
    return flow, flow.log_prob, flow


def train_torch(build, X, seed, device):
    """Train for one epoch; return seconds, bits per dimension and rows per second."""
    torch.manual_seed(seed)
    flow, log_prob, forward = build()
    flow.to(device).train()
    rows = torch.from_numpy(X).to(device)
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    with torch.no_grad():
        log_prob(rows[:BATCH])  # data-dependent initialization, lazy modules
    optimizer = torch.optim.AdamW(flow.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    synchronize()
    start = time.perf_counter()
    for index in torch.randperm(len(rows)).to(device).split(BATCH):
        loss = -log_prob(rows[index]).mean() / (X.shape[1] * math.log(2))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), 1.0)
        optimizer.step()
    synchronize()
    seconds = time.perf_counter() - start
    flow.eval()
    with torch.no_grad():
        bits = -float(log_prob(rows).mean()) / (X.shape[1] * math.log(2))
        start = time.perf_counter()
        for block in rows.split(1024):
            forward(block)
        synchronize()
    return seconds, bits, len(rows) / (time.perf_counter() - start)


def train_skcalib(X, seed, device):
    start = time.perf_counter()
    flow = NormalizingFlow(random_state=seed, device=device).fit(X)
    seconds = time.perf_counter() - start
    flow.transform(X[:BATCH])
    start = time.perf_counter()
    flow.transform(X)
    speed = len(X) / (time.perf_counter() - start)
    return seconds, flow.bits_per_dim(X), speed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=17256)
    parser.add_argument("--features", type=int, default=384, choices=(384, 768))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    X = load_rows(arguments.rows, arguments.features)
    d, device = X.shape[1], arguments.device
    contenders = {"skcalib": lambda seed, X: train_skcalib(X, seed, device)}
    for name, build in {
        "autograd": lambda: our_glow(X),
        "published": lambda: conv_glow(d),
        "nflows": lambda: nflows_glow(d),
        "normflows": lambda: normflows_glow(d),
        "zuko": lambda: zuko_nice(d),
    }.items():
        contenders[name] = lambda seed, X, build=build: train_torch(build, X, seed, device)

    for train in contenders.values():  # imports, allocators and caches
        with contextlib.suppress(ImportError):
            train(0, X[:2048])
    results = {name: [] for name in contenders}
    for seed in range(arguments.seeds):
        for name, train in contenders.items():
            with contextlib.suppress(ImportError):
                results[name].append(train(seed, X))
    print(f"{len(X)} x {d}, {device}, {arguments.threads} thread(s), torch {torch.__version__}")
    print("median [min, max] over the seeds; ratios to skcalib are within a round")
    print("| contender | s per epoch | ratio to skcalib | bits per dim | 1000 rows/s mapped |")
    print("|---|---|---|---|---|")
    ours = np.array(results["skcalib"])[:, 0]
    for name, runs in results.items():
        if not runs:
            print(f"| {name} | not installed | | | |")
            continue
        seconds, bits, speed = np.array(runs).T
        columns = (seconds, "{:.3f}"), (seconds / ours, "{:.1f}"), (bits, "{:.3f}")
        cells = [spread(*column) for column in (*columns, (speed / 1000, "{:.0f}"))]
        print(f"| {name} | " + " | ".join(cells) + " |")


def spread(values, form):
    """Format a median and the range."""
    return "{0} [{0}, {0}]".replace("{0}", form).format(
        np.median(values), values.min(), values.max()
    )


if __name__ == "__main__":
    main()
