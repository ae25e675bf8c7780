"""`CalibrationSearch`: its candidates, what it chooses, and what it leaves alone."""

import pickle
import re
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from searches import chance, chosen, numbered, rows, searched
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, BiEncoder, CalibrationSearch, NeighborSmoothing, Whitening
from skcalib.datasets import fetch_sts
from skcalib.model_selection import SelfRetrieval

# Of vectors of a random model.
pytestmark = pytest.mark.filterwarnings("ignore:The mean of these vectors is between")


def hashed(texts):
    """Sum of random vectors of the words, around a mean of all entries."""
    words = [[sum(map(ord, word)) for word in text.split()] for text in texts]
    drawn = [[np.random.default_rng(w).normal(size=16) for w in of_text] for of_text in words]
    return np.array([1 + np.sum(of_text, axis=0) for of_text in drawn])


def states(search):
    return {(row["pooling"], row["layers"]) for row in rows(search)}


def test_all_hidden_states_and_calibrations_are_candidates(calibrated):
    found = {(row["pooling"], row["layers"], row["candidate"]) for row in rows(calibrated)}
    expected = {(p, i) for p in ("mean", "cls", "max", "zipf") for i in range(4)} - {("cls", 0)}
    assert found == {(*state, name) for state in expected for name in ("raw", "whitening")}
    assert calibrated.n_texts_ == 100


def test_scores_of_raw_candidates_are_those_of_the_scorer_on_either_half(
    calibrated, tiny_bert, sentences, tmp_path
):
    asked = []
    SelfRetrieval(n_texts=100)(lambda texts: asked.extend(texts) or chance(texts), sentences)
    sample = [text for text in dict.fromkeys(asked) if text in sentences]
    kinds = [SelfRetrieval(n_texts=50, thinned=weight) for weight in (0, 1)]
    for row in rows(calibrated):
        if row["candidate"] == "raw":
            state = {"pooling": row["pooling"], "layers": row["layers"]}
            encoder = BertEncoder(tiny_bert, **state, memory=tmp_path).fit(sentences)
            halves, thinned = (
                np.mean([scorer(encoder, sample[i::2]) for i in (0, 1)]) for scorer in kinds
            )
            assert row["halves"] == pytest.approx(halves, abs=2e-3)
            assert row["thinned"] == pytest.approx(thinned, abs=2e-3)


def test_the_results_are_a_frame_that_starts_with_the_raw_model(calibrated):
    frame = pd.DataFrame(calibrated.cv_results_)
    described = ["pooling", "layers", "prompt", "candidate", "calibrator"]
    assert frame.loc[0, described].tolist() == ["mean", 3, None, "raw", "passthrough"]
    assert frame[described].astype(str).duplicated().sum() == 0
    best = frame.loc[calibrated.best_index_]
    for kind in ("halves", "thinned"):
        assert ((frame[kind] > 0) & (frame[kind] <= 1)).all()
        lead, low, high = (frame[f"{kind}_{end}"] for end in ("lead", "low", "high"))
        assert_allclose(lead, frame[kind] - frame[kind][0], atol=1e-12)
        assert lead[0] == low[0] == high[0] == 0
        assert (low[1:] < high[1:]).all()
        # Evidence for another candidate than the raw model.
        assert best.name == 0 or best[f"{kind}_low"] > 0


def test_the_best_estimator_is_the_candidate_chosen_fitted_on_all_texts(
    calibrated, tiny_bert, sentences
):
    best, pipeline = chosen(calibrated), calibrated.best_estimator_
    assert list(pipeline.named_steps) == ["encode", "calibrate"]
    assert best["calibrator"] == str(pipeline["calibrate"])
    encoder = BertEncoder(tiny_bert, pooling=best["pooling"], layers=best["layers"])
    expected = make_pipeline(encoder, clone(pipeline["calibrate"], safe=False))
    expected = expected.fit_transform(sentences)
    assert_allclose(pipeline.transform(sentences), expected, rtol=1e-4, atol=1e-4)
    assert_array_equal(calibrated.transform(sentences), pipeline.transform(sentences))


