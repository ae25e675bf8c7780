"""Layers of a model that was never trained for similarity: none is preferred."""

import shutil

import numpy as np
import pytest

from skcalib import CalibrationSearch


@pytest.fixture(scope="module")
def raw_model(tiny_sink_decoder, tmp_path_factory):
    """Folder of a decoder whose last layer has an outlier column, too."""
    from transformers import GPT2Model

    folder = tmp_path_factory.mktemp("raw") / "model"
    shutil.copytree(tiny_sink_decoder, folder)
    model = GPT2Model.from_pretrained(folder)
    model.ln_f.weight.data[3], model.ln_f.bias.data[3] = 20, 40
    model.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(("n_words", "kind"), [(8, "score"), (24, "halves")])
@pytest.mark.filterwarnings("ignore:One column holds most of the variance")
@pytest.mark.filterwarnings("ignore:.*close candidates cannot be distinguished")
def test_the_best_score_decides_of_the_kind_that_the_length_of_texts_allows(
    n_words, kind, raw_model, words
):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words, n_words)) for _ in range(80)]
    poolings = ["mean", "mean_without_first"]
    search = CalibrationSearch(raw_model, pooling=poolings, n_texts=80).fit(texts)
    found, chosen = search.cv_results_, search.best_index_
    assert "No layer of this model was trained" in search.reason_
    # A lead stands in the row of the best calibration of a layer and pooling.
    rivals = [i for i, lead in enumerate(found["lead"]) if not np.isnan(lead)]
    if kind == "score":
        rivals = [i for i in rivals if found["layers"][i] != 0]
    assert chosen == max(rivals, key=lambda i: found[kind][i])
    encoder = search.best_estimator_["encode"]
    assert (encoder.pooling_, encoder.layers_) == (
        found["pooling"][chosen],
        (found["layers"][chosen],),
    )
