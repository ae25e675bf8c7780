"""What counts as evidence: near-duplicates once, and leads beyond chance."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from searches import chance, chosen, searched
from sklearn import config_context

from skcalib.model_selection._candidates import Candidate, Evidence
from skcalib.model_selection._scores import Found, Scored, choose
from skcalib.model_selection._views import near_duplicates
from skcalib.statistics.bootstrap import leads


def test_another_hidden_state_is_chosen_where_its_lead_is_beyond_chance(tiny_bert, sentences):
    search = searched(tiny_bert, sentences, pooling=["mean"], n_texts=100)
    best = chosen(search)
    assert best["layers"] < 3  # random blocks spoil what the embeddings know
    assert 0 < best["lead_low"] < best["lead"] < best["lead_high"]
    lead = f"{100 * best['lead']:+.1f} ({100 * best['lead_low']:+.1f} to"
    assert f"leads that of the raw model by {lead}" in search.reason_


def test_shipped_hidden_state_is_kept_where_the_lead_may_be_chance(tiny_bert, sentences):
    params = {"layers": [2, 3], "pooling": ["mean", "zipf"], "n_texts": 100}
    for seed in range(5):
        search = searched(tiny_bert, sentences, random_state=seed, **params)
        is_kept = (chosen(search)["pooling"], chosen(search)["layers"]) == ("mean", 3)
        frame = pd.DataFrame(search.cv_results_)
        leader = frame.loc[frame["lead"].idxmax()]
        assert is_kept == (not leader["lead_low"] > 0), seed
        assert ("leads that of the raw model" in search.reason_) == (not is_kept), seed


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


def scored(seed=0, asked=False, **gains):
    """Candidates of one layer and pooling; gains of halves and of copies with words dropped."""
    rng = np.random.default_rng(seed)
    shared, found = rng.uniform(0.2, 0.6, size=(2, 300)), []
    for name in ("raw", "mean", "whitening", "strong"):
        ranks = shared + np.reshape(gains.get(name, (0, 0)), (2, 1))
        ranks = ranks + rng.normal(scale=0.05, size=shared.shape) * (name != "raw")
        evidence = Evidence.BOTH if name == "strong" else Evidence.SCORE
        evidence = Evidence.NONE if asked and name == "whitening" else evidence
        found.append(Scored(("mean", 6), Candidate(name, "passthrough", evidence), ranks))
    return found


@pytest.mark.parametrize(
    ("gains", "asked", "expected"),
    [
        ({}, False, "raw"),
        ({}, True, "whitening"),
        ({"mean": (0.03, 0.03)}, False, "mean"),
        ({"mean": (0.03, 0.03)}, True, "whitening"),
        ({"whitening": (0.03, 0.03)}, False, "whitening"),
        ({"mean": (0.03, 0.03), "whitening": (0.05, 0.05)}, False, "whitening"),
        # Copies with words dropped alone are no evidence for a strong whitening.
        ({"strong": (0, 0.1)}, False, "raw"),
        ({"strong": (0.01, 0.1), "whitening": (0.03, 0.03)}, False, "whitening"),
        ({"strong": (0, 0.1)}, True, "whitening"),
        ({"strong": (0.05, 0.1), "whitening": (0.03, 0.03)}, True, "strong"),
        ({"strong": (0.05, 0.1)}, False, "strong"),
    ],
)
def test_a_calibration_is_chosen_by_evidence(gains, asked, expected):
    chosen, reason = choose(
        Found([scored(asked=asked, **gains)], True, True), np.arange(300), seed=0
    )
    assert chosen.candidate.name == expected
    assert repr(expected) in reason or expected == "raw"


def test_of_equal_calibrations_one_is_rarely_called_better():
    found = 0
    for seed in range(60):
        chosen, _ = choose(Found([scored(seed=seed)], True, True), np.arange(300), seed=0)
        found += chosen.candidate.name != "raw"
    assert found <= 5  # 2.5 % are 1.5


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
        (40, 10, "no candidate gains"),
        (5, 80, "400 texts share most of their words and count as 5 groups"),
        (300, 1, "no candidate gains"),
    ],
)
def test_reason_counts_near_duplicates_once(n_templates, n_each, reason):
    search = searched(chance, templated(n_templates, n_each), n_texts=400)
    assert reason in search.reason_
    assert (search.cv_results_["gain_high"][1] == 1) == (n_templates < 20)