@pytest.mark.parametrize("as_pairs", [False, True])
def test_the_search_is_deterministic_in_any_order(calibrated, tiny_bert, sentences, as_pairs):
    texts = np.array(sentences).reshape(2, 50).T if as_pairs else sentences[::-1]
    again = searched(tiny_bert, texts, n_texts=100)
    assert_allclose(again.cv_results_["halves"], calibrated.cv_results_["halves"], atol=2e-3)
    assert again.best_index_ == calibrated.best_index_


def test_it_is_a_step_of_a_pipeline_and_of_a_grid_search(tiny_bert, sentences):
    classes = np.arange(100) % 2
    search = CalibrationSearch(tiny_bert, task="duplicates", layers=[3], pooling="mean")
    model = make_pipeline(search, LogisticRegression()).fit(sentences, classes)
    back = pickle.loads(pickle.dumps(model))
    assert_array_equal(back.predict_proba(sentences), model.predict_proba(sentences))
    assert len(model[:1].get_feature_names_out()) == model[0].transform(["a dog"]).shape[1]
    grid = {"calibrationsearch__task": ["duplicates", "topics"]}
    grid = GridSearchCV(model, grid, cv=2, error_score="raise").fit(sentences, classes)
    assert len(grid.cv_results_["params"]) == 2
    assert grid.best_estimator_[0].task == grid.best_params_["calibrationsearch__task"]
    with pytest.raises(NotFittedError):
        clone(model[0]).transform(sentences)


def test_whatever_takes_an_encoder_takes_a_search(tiny_bert, sentences):
    search = CalibrationSearch(tiny_bert, task="duplicates", layers=[3], pooling="mean")
    model = BiEncoder(search).fit(sentences)
    expected = BiEncoder(search.fit(sentences).best_estimator_).fit(sentences)
    pairs = list(pairwise(sentences))
    assert_allclose(model.predict(pairs), expected.predict(pairs), atol=1e-6)


def test_own_candidates_are_tried_and_chosen_by_both_scores(sentences):
    class Signal(TransformerMixin, BaseEstimator):
        """Keep the columns that words have, and drop those of noise."""

        def fit(self, X, y=None):
            self.n_kept_ = 16
            return self

        def transform(self, X):
            return X[:, : self.n_kept_]

    def noisy(texts):
        return np.hstack([hashed(texts), 6 * chance(texts)])

    own = [("signal", Signal()), ("pca", PCA(2))]
    search = searched(noisy, sentences, candidates=own, n_texts=100)
    names = search.cv_results_["candidate"].tolist()
    assert names == ["raw", "whitening", "signal", "pca"]
    assert chosen(search)["candidate"] == "signal"
    assert re.match(r"'signal' leads 'raw' by .* in halves and .* in thinned", search.reason_)
    assert isinstance(search.best_estimator_["calibrate"], Signal)
    search = searched(noisy, sentences, candidates=own, task="duplicates", n_texts=100)
    assert chosen(search)["candidate"] == "signal"  # rather than what the task asks for


def test_a_candidate_under_a_name_of_the_default_ones_replaces_it(sentences):
    own = [("mean", PCA(2))]
    search = searched(hashed, sentences, candidates=own, task="duplicates")
    assert isinstance(search.best_estimator_["calibrate"], PCA)
    own = [("whitening", PCA(2))]
    search = searched(hashed, sentences, candidates=own, n_texts=100)
    assert search.cv_results_["candidate"].tolist() == ["raw", "whitening"]
    assert search.cv_results_["calibrator"][1] == "PCA(n_components=2)"


def test_candidates_stay_as_they_are(sentences):
    pca = PCA(2)
    search = CalibrationSearch(hashed, candidates=[("mean", pca)], task="duplicates")
    search.fit(sentences)
    assert not hasattr(pca, "components_")
    twin = clone(search)
    assert twin.candidates[0][1] is not pca
    assert repr(twin) == repr(search)


