"""evaluate_sts, the papers' tables, and evaluate_pairs."""

import csv
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import spearmanr
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, BiEncoder, TextEncoder, Whitening
from skcalib.datasets import fetch_sts, load_toy_sts
from skcalib.evaluation import ScoreTable, evaluate_labeled, evaluate_pairs, evaluate_sts
from skcalib.metrics import aggregate

# The tiny BERT knows fifty words.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*unknown to this model", "ignore:.*have no content for the encoder"
)


class Waves(TransformerMixin, BaseEstimator):
    """Vectors of a text without a model; remembers in a list what it was fitted on."""

    def __init__(self, seen=None):
        self.seen = seen

    def __sklearn_clone__(self):
        return type(self)(self.seen)  # the same list

    def fit(self, X, y=None):
        if self.seen is not None:
            self.seen.append(list(X))
        self.fitted_ = True
        return self

    def transform(self, X):
        # Depends on every character and its place: no ties but between equal texts.
        codes = [np.array([ord(c) for c in text])[:, None] for text in X]
        frequencies = np.sqrt(np.arange(2, 9))
        return np.array([np.sin(c * frequencies + np.arange(7)).mean(axis=0) for c in codes])


@pytest.fixture(scope="module")
def data_home(tmp_path_factory):
    """Folder with three small benchmarks, parts of the toy set; sts12 has two subsets."""
    folder = tmp_path_factory.mktemp("sts")
    toy = load_toy_sts()
    rows = [
        {"sentence1": a, "sentence2": b, "score": grade, "subset": subset}
        for (a, b), grade, subset in zip(toy.data, toy.target, toy.subset, strict=True)
    ]
    parts = {"stsb-train": rows[:50], "stsb-test": rows[180:240], "sts12-test": rows[50:150]}
    for name, part in parts.items():
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, fieldnames=list(part[0]))
            writer.writeheader()
            writer.writerows(part)
    return folder


def by_hand(encoder, fit_texts, sts):
    """Spearman's rho of cosines by scipy, times 100."""
    a, b = (encoder.fit(fit_texts).transform(column) for column in sts.data.T)
    cosines = np.sum(a * b, axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return 100 * spearmanr(sts.target, cosines).statistic


@pytest.mark.parametrize("fit_on", ["target", "train", "all", "texts"])
def test_scores_are_those_computed_by_hand(data_home, fit_on):
    """The folder has training and test pairs of STS-B, and test pairs of STS12."""
    encoder = make_pipeline(Waves(), Whitening(shrinkage=0.1))
    others = ["an abode", "a cube", "a duo", "some idea", "beau"]
    given = others if fit_on == "texts" else fit_on
    table = evaluate_sts(encoder, ["STS-B", "sts12"], fit_on=given, data_home=data_home)
    parts = {
        part: fetch_sts(*part, data_home=data_home).data.ravel().tolist()
        for part in [("stsb", "train"), ("stsb", "test"), ("sts12", "test")]
    }
    expected = []
    for task in ("stsb", "sts12"):
        texts = {
            "target": [t for part, texts in parts.items() if part[0] == task for t in texts],
            "train": parts["stsb", "train"],
            "all": [text for texts in parts.values() for text in texts],
            "texts": others,
        }[fit_on]
        sts = fetch_sts(task, data_home=data_home)
        expected.append(by_hand(encoder, list(dict.fromkeys(texts)), sts))
    # In points. Rounding ranks the cosines of pairs of equal texts, which are all 1.
    assert_allclose(table.scores, [[*expected, np.mean(expected)]], atol=0.02)
    assert (table.rows, table.columns) == (("Pipeline",), ("STS-B", "sts12", "average"))


def test_target_fits_on_each_benchmark_and_the_others_once(data_home):
    seen = []
    for fit_on in ("target", "train", "all"):
        evaluate_sts(Waves(seen), ["stsb", "sts12"], fit_on=fit_on, data_home=data_home)
    assert len(seen) == 4


@pytest.mark.parametrize("how", ["all", "mean", "wmean"])
def test_aggregation_is_of_the_subsets(data_home, how):
    sts = fetch_sts("sts12", data_home=data_home)
    assert len(set(sts.subset)) > 1
    predicted = BiEncoder(Waves()).fit(sts.data).predict(sts.data)
    table = evaluate_sts(Waves(), "sts12", aggregate=how, data_home=data_home)
    expected = 100 * aggregate(sts.target, predicted, sts.subset, how)
    assert table.scores[0, 0] == pytest.approx(expected, rel=1e-9)


def test_rows_are_the_encoders_by_name_and_stay_unfitted(data_home):
    named = {"one": Waves(), "two": make_pipeline(Waves(), Whitening(2))}
    table = evaluate_sts(named, "stsb", data_home=data_home)
    assert table.rows == ("one", "two")
    alone = evaluate_sts(named["two"], "stsb", data_home=data_home)
    assert_array_equal(table.scores[1:], alone.scores)
    assert not hasattr(named["one"], "fitted_")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"tasks": "sts17"}, ValueError, "task='sts17' is unknown. Use one of stsb"),
        ({"fit_on": "dev"}, ValueError, "'target', 'train', 'all' or a list of texts"),
        ({"fit_on": [1, 2]}, TypeError, "fit_on has 1 of type int"),
        ({"aggregate": "median"}, ValueError, "'all', 'mean' or 'wmean'"),
        ({"encoder": 3}, TypeError, "encoder is of type int; expected the folder"),
        ({"encoder": {"a": BertEncoder}}, TypeError, "is a class, not an instance"),
        (
            {"encoder": BiEncoder(Waves())},
            TypeError,
            "is of type BiEncoder; expected",
        ),
    ],
)
def test_errors_say_what_is_expected(arguments, error, message):
    defaults = {"encoder": Waves(), "tasks": "toy"}
    with pytest.raises(error, match=re.escape(message)):
        evaluate_sts(**(defaults | arguments))


