"""Vectors that were not trained for similarity: the last layer and the default stay."""

import shutil

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from searches import chosen, rows, searched
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, BiEncoder, Whitening
from skcalib.datasets import load_questions, load_toy_sts
from skcalib.evaluation import evaluate_labeled

ONCE, TWICE = "red {text} dog", "red {text} dog {text}"

# Of vectors of a random model, and of few texts.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The mean of these vectors is between"),
    pytest.mark.filterwarnings("ignore:.*close candidates cannot be distinguished"),
]


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


@pytest.mark.filterwarnings("ignore:One column holds most of the variance")
def test_the_last_layer_stays_with_the_default_where_both_kinds_do_not_agree(
    raw_model, sentences
):
    search = searched(raw_model, sentences, pooling=["mean", "last"], n_texts=100)
    better = [r for r in rows(search) if min(r["halves_low"], r["thinned_low"]) > 0]
    better = [r for r in better if r["candidate"] == "whitening"]  # raw ones are no choice
    best = chosen(search)
    assert best["candidate"] == "whitening"
    if not better:
        assert (best["pooling"], best["layers"]) == ("mean", max(search.cv_results_["layers"]))
        assert "stays, the default where no vectors were trained" in search.reason_
    expected = make_pipeline(
        BertEncoder(raw_model, pooling=best["pooling"], layers=best["layers"]),
        Whitening(power="auto"),
    ).fit_transform(sentences)
    assert_allclose(search.transform(sentences), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("given", [None, ONCE])
def test_each_prompt_is_a_pass_and_the_first_one_stays(given, tiny_bert, sentences, encoded):
    encoder = BertEncoder(tiny_bert, prompt=given)
    params = {"layers": [3], "pooling": "mean", "n_texts": 50}
    searched(encoder, sentences, **params)
    n_alone = sum(encoded)
    encoded.clear()
    prompts = [given, TWICE, ONCE]
    search = searched(encoder, sentences, prompt=prompts, **params)
    n_prompts = len({*prompts})
    tried = search.cv_results_["prompt"]
    assert [*dict.fromkeys(tried)] == [*dict.fromkeys(prompts)]
    # All texts are encoded once more by the last fit, with the chosen prompt.
    assert n_alone < sum(encoded) <= n_prompts * n_alone
    best = chosen(search)
    used = search.best_estimator_["encode"].prompt
    assert used == tried[search.best_index_]
    assert used == given or min(best["halves_low"], best["thinned_low"]) > 0


def test_a_prompt_under_which_texts_are_read_is_chosen(tiny_bert, sentences):
    """After the first prompt only a few words of a text are left."""
    encoder = BertEncoder(tiny_bert, max_length=34, layers=0)
    params = {"layers": 0, "pooling": "mean", "n_texts": 100}
    search = searched(encoder, sentences, prompt=["dog " * 28, None], **params)
    assert search.best_estimator_["encode"].prompt is None
    assert "prompt='dog dog" in search.reason_


def test_a_prompt_that_does_not_fit_is_found_out_before_anything_is_encoded(
    tiny_bert, sentences, encoded
):
    with pytest.raises(ValueError, match=r"has \{text\} 3 times"):
        searched(tiny_bert, sentences, prompt=[None, 3 * "{text} "], n_texts=50)
    assert encoded == []


def graded(pipeline):
    pairs, grades = load_toy_sts(return_X_y=True)
    return 100 * BiEncoder(FrozenEstimator(pipeline)).fit(pairs).score(pairs, grades)


def grouped(pipeline):
    texts, labels = load_questions(return_X_y=True)
    table = evaluate_labeled({"": pipeline}, texts, labels, scores=("R-precision",))
    return table.scores[0, 0]


# MiniLM reads altered copies of the texts, from which layers are chosen: some 4 s each.
@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("task", [graded, grouped])
def test_a_choice_loses_no_point_to_the_default_on_the_last_layer(task, minilm):
    """Layer 5 of MiniLM as the last one, which was not trained for cosines itself.

    Copies with words dropped prefer the embedding layer, which has 11 points less on the
    toy set and 15 less on questions, and so does the sum of both kinds.
    """
    load = load_toy_sts if task is graded else load_questions
    texts = np.unique(load().data.astype(str))[:250]
    last = BertEncoder(minilm, layers=5)
    search = searched(last, texts, layers=[0, 1, 3, 5], pooling=["mean", "max"], n_texts=150)
    default = make_pipeline(last, Whitening(power="auto")).fit(texts)
    assert task(search) > task(default) - 1
    results = pd.DataFrame(search.cv_results_)
    best = results.loc[results["thinned"].idxmax()]
    assert best["layers"] == 0  # so that another rule would have failed
