"""Merging parts of a corpus: the features must be the same, in the same order."""

from functools import reduce

import numpy as np
import pytest

from skcalib import Whitening

X = np.random.default_rng(0).normal(size=(80, 4)) * [1, 2, 3, 4]


def test_columns_in_another_order_are_not_added():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abcd"))
    fitted = Whitening().fit(frame)
    before = fitted.transform(frame)
    with pytest.raises(ValueError, match=r"of 4 features; this one .* in another order"):
        fitted.merge(Whitening().fit(frame[list("dcba")]))
    np.testing.assert_array_equal(fitted.transform(frame), before)
    np.testing.assert_allclose(
        fitted.merge(Whitening().fit(frame + 1e-9)).transform(frame), before, rtol=0.1
    )
    with pytest.raises(ValueError, match=r"of 4 features; this one .* in another order"):
        fitted.merge(Whitening().fit(X))
    with pytest.raises(ValueError, match=r"of 3 features; this one has 4"):
        Whitening().fit(X).merge(Whitening().fit(X[:, :3]))


def test_parts_with_other_parameters_are_not_added():
    one, other = Whitening().fit(X[:40]), Whitening(power="auto").fit(X[40:])
    with pytest.raises(
        ValueError, match=r"Whitening\(power='auto'\); this one is Whitening\(\)"
    ):
        one.merge(other)
    merged = one.merge(other.set_params(**one.get_params()))
    np.testing.assert_allclose(merged.transform(X), Whitening().fit_transform(X))


def test_parts_may_be_merged_again():
    parts = [Whitening().fit(X[rows]) for rows in (slice(0, 40), slice(40, 80), slice(20, 60))]
    before = [part.transform(X) for part in parts]
    rows = [*range(80), *range(20, 60)]
    whole = Whitening().fit(X[rows])
    for _ in range(2):
        merged = reduce(lambda one, other: one.merge(other), parts)
        np.testing.assert_allclose(merged.transform(X), whole.transform(X), atol=1e-10)
    for part, expected in zip(parts, before, strict=True):
        np.testing.assert_array_equal(part.transform(X), expected)
    merged.partial_fit(X + 5)
    np.testing.assert_array_equal(parts[0].transform(X), before[0])
    assert parts[0].merge() is not parts[0]