def test_a_benchmark_that_is_missing_shows_before_anything_is_fitted(data_home):
    seen = []
    with pytest.raises(FileNotFoundError, match=r"sts13-test\.csv"):
        evaluate_sts(Waves(seen), ["stsb", "sts13"], data_home=data_home)
    for wrong in ({"aggregate": "median"}, {"tasks": []}):
        with pytest.raises(ValueError, match=r"evaluate_sts got .*one benchmark or more"):
            evaluate_sts(Waves(seen), **{"tasks": "stsb", "data_home": data_home} | wrong)
    assert seen == []


@pytest.mark.parametrize("aggregate", ["mean", "wmean"])
def test_subsets_that_the_source_does_not_name_are_not_aggregated(aggregate, tmp_path):
    rows = "a man,a dog,1\nthe snow,a song,2\na cat,the cat,5\n"
    for task in ("sts13", "sickr"):
        (tmp_path / f"{task}-test.csv").write_text(f"sentence1,sentence2,score\n{rows}")
    with pytest.raises(ValueError, match="needs the subsets of sts13"):
        evaluate_sts(Waves(), "sts13", aggregate=aggregate, data_home=tmp_path)
    evaluate_sts(Waves(), "sickr", aggregate=aggregate, data_home=tmp_path)  # has none


TABLE = ScoreTable(("raw", "a <b>"), ("stsb", "average"), np.array([[1.25, 2], [-3, 4.06]]))


def test_table_is_aligned_markdown():
    lines = str(TABLE).splitlines()
    assert len(lines) == 4
    assert len({len(line) for line in lines}) == 1
    assert [cell.strip() for cell in lines[3].strip("|").split("|")] == ["a <b>", "-3.0", "4.1"]
    assert TABLE._repr_markdown_() == str(TABLE)  # which a notebook renders