def test_repeated_texts_count_once(tiny_bert, sentences):
    params = {"layers": [3], "pooling": "mean", "n_texts": 100, "task": "topics"}
    once = searched(tiny_bert, sentences, **params)
    repeated = searched(tiny_bert, sentences + 9 * sentences[:20], **params)
    expected = once.transform(sentences)
    assert_allclose(repeated.transform(sentences), expected, atol=1e-5)


def test_texts_too_short_to_compare_layers_keep_the_raw_ones(tiny_bert, words):
    # Half of a text says nothing of its other half.
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.permutation(words)[:6]) for _ in range(300)]
    search = searched(tiny_bert, texts, n_texts=300)
    assert (chosen(search)["pooling"], chosen(search)["layers"]) == ("mean", 3)
    assert "The raw model stays" in search.reason_


def test_a_search_fits_encoders_without_the_texts_they_are_scored_on(sentences):
    class Memorizing(TransformerMixin, BaseEstimator):
        """Knows the texts that it has seen, and nothing else."""

        def fit(self, X, y=None):
            self.seen_ = {word: i for i, word in enumerate(sorted(set(" ".join(X).split())))}
            return self

        def transform(self, X):
            rows = np.full((len(X), len(self.seen_) + 1), 1e-3)
            for row, text in zip(rows, X, strict=True):
                for word in text.split():
                    row[self.seen_.get(word, -1)] += 1
            return rows

    texts = [f"{i}a {i}b " * 4 for i in range(200)]  # no word in two of them
    for unfitted in (Memorizing(), Memorizing().fit(texts)):
        assert searched(unfitted, texts, n_texts=200).cv_results_["thinned"][0] < 0.1
    frozen = searched(FrozenEstimator(Memorizing().fit(texts)), texts, n_texts=200)
    assert frozen.cv_results_["thinned"][0] > 0.9


def test_nothing_is_calibrated_where_that_does_not_help(words):
    # One word over and over: raw vectors find every view, and nothing finds more.
    texts = [" ".join([word] * 20) for word in words]
    search = searched(hashed, texts, n_texts=40)
    assert chosen(search)["candidate"] == "raw"
    assert search.best_estimator_["calibrate"] == "passthrough"
    assert search.transform(texts[:1]).shape == (1, 16)


def test_several_hidden_states_may_be_merged(tiny_bert, sentences):
    params = {"pooling": "mean", "layers": ["last2", (0, 1), 0, -4]}
    search = searched(tiny_bert, sentences, **params, n_texts=100)
    assert {*search.cv_results_["layers"]} == {3, 0, (2, 3), (0, 1)}
    layers = chosen(search)["layers"]
    expected = layers if isinstance(layers, tuple) else (layers,)
    assert search.best_estimator_["encode"].layers_ == expected
    merged = BertEncoder(tiny_bert, layers=(2, 3))
    search = searched(merged, sentences, pooling="mean", layers=[(0, 1)], n_texts=100)
    assert {*search.cv_results_["layers"]} == {(2, 3), (0, 1)}


@pytest.mark.filterwarnings("ignore:.*unknown to this model")
def test_texts_that_the_model_cannot_tell_apart_are_named(tiny_bert):
    texts = [" ".join([f"unbekannt{i}"] * 8) for i in range(20)]
    with pytest.raises(ValueError, match="the same vector with pooling='mean', lay"):
        searched(tiny_bert, texts, n_texts=20)


def test_zipf_is_left_out_of_a_vocabulary_without_frequencies(
    make_bert, words, sentences, tmp_path
):
    model = make_bert(tmp_path / "model", words=tuple(sorted(words)))
    search = searched(model, sentences, n_texts=100)
    assert {*search.cv_results_["pooling"]} == {"mean", "cls", "max"}


@pytest.fixture
def declaring(tiny_bert_copy):
    """Folder of a model that declares its pooling."""
    folder = tiny_bert_copy()
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    return folder


