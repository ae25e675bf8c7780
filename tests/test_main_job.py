"""The main job: search pooling, layers, calibrator and dimensions."""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from skcalib import BertEncoder, BiEncoder, NormalizingFlow, Whitening
from skcalib.datasets import load_toy_sts


@pytest.fixture(scope="module")
def search(minilm):
    pairs, grades = load_toy_sts(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(pairs))
    pairs, grades = pairs[order], grades[order]
    model = BiEncoder(Pipeline([("encode", BertEncoder(minilm)), ("calibrate", Whitening())]))
    shared = {"encoder__encode__pooling": ["mean", "zipf"]}
    shared["encoder__encode__layers"] = [0, (0, 1)]
    grid = [
        {**shared, "encoder__calibrate": ["passthrough", NormalizingFlow(random_state=0)]},
        {
            **shared,
            "encoder__calibrate": [Whitening()],
            "encoder__calibrate__n_components": [32, 128],
            "encoder__calibrate__shrinkage": [0.1, "auto"],
        },
    ]
    search = GridSearchCV(model, grid, cv=2, error_score="raise")
    return search.fit(pairs[:200], grades[:200]), pairs[200:], grades[200:]


def test_search_ranks_all_candidates(search):
    search, *_ = search
    scores = search.cv_results_["mean_test_score"]
    assert len(scores) == 4 * 2 + 4 * 4
    assert np.isfinite(scores).all()
    assert len(np.unique(scores)) > 12


def test_search_result_beats_raw_vectors_on_new_pairs(search, minilm):
    search, pairs, grades = search
    raw = BiEncoder(BertEncoder(minilm, layers=0)).fit(pairs)
    assert search.score(pairs, grades) > raw.score(pairs, grades) + 0.03