def test_every_evaluation_keeps_the_fit_of_a_fitted_encoder(data_home):
    """As calibrate returns it; another one is cloned and fitted on the scored texts."""
    texts = fetch_sts("stsb", "train", data_home=data_home).data.ravel()[:40]
    fitted = make_pipeline(Waves(), Whitening(2)).fit([f"fitted on {i}" for i in range(40)])
    frozen, fresh = FrozenEstimator(fitted), clone(fitted)

    def of_sts(encoder):
        return evaluate_sts(encoder, "stsb", data_home=data_home).scores

    def of_labels(encoder):
        return evaluate_labeled(encoder, texts, np.arange(len(texts)) % 2).scores

    for scores in of_sts, of_labels:
        assert_array_equal(scores(fitted), scores(frozen))
        assert not np.array_equal(scores(fitted), scores(fresh))


@pytest.fixture
def paired():
    """Numbers of texts with noisy vectors, their pairs, and labels of alike ones."""
    rng = np.random.default_rng(0)
    labels = rng.random(300) < 0.3
    X = rng.normal(size=(600, 5)).round(1)
    X[300:][labels] += X[:300][labels]

    def encode(noise):
        noisy = X + noise * np.random.default_rng(1).normal(size=X.shape)
        return TextEncoder(lambda texts: noisy[[int(text) for text in texts]])

    return encode, [(str(i), str(300 + i)) for i in range(300)], labels.astype(int)


def test_pairs_are_scored_as_by_scikit_learn(paired):
    encode, pairs, labels = paired
    table = evaluate_pairs({"noisy": encode(1), "exact": encode(0)}, pairs, labels)
    assert (table.rows, table.columns) == (("noisy", "exact"), ("average precision", "ROC AUC"))
    for row, noise in zip(table.scores, (1, 0), strict=True):
        cosines = BiEncoder(encode(noise)).fit(pairs).predict(pairs)
        expected = average_precision_score(labels, cosines), roc_auc_score(labels, cosines)
        assert_allclose(row, 100 * np.array(expected))
    assert_array_equal(table.intervals[0], 0)
    low, high = table.intervals[1].T
    difference = table.scores[1] - table.scores[0]
    assert_allclose((low + high) / 2, difference)
    assert (low > 0).all()
    again = evaluate_pairs({"noisy": encode(1), "exact": encode(0)}, pairs, labels)
    assert str(again) == str(table)
    assert re.search(
        r"300 pairs, \d+ with label 1\. The first row's .* ±\d+\.\d and ±", table.note
    )


def test_pairs_fit_on_their_texts_or_others(paired):
    _, pairs, labels = paired
    seen = []
    evaluate_pairs(Waves(seen), pairs, labels)
    evaluate_pairs(Waves(seen), pairs, labels, fit_on=["some", "others"])
    assert [len(texts) for texts in seen] == [600, 2]


def test_intervals_of_pairs_are_those_of_delong(paired):
    """DeLong's variance of a difference of two areas, from the ranks of each pair's cosine."""
    encode, pairs, labels = paired
    table = evaluate_pairs({"a": encode(1), "b": encode(0)}, pairs, labels)
    placed = []
    for noise in (1, 0):
        cosines = BiEncoder(encode(noise)).fit(pairs).predict(pairs)
        placed.append(cosines[labels == 1][:, None] > cosines[labels == 0])
    differences = placed[1] * 1.0 - placed[0]
    means = [differences.mean(axis=axis) for axis in (0, 1)]
    error = 100 * np.sqrt(sum(mean.var() / len(mean) for mean in means))
    assert np.ptp(table.intervals[1, 1]) == pytest.approx(2 * 1.96 * error, rel=0.15)


def test_labels_of_pairs_are_0_and_1(paired):
    encode, pairs, labels = paired
    for wrong in (labels * 0, labels + 1, labels.astype(str)):
        with pytest.raises(ValueError, match="expected 0 and 1, and both of them"):
            evaluate_pairs(encode(0), pairs, wrong)
    with pytest.raises(ValueError, match="inconsistent numbers"):
        evaluate_pairs(encode(0), pairs[:-1], labels)