def test_declared_layer_and_pooling_stay_unless_others_are_asked_for(declaring, sentences):
    assert states(searched(declaring, sentences, n_texts=100)) == {("cls", 3)}
    for asked in ({"layers": [0, 3]}, {"pooling": ["mean", "cls"]}):
        assert len(states(searched(declaring, sentences, n_texts=100, **asked))) > 2


def test_declared_pooling_is_a_candidate_whatever_was_asked_for(declaring, sentences):
    search = searched(declaring, sentences, layers=[0], pooling=["mean"], n_texts=100)
    first = rows(search)[0]
    assert (first["pooling"], first["layers"], first["candidate"]) == ("cls", 3, "raw")
    assert states(search) == {("cls", 3), ("mean", 0)}


def test_memory_is_used_and_kept(tiny_bert, sentences, tmp_path, encoded):
    encoder = BertEncoder(tiny_bert, memory=tmp_path)
    first = searched(encoder, sentences, n_texts=50)
    assert encoded
    assert first.best_estimator_["encode"].memory == tmp_path
    encoded.clear()
    again = searched(encoder, sentences, n_texts=50)
    assert encoded == []
    assert_array_equal(again.cv_results_["halves"], first.cv_results_["halves"])


@pytest.mark.parametrize("n_texts", [50, 100], ids=["a sample", "all texts"])
def test_without_memory_no_folder_is_left(tiny_bert, sentences, n_texts, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    search = searched(tiny_bert, sentences, n_texts=n_texts)
    assert search.best_estimator_["encode"].memory is None
    assert search.transform(["a man plays"]).shape[0] == 1
    assert list(tmp_path.iterdir()) == []


def test_candidates_share_the_other_parameters_of_an_encoder(tiny_bert, sentences, tmp_path):
    encoder = BertEncoder(tiny_bert, max_length=7, truncate_dim=9, pooling="zipf")
    cut = rf"\d+ of {len(set(sentences))} texts were cut off at max_length=7"
    with pytest.warns(UserWarning, match=cut) as seen:
        search = searched(encoder, sentences, layers=[1], pooling=["mean"], n_texts=100)
    assert len([w for w in seen if "cut off" in str(w.message)]) == 1  # none of its views
    used = search.best_estimator_["encode"]
    assert (used.max_length, used.truncate_dim) == (7, 9)
    assert used.pooling == "mean"
    assert not hasattr(encoder, "layers_")  # what was given stays unfitted


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"texts": numbered(19)}, ValueError, "Found 19 distinct texts of 6 words"),
        ({"layers": [9]}, ValueError, "hidden state 9"),
        ({"pooling": ["median"]}, ValueError, "pooling"),
        ({"task": "clusters"}, ValueError, "'task' parameter of CalibrationSearch must be"),
        (
            {"encoder": chance, "pooling": "mean"},
            ValueError,
            "pooling, layers or prompt with a TextE",
        ),
        ({"n_groups": 1}, ValueError, "'n_groups' parameter of CalibrationSearch"),
        ({"n_groups": 4, "task": "duplicates"}, ValueError, "n_groups=4 with task='dupl"),
        ({"candidates": "pca"}, ValueError, "'candidates' parameter of CalibrationSearch"),
        ({"candidates": [("pca", PCA)]}, TypeError, "has .*; expected pairs of a name and a"),
        ({"candidates": [("raw", PCA(2))]}, ValueError, "name 'raw', which another"),
        ({"candidates": 2 * [("pca", PCA(2))]}, ValueError, "name 'pca', which another"),
        ({"encoder": "no/where"}, OSError, "neither a local folder"),
    ],
)
def test_errors_of_a_search(tiny_bert, sentences, params, error, message, encoded):
    arguments = {"encoder": tiny_bert, "texts": sentences, "n_texts": 100} | params
    with pytest.raises(error, match=message):
        searched(**arguments)
    assert encoded == []  # found out before anything is encoded


