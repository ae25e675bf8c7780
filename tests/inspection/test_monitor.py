"""A stream against a reference: rare false alarms, changes seen, any batches, clear errors."""

import itertools
import pickle

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from skcalib import Whitening
from skcalib.inspection import EvidenceDisplay, ShiftMonitor, _bets


@pytest.fixture(scope="module")
def whitening():
    return Whitening().fit(np.random.default_rng(0).normal(size=(400, 6)))


def test_capital_has_mean_1_under_the_urn(monkeypatch):
    """Over all streams of 7 rows against 3, with the exact probability of each."""
    monkeypatch.setattr(_bets, "SHORTEST", 2)
    streams = np.array([*itertools.product(range(4), repeat=7)])
    gaps = np.array([0.5, 1.5, 2.5, 3.5])
    probability = np.ones(len(streams))
    for t in range(7):
        same = (streams[:, :t] == streams[:, t : t + 1]).sum(axis=1)
        probability *= (1 + same) / (4 + t)
    reference = np.repeat([[1.0], [2.0], [3.0]], len(streams), axis=1)
    bets = _bets.Bets(reference, np.zeros_like(reference))
    stream = gaps[streams].T
    parts = [bets.capital(s, np.zeros_like(s)) for s in np.split(stream, [1, 4])]
    np.testing.assert_allclose(np.concatenate(parts) @ probability, 1)


@pytest.mark.parametrize("kind", ["normal", "heavy", "copied", "pool"])
def test_false_alarms_are_rarer_than_the_rate(whitening, kind):
    rng = np.random.default_rng(1)
    pool = rng.normal(size=(60, 6))

    def drawn(n):
        if kind == "pool":
            return pool[np.minimum(rng.geometric(0.03, n), 60) - 1]
        rows = rng.standard_t(1, (n, 6)) if kind == "heavy" else rng.normal(size=(n, 6))
        return np.repeat(rows, 5, axis=0) if kind == "copied" else rows

    alarms = 0
    for _ in range(40):
        monitor = ShiftMonitor(whitening, false_alarm_rate=0.2).fit(drawn(50))
        alarms += monitor.update(drawn(1000)).is_shifted_
    assert alarms <= 12  # 40 * 0.2, and 1.6 standard deviations


@pytest.mark.parametrize("before", [0, 3000])
def test_a_change_is_seen_soon(whitening, before):
    rng = np.random.default_rng(2)
    monitor = ShiftMonitor(whitening).fit(rng.normal(size=(300, 6)))
    if before:
        monitor.update(rng.normal(size=(before, 6)))
    assert not monitor.is_shifted_
    monitor.update(rng.normal(size=(300, 6)) + 1)
    assert monitor.is_shifted_
    assert before < monitor.shifted_at_ < before + 100


def test_any_split_gives_the_same_evidence(whitening):
    rng = np.random.default_rng(3)
    reference = rng.normal(size=(100, 6))
    stream = np.concatenate([rng.normal(size=(500, 6)), rng.normal(size=(5000, 6)) + 0.2])
    stream[200:260] = stream[0]
    whole = ShiftMonitor(whitening).fit(reference).update(stream)
    parts = ShiftMonitor(whitening).fit(reference)
    for part in np.array_split(stream, [1, 2, 60, 61, 230, 4000]):
        parts = pickle.loads(pickle.dumps(parts.update(part)))
    assert parts.shifted_at_ == whole.shifted_at_
    assert parts.n_seen_ == len(stream)
    assert parts.evidence_ == pytest.approx(whole.evidence_)
    np.testing.assert_allclose(parts.history_, whole.history_)
    assert len(whole.history_) <= 4097


def test_copies_of_one_row_are_no_change(whitening):
    rng = np.random.default_rng(4)
    monitor = ShiftMonitor(whitening).fit(rng.normal(size=(200, 6)))
    assert not monitor.update(np.repeat(rng.normal(size=(1, 6)) + 3, 1000, axis=0)).is_shifted_


def test_fit_starts_a_new_stream(whitening):
    rng = np.random.default_rng(5)
    reference = rng.normal(size=(100, 6))
    monitor = ShiftMonitor(whitening).fit(reference).update(rng.normal(size=(100, 6)) + 5)
    assert monitor.is_shifted_
    monitor.fit(reference)
    assert (monitor.is_shifted_, monitor.n_seen_, monitor.evidence_) == (False, 0, 1.0)


def test_bad_input_is_named(whitening):
    X = np.random.default_rng(0).normal(size=(400, 6))
    with pytest.raises(ValueError, match=r"the sample of 400 vectors that the whitening"):
        ShiftMonitor(whitening).fit(X)
    with pytest.raises(ValueError, match=r"100 rows, 2 of them different; expected 20 or more"):
        ShiftMonitor(whitening).fit(np.repeat(X[:2], 50, axis=0))
    with pytest.raises(
        TypeError, match=r"whitening is of type str; expected a fitted Whitening"
    ):
        ShiftMonitor("minilm").fit(X)
    with pytest.raises(ValueError, match=r"'false_alarm_rate' parameter of ShiftMonitor"):
        ShiftMonitor(whitening, false_alarm_rate=1.0).fit(X[:100])
    with pytest.raises(NotFittedError, match=r"no reference. Call fit"):
        ShiftMonitor(whitening).update(X)
    with pytest.raises(NotFittedError):
        ShiftMonitor(Whitening()).fit(X)


def test_an_error_adds_nothing(whitening):
    rng = np.random.default_rng(6)
    reference, stream = rng.normal(size=(2, 100, 6))
    monitor, clean = (ShiftMonitor(whitening).fit(reference) for _ in range(2))
    broken = stream.copy()
    broken[50, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        monitor.update(broken)
    with pytest.raises(ValueError, match="5 features"):
        monitor.update(stream[:, :5])
    assert monitor.update(stream).evidence_ == clean.update(stream).evidence_


def test_display_of_the_evidence(whitening):
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib import pyplot

    rng = np.random.default_rng(7)
    monitor = ShiftMonitor(whitening).fit(rng.normal(size=(100, 6)))
    with pytest.raises(NotFittedError):
        EvidenceDisplay.from_monitor(ShiftMonitor(whitening))
    monitor.update(rng.normal(size=(50, 6)) + 2)
    display = EvidenceDisplay.from_monitor(monitor, name="stream")
    np.testing.assert_array_equal(display.line_.get_ydata(), monitor.history_[:, 1])
    assert display.threshold == 100
    assert display.shifted_at == monitor.shifted_at_
    pyplot.close("all")
