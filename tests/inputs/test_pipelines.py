"""Data beside ``X`` that the steps of a pipeline skip is refused."""

import numpy as np
import pytest
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer

from skcalib import SimilarityScale, Whitening

rng = np.random.default_rng(0)
X, OTHER = rng.normal(size=(300, 16)) + 2, rng.normal(size=(60, 16)) + 1


@pytest.mark.parametrize(
    ("step", "name", "data"),
    [
        (SimilarityScale(), "unanswerable", OTHER),
        (
            make_pipeline(Normalizer(), SimilarityScale()),
            "similarityscale__unanswerable",
            OTHER,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_data_that_skips_steps_is_refused(step, name, data):
    pipeline = Pipeline([("white", Whitening()), ("last", step)])
    with pytest.raises(ValueError, match=f"behind other steps .* its {name.split('__')[-1]}"):
        pipeline.fit(X, **{f"last__{name}": data})