def test_topics_are_smoothed(tiny_bert, sentences):
    params = {"layers": [3], "pooling": "mean", "n_texts": 100}
    search = searched(tiny_bert, sentences, task="topics", **params)
    assert list(search.best_estimator_.named_steps) == ["encode", "calibrate", "smooth"]
    expected = make_pipeline(
        BertEncoder(tiny_bert), Whitening(power="auto"), NeighborSmoothing()
    ).fit_transform(sentences)
    assert_allclose(search.transform(sentences), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("params", "step"),
    [
        ({"task": "similarity"}, Whitening(power="auto", n_groups="many")),
        ({"task": "duplicates"}, Whitening(power=0)),
        ({"task": "topics"}, Whitening(power="auto")),
        ({"task": "topics", "n_groups": 4}, Whitening(power="auto", n_groups=4)),
        ({"n_groups": 4}, Whitening(power="auto", n_groups=4)),
    ],
)
@pytest.mark.parametrize("n_words", [2, 12])
def test_a_task_determines_the_calibration_of_texts_of_any_length(
    params, step, n_words, tiny_bert, sentences
):
    texts = list(dict.fromkeys(" ".join(text.split()[:n_words]) for text in sentences))
    encoder = BertEncoder(tiny_bert, layers=3, pooling="mean")
    for given, n_texts in ((FrozenEstimator(encoder.fit(texts)), 100), (tiny_bert, 20)):
        search = searched(given, texts, n_texts=n_texts, **params)
        assert str(search.best_estimator_["calibrate"]) == str(step)
        if n_words == 2 or given is not tiny_bert:
            name, *_ = [f"{key}={value!r}" for key, value in params.items()]
            assert f"follows from {name}" in search.reason_
            encoder = search.best_estimator_["encode"]
            assert getattr(encoder, "layers_", (3,)) == (3,)
            expected = clone(step).fit_transform(encoder.transform(texts))
            found = search.best_estimator_[:2].transform(texts)
            assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_where_there_is_nothing_to_choose_nothing_is_scored(sentences):
    asked = []

    def counted(texts):
        asked.extend(texts)
        return chance(texts)

    search = searched(counted, sentences, task="topics")
    assert {*asked} == {*sentences}  # no fragments of them
    assert search.n_texts_ == search.best_index_ == 0
    assert np.isnan(search.cv_results_["halves"]).tolist() == [True]
    assert "there is nothing else to compare" in search.reason_
    assert searched(counted, sentences, n_texts=100).n_texts_ == 100


def test_a_difference_that_may_be_chance_keeps_the_model(sentences):
    texts = [f"{text} {i} {i}" for i, text in enumerate(sentences)]
    search = searched(chance, texts, n_texts=100)
    assert all(row["halves_low"] <= 0 <= row["halves_high"] for row in rows(search))
    assert search.best_index_ == 0
    assert "No candidate leads" in search.reason_


# MiniLM reads altered copies of real texts, from which layers are chosen: some 4 s.
@pytest.mark.usefixtures("remembered")  # each text goes through the model once
def test_what_is_chosen_without_labels_is_as_good_as_what_is_shipped(sts_home, minilm):
    texts = fetch_sts("stsb", "train", data_home=sts_home).data.ravel()
    texts = np.random.default_rng(0).choice(np.unique(texts.astype(str)), 100, replace=False)
    params = {"layers": [0, 3, 6], "pooling": ["mean", "zipf"], "n_texts": 80}
    search = searched(minilm, texts, **params)
    assert search.best_estimator_["encode"].layers_ == (6,)
    pairs, grades = fetch_sts("stsb", "dev", data_home=sts_home, return_X_y=True)
    pairs, grades = pairs[::16], grades[::16]
    chosen, shipped = (
        100 * BiEncoder(FrozenEstimator(encoder)).fit(pairs).score(pairs, grades)
        for encoder in (search, BertEncoder(minilm).fit([""]))
    )
    assert chosen > shipped - 0.3
