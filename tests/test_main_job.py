"""The main job: search pooling, layers, calibrator and dimensions; use the result elsewhere."""

import subprocess
import sys

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose
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
    shared = {
        "encoder__encode__pooling": ["mean", "zipf"],
        "encoder__encode__layers": [0, (0, 1)],
    }
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


def test_pickled_calibrator_gives_the_same_vectors_in_another_process(search, tmp_path):
    search, pairs, _ = search
    pipeline = search.best_estimator_.encoder_
    joblib.dump(pipeline, tmp_path / "pipeline.joblib")
    joblib.dump(list(pairs[:, 0]), tmp_path / "texts.joblib")
    code = (
        "import sys, joblib, numpy as np; folder = sys.argv[1];"
        "load = lambda name: joblib.load(f'{folder}/{name}.joblib');"
        "np.save(folder + '/out.npy', load('pipeline').transform(load('texts')))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=600)
    # Equal to rounding: the number of threads of a process may turn the last bit.
    expected = pipeline.transform(list(pairs[:, 0]))
    assert_allclose(np.load(tmp_path / "out.npy"), expected, rtol=1e-5, atol=1e-5)
