"""The main job, README's first command: search pooling, layers, calibrator and dimensions."""

import re
import runpy

import joblib
import numpy as np
import pytest
from loading import ROOT
from numpy.testing import assert_allclose

from skcalib import BertEncoder, BiEncoder
from skcalib.datasets import load_docstrings

CALIBRATORS = {"none (raw vectors)", "mean subtracted", "PCA", "whitening"}
CALIBRATORS |= {"whitening, smoothed", "normalizing flow"}


def test_the_main_job(minilm, tmp_path, monkeypatch):
    """The example, on 75 texts of each of three parts.

    This takes some 15 s, because the grid is the one that README's first command searches.
    """
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    texts, parts = load_docstrings(return_X_y=True)
    large = np.bincount(parts).argsort()[-3:]
    few = np.concatenate([np.flatnonzero(parts == part)[:75] for part in large])
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setattr("skcalib.datasets.load_docstrings", lambda **_: (texts[few], parts[few]))
        printed = []
        patch.setattr("builtins.print", lambda *values: printed.extend(map(str, values)))
        names = runpy.run_path(str(ROOT / "examples" / "plot_grid_search.py"))
        matplotlib.pyplot.close("all")
    printed = "\n".join(printed)
    the_table_has_the_best_candidate_of_each_calibrator(names, printed)
    what_is_chosen_beats_the_model_as_shipped_on_new_texts(names, printed, minilm)
    the_files_are_there_and_the_pipeline_takes_any_texts(names, printed, tmp_path)
    names["folder"].cleanup()


def the_table_has_the_best_candidate_of_each_calibrator(names, printed):
    rows = re.findall(r"^(.+?)  +(\w+) +(\S+) +(\w+) +(-?[\d.]+)(?= |$)", printed, re.M)
    assert {row[0] for row in rows} == CALIBRATORS
    assert len(rows) == len(CALIBRATORS)
    scores = 100 * names["search"].cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    for *candidate, score in rows:
        same = [i for i, of in enumerate(names["candidates"]) if of[0] == candidate[0]]
        best = same[np.argmax(scores[same])]
        assert names["candidates"][best] == tuple(candidate)
        assert float(score) == pytest.approx(scores[best], abs=0.051)
    assert float(rows[0][-1]) == pytest.approx(scores.max(), abs=0.051)


def what_is_chosen_beats_the_model_as_shipped_on_new_texts(names, printed, minilm):
    known, new, pairs, grades = (names[name] for name in ("known", "new", "pairs", "grades"))
    assert not set(pairs[known].ravel()) & set(pairs[new].ravel())
    shipped = BiEncoder(BertEncoder(minilm)).fit(pairs[known]).score(pairs[new], grades[new])
    chosen = names["search"].best_estimator_.score(pairs[new], grades[new])
    assert f"new texts: {100 * chosen:.1f}, the model as shipped {100 * shipped:.1f}" in printed
    assert chosen > shipped + 0.03


def the_files_are_there_and_the_pipeline_takes_any_texts(names, printed, folder):
    saved = {path.name for path in folder.iterdir()}
    assert saved == {"grid_search.png", "best_pipeline.joblib"}
    assert all(f"\n  {name} " in printed for name in saved)
    texts = ["Compute a determinant.", "any text"]
    vectors = joblib.load(folder / "best_pipeline.joblib").transform(texts)
    assert_allclose(vectors, names["best"].transform(texts), atol=1e-5)
