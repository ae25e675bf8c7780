"""Intervals of the bootstrap cover as often as they promise, also with few groups."""

import numpy as np
import pytest

from skcalib.statistics.bootstrap import interval

SIZES = {"20 texts": np.ones(20, int), "50 texts": np.ones(50, int)}
SIZES["30 groups, as 1, 1/2, 1/3, ..."] = 60 // np.arange(1, 31)


@pytest.mark.parametrize("skew", [False, True])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_few_groups_cover_as_often_as_many(sizes, skew):
    # Quantiles of the resampled means miss in 8.6, 6.4 and 9.4 %, of skewed values in 11 %. In
    # 10,000 draws these miss in 4.2, 4.6 and 4.6 %, of skewed values in 5.0, 4.1 and 6.1 %.
    rng, groups, missed = np.random.default_rng(0), np.repeat(np.arange(len(sizes)), sizes), []
    for draw in range(8):
        # Texts of a group depend on each other.
        values = rng.normal(size=(250, len(sizes)))
        values = (1 - rng.exponential(size=values.shape) if skew else values)[:, groups]
        values = values + rng.normal(size=values.shape) * (1 - 0.9 * skew)
        low, high = interval(values, groups, draw)
        missed += [*((low > 0) | (high < 0))]
    is_worst = skew and sizes.max() > 1
    assert np.mean(missed) <= (1.3 if is_worst else 1.2) * 0.05
