"""What counts as evidence: near-duplicates once, and leads beyond chance."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from searches import chance, chosen, searched
from sklearn import config_context

from skcalib.model_selection.encoders import State
from skcalib.model_selection.scores import Candidate, Scored, choose
from skcalib.model_selection.views import near_duplicates
from skcalib.statistics.bootstrap import leads

# Of vectors of a random model.
pytestmark = pytest.mark.filterwarnings("ignore:The mean of these vectors is between")


def test_another_hidden_state_is_chosen_where_its_lead_is_beyond_chance(tiny_bert, sentences):
    search = searched(tiny_bert, sentences, pooling=["mean"], n_texts=100)
    best = chosen(search)
    assert best["layers"] < 3  # random blocks spoil what the embeddings know
    for kind in ("halves", "thinned"):
        lead, low, high = (best[f"{kind}_{end}"] for end in ("lead", "low", "high"))
        assert 0 < low < lead < high
        assert f"{100 * lead:+.1f} ({100 * low:+.1f} to" in search.reason_


def test_shipped_hidden_state_is_kept_where_the_lead_may_be_chance(tiny_bert, sentences):
    params = {"layers": [2, 3], "pooling": ["mean", "zipf"], "n_texts": 100}
    for seed in range(5):
        search = searched(tiny_bert, sentences, random_state=seed, **params)
        best, frame = chosen(search), pd.DataFrame(search.cv_results_)
        is_better = (frame["halves_low"] > 0) & (frame["thinned_low"] > 0)
        is_kept = (best["pooling"], best["layers"], best["candidate"]) == ("mean", 3, "raw")
        assert is_kept == (not is_better.any()), seed
        assert ("The raw model stays" in search.reason_) == is_kept, seed
        if not is_kept:
            least = frame[["halves_lead", "thinned_lead"]].min(axis=1)
            assert search.best_index_ == least[is_better].idxmax(), seed


def lead_of_best(ranks, groups, seed=0):
    """The best of several candidates, and how far it leads the first."""
    found = leads(ranks, groups, seed)
    return max(enumerate(found), key=lambda one: one[1].mean)


def even(rng, shape):
    """Differences between hard and easy texts, and of candidates."""
    return rng.normal(size=(1, shape[1])) + rng.normal(size=shape)


def skewed(rng, shape):
    """Rare large losses: the mean is 0, the median a small gain."""
    return 0.3 * (1 - rng.exponential(size=shape)) * (np.arange(shape[0])[:, None] > 0)


@pytest.mark.parametrize("drawn", [even, skewed])
@pytest.mark.parametrize(("n", "n_candidates"), [(20, 15), (60, 5), (200, 15)])
def test_the_best_of_many_equal_candidates_is_rarely_called_better(drawn, n, n_candidates):
    # With one standard error for all resamples, skewed ones are in 43, 15 and 8 % of runs.
    rng, groups, found = np.random.default_rng(0), np.arange(n), 0
    for seed in range(200):
        ranks = drawn(rng, (n_candidates + 1, n))
        found += lead_of_best(ranks, groups, seed)[1].is_gain
    assert found <= 11  # 2.5 % are 5


def test_a_clear_lead_among_many_candidates_is_found():
    rng, n = np.random.default_rng(0), 200
    ranks = rng.normal(size=(1, n)) + rng.normal(size=(28, n))
    ranks[17] += 0.5
    groups = np.arange(n)
    best, lead = lead_of_best(ranks, groups)
    assert best == 17
    assert 0 < lead.low < lead.mean < lead.high


def scored(seed=0, is_raw_output=False, **gains):
    """Candidates in one state; gains of halves and of copies with words dropped."""
    rng = np.random.default_rng(seed)
    shared, rows = rng.uniform(0.2, 0.6, size=(2, 300)), []
    for name in ("raw", "whitening", "pca"):
        ranks = shared + np.reshape(gains.get(name, (0, 0)), (2, 1))
        ranks = ranks + rng.normal(scale=0.05, size=shared.shape) * (name != "raw")
        candidate = Candidate(name, "passthrough" if name == "raw" else name)
        rows.append(Scored(State(), candidate, ranks, is_raw_output))
    return rows


@pytest.mark.parametrize(
    ("gains", "params", "determined_by", "expected"),
    [
        ({}, {}, "", "raw"),
        ({}, {"is_raw_output": True}, "", "whitening"),
        ({}, {}, "task='duplicates'", "whitening"),
        ({"whitening": (0.03, 0.03)}, {}, "", "whitening"),
        ({"raw": (0.03, 0.03)}, {"is_raw_output": True}, "", "whitening"),
        ({"raw": (0.03, 0.03)}, {}, "task='duplicates'", "whitening"),
        # One kind of the score alone is no evidence.
        ({"whitening": (0, 0.1)}, {}, "", "raw"),
        ({"whitening": (0.1, 0)}, {}, "", "raw"),
        ({"pca": (0, 0.1)}, {"is_raw_output": True}, "", "whitening"),
        ({"pca": (0.03, 0.03)}, {"is_raw_output": True}, "", "pca"),
        ({"pca": (0.03, 0.03)}, {}, "task='duplicates'", "pca"),
        # Of those that are better, the smaller lead decides.
        ({"pca": (0.02, 0.1), "whitening": (0.04, 0.04)}, {}, "", "whitening"),
        ({"pca": (0.05, 0.1), "whitening": (0.04, 0.04)}, {}, "", "pca"),
    ],
)
def test_a_calibration_is_chosen_by_evidence(gains, params, determined_by, expected):
    rows = scored(**params, **gains)
    chosen, reason = choose(rows, np.arange(300), 0, determined_by)
    assert chosen.candidate.name == expected
    assert repr(expected) in reason or expected == "raw"


def test_of_equal_calibrations_one_is_rarely_called_better():
    n_others = 0
    for seed in range(60):
        chosen, _ = choose(scored(seed=seed), np.arange(300), seed=0)
        n_others += chosen.candidate.name != "raw"
    assert n_others <= 2  # both kinds together: far below 2.5 %


def templated(n_templates, n_each, n_words=9):
    """Texts of which ``n_each`` differ in one word only."""
    return [
        " ".join([*(f"{i}.{j}" for j in range(n_words)), f"name{i}.{k}"])
        for i in range(n_templates)
        for k in range(n_each)
    ]


def test_near_duplicates_of_near_duplicates_are_one_group():
    """Five words each, of which neighbors in a chain share four; its ends share none."""
    chains = [" ".join(f"{c}.{i + j}" for j in range(5)) for c in range(3) for i in range(8)]
    expected = np.repeat(np.arange(3), 8)
    for draw in range(5):
        order = np.random.default_rng(draw).permutation(24)
        with config_context(working_memory=7 * 24 * 8 / 2**20):  # blocks of seven texts
            groups = near_duplicates([chains[i] for i in order])
        same = groups[:, None] == groups
        assert_array_equal(same, expected[order][:, None] == expected[order])
        assert sorted({*groups.tolist()}) == [0, 1, 2]


def test_texts_of_one_template_are_one_piece_of_evidence():
    # Taken for independent, two equal encoders are told apart in 30 % of these runs.
    groups = near_duplicates(templated(30, 20))
    assert_array_equal(groups, np.repeat(np.arange(30), 20))
    rng, found = np.random.default_rng(0), 0
    for seed in range(200):
        ranks = rng.normal(size=(2, 30))[:, groups] + rng.normal(size=(2, 600))
        found += lead_of_best(ranks, groups, seed)[1].is_gain
    assert found <= 7  # of one side, 2.5 % are 5


@pytest.mark.parametrize(
    ("n_templates", "n_each", "reason"),
    [
        (40, 10, "No candidate leads"),
        (5, 80, "400 texts share most of their words and count as 5 groups"),
        (300, 1, "No candidate leads"),
    ],
)
def test_reason_counts_near_duplicates_once(n_templates, n_each, reason):
    search = searched(chance, templated(n_templates, n_each), n_texts=400)
    assert reason in search.reason_
    assert (search.cv_results_["halves_high"][1] == 1) == (n_templates < 20)
