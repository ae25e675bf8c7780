"""Alarms on streams of texts: false ones in streams without a change, and delays after one.

Contenders: `ShiftMonitor`, and three alarms with usual thresholds, each once for 100 texts of
the stream: the population stability index (PSI, above 0.2) and Kolmogorov-Smirnov's test (p
below 0.05), both of the squared Mahalanobis distance, and the cosine distance of the centroids
(above 0.1). All compare with the same reference.

"none" has the percentage of 1,000 streams of 2,000 texts with an alarm although nothing
changes. For the changes, 50 streams have 1,000 unchanged texts first: "delay" is the median
number of texts from the change to the alarm, among the streams without an alarm before, or "-"
if half of them have none within 2,000 texts; "early" is the percentage with an alarm before.

References and streams are drawn with replacement from texts that the whitening was not fitted
on, so that texts repeat. Changes: from one genre of STS-B to the other (its test file is sorted
by genre); from English to German; from questions of bank customers to intents for an assistant;
and from the encoder to another one of the same width, for the same texts.
"""

import numpy as np
from data import labeled, pairs, sentences
from scipy.stats import ks_2samp

from skcalib import Whitening
from skcalib.inspection import ShiftMonitor, mahalanobis

STREAMS, LENGTH = 1000, 2000
CHANGED, BEFORE, AFTER = 50, 1000, 2000
BATCH = 100
REFERENCES = 200, 1000
OTHER = {"minilm": "e5", "e5": "minilm"}
CONTENDERS = "ShiftMonitor", "PSI", "Kolmogorov-Smirnov", "centroids"


def rows(encode, options):
    first, second = np.array_split(pairs("stsb")[0], 2)
    bank = labeled("Banking77", "test")[0]
    new_model = encode.named(OTHER[encode.name])
    changes = {
        "none": (sentences(), sentences(), encode),
        "genre": (first, second, encode),
        "language": (sentences(), pairs("stsb-de")[0], encode),
        "domain": (bank, labeled("intents", "test")[0], encode),
        "model": (bank, bank, new_model),
    }
    for change in options.only or changes:
        old, new, to = changes[change]
        old, new = encode(distinct(old)), to(distinct(new))
        in_two = np.random.default_rng(0).permutation(len(old)) % 2
        whitening, old = Whitening(noise="auto").fit(old[in_two == 0]), old[in_two == 1]
        for size in REFERENCES:
            if change == "none":
                sizes = size, LENGTH, 0
                found = [alarms(whitening, old, new, sizes, i) for i in range(STREAMS)]
                yield row(change, size, 100 * np.mean(np.isfinite(found), axis=0))
                continue
            sizes = size, BEFORE, AFTER
            found = np.array([alarms(whitening, old, new, sizes, i) for i in range(CHANGED)])
            early = found <= BEFORE
            later = np.where(early, np.nan, found - BEFORE)
            yield row(f"{change}: delay", size, [median(column) for column in later.T])
            yield row(f"{change}: early", size, 100 * early.mean(axis=0))


def distinct(texts):
    return np.unique(np.asarray(texts, str).ravel())


def median(delays):
    delays = delays[~np.isnan(delays)]
    return np.quantile(delays, 0.5, method="higher") if len(delays) else np.inf


def row(change, size, values):
    shown = [f"{value:.0f}" if np.isfinite(value) else "-" for value in values]
    if change == "none":
        shown = [f"{value:.1f}" for value in values]
    return {"change": change, "reference": size} | dict(zip(CONTENDERS, shown, strict=True))


def alarms(whitening, old, new, sizes, seed):
    """Count the texts until the first alarm of each contender, infinite without one."""
    rng = np.random.default_rng(seed)
    reference, before, after = (
        pool[rng.integers(len(pool), size=n)]
        for pool, n in zip((old, old, new), sizes, strict=True)
    )
    stream = np.concatenate([before, after])
    monitor = ShiftMonitor(whitening).fit(reference).update(stream)
    usual, distances = mahalanobis(whitening, reference), mahalanobis(whitening, stream)
    batches = [slice(i, i + BATCH) for i in range(0, len(stream), BATCH)]
    found = [raised(stream[b], distances[b], reference, usual) for b in batches]
    first = [
        BATCH * (1 + np.argmax(column)) if np.any(column) else np.inf
        for column in np.transpose(found)
    ]
    return [monitor.shifted_at_ or np.inf, *first]


def raised(X, distances, reference, usual):
    """Whether the alarms with fixed thresholds are raised by a batch alone."""
    edges = np.quantile(usual, np.linspace(0, 1, 11)[1:-1])
    counts = [np.bincount(np.searchsorted(edges, d), minlength=10) for d in (usual, distances)]
    expected, observed = (np.maximum(c / c.sum(), 1e-4) for c in counts)
    psi = np.sum((observed - expected) * np.log(observed / expected))
    a, b = reference.mean(axis=0), X.mean(axis=0)
    cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    return psi > 0.2, ks_2samp(usual, distances).pvalue < 0.05, 1 - cosine > 0.1
