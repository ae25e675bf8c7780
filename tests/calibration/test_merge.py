"""Merging parts of a corpus: the features must be the same, in the same order."""

import numpy as np
import pytest
from estimators import OF_VECTORS

import skcalib
from skcalib import GroupErasure

X = np.random.default_rng(0).normal(size=(80, 4)) * [1, 2, 3, 4]
GROUPS = {"groups": np.arange(80) % 2}


MERGING = [
    kind for kind in (getattr(skcalib, name) for name in OF_VECTORS) if hasattr(kind, "merge")
]


@pytest.mark.parametrize("estimator", MERGING)
def test_columns_in_another_order_are_not_added(estimator):
    pd = pytest.importorskip("pandas")
    groups = GROUPS if estimator is GroupErasure else {}
    frame = pd.DataFrame(X, columns=list("abcd"))
    fitted = estimator().fit(frame, **groups)
    before = fitted.transform(frame)
    with pytest.raises(ValueError, match=r"of 4 features; this one .* differ from feature 0"):
        fitted.merge(estimator().fit(frame[list("dcba")], **groups))
    np.testing.assert_array_equal(fitted.transform(frame), before)
    np.testing.assert_allclose(
        fitted.merge(estimator().fit(frame + 1e-9, **groups)).transform(frame), before, rtol=0.1
    )
    with pytest.raises(ValueError, match=r"of 4 features; this one .* differ from feature 0"):
        fitted.merge(estimator().fit(X, **groups))
    with pytest.raises(ValueError, match=r"of 3 features; this one .* differ from feature 3"):
        estimator().fit(X, **groups).merge(estimator().fit(X[:, :3], **groups))
