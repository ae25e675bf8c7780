"""NormalizingFlow keeps scikit-learn's contract and learns densities."""

import itertools
import pickle
import tracemalloc

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from skcalib import BertEncoder, NormalizingFlow
from skcalib.datasets import fetch_sts


@pytest.fixture(scope="module")
def banana():
    """1000 rows of a curved density in 6 dimensions, which no linear map makes normal."""
    rng = np.random.RandomState(0)
    X = rng.normal(size=(1000, 6))
    X[:, 3:] += X[:, :3] ** 2
    return 0.05 * X + 2.0


def _settings(**changes):
    settings = {"max_epochs": 15, "learning_rate": 3e-3, "random_state": 0, "device": "cpu"}
    return settings | changes


@pytest.fixture
def at_steps(monkeypatch):
    """Return a function that has another called in every step of the training, with its number.

    What it returns is a factor of the norm of the step's gradient.
    """

    def watch(function):
        original, steps = torch.linalg.vector_norm, itertools.count(1)
        patched = lambda gradient: original(gradient) * function(next(steps))  # noqa: E731
        monkeypatch.setattr(torch.linalg, "vector_norm", patched)

    return watch


def raising(error, every):
    """A function for `at_steps`."""

    def fail(step):
        if step % every == 0:
            raise error
        return 1.0

    return fail


def test_training_raises_the_score_of_held_out_rows(banana):
    train, test = banana[:700], banana[700:]
    flow = NormalizingFlow(**_settings()).fit(train)
    # The best that a normal density with this covariance can do.
    covariance = np.cov(train.T)
    normal = -0.5 * (6 * np.log(2 * np.pi * np.e) + np.linalg.slogdet(covariance)[1])
    untrained = NormalizingFlow(**_settings(max_epochs=1, learning_rate=1e-12)).fit(train)
    assert flow.score(test) > normal + 0.3
    assert flow.score(test) > untrained.score(test) + 0.5
    assert flow.loss_curve_[-1] == pytest.approx(-flow.score(train), abs=0.2)
    assert flow.n_iter_ == len(flow.loss_curve_) == 15


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_inverse_transform_inverts(banana, dtype, tolerance):
    X = banana.astype(dtype)
    flow = NormalizingFlow(**_settings(max_epochs=1)).fit(X)
    Z = flow.transform(X)
    U = flow.inverse_transform(Z)
    assert Z.dtype == U.dtype == flow.sample(3).dtype == dtype
    np.testing.assert_allclose(U, X, rtol=tolerance)
    # float64 is computed in float64, whatever the data type of the fit.
    exact = banana + 1e-10 * np.arange(6)
    back = flow.inverse_transform(flow.transform(exact))
    np.testing.assert_allclose(back, exact, rtol=1e-12)
    assert flow.sample(0).shape == (0, 6)


def test_samples_have_the_moments_of_the_data(banana):
    settings = _settings(depth=2, batch_size=50, learning_rate=5e-3)
    flow = NormalizingFlow(**settings).fit(banana)
    samples = flow.sample(5000)
    np.testing.assert_allclose(samples.mean(axis=0), banana.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(samples.std(axis=0), banana.std(axis=0), rtol=0.15)
    # The curvature too, which the covariance does not show.
    third, expected = (((X[:, 0] - 2) ** 2 * (X[:, 3] - 2)).mean() for X in (samples, banana))
    assert third == pytest.approx(expected, rel=0.3)


def test_score_is_the_mean_of_the_densities(banana):
    flow = NormalizingFlow(**_settings(max_epochs=1)).fit(banana)
    assert flow.score(banana) == pytest.approx(flow.score_samples(banana).mean())


def test_a_seed_gives_one_flow_and_leaves_global_generators_alone(banana):
    banana = banana[:500]
    torch_state, numpy_state = torch.get_rng_state(), pickle.dumps(np.random.mtrand._rand)
    settings = _settings(max_epochs=2, validation_fraction=0.1)
    flow = NormalizingFlow(**settings).fit(banana)
    again = NormalizingFlow(**settings).fit(banana)
    other = NormalizingFlow(**{**settings, "random_state": 1}).fit(banana)
    np.testing.assert_array_equal(flow.transform(banana), again.transform(banana))
    np.testing.assert_array_equal(flow.sample(5), again.sample(5))
    assert not np.allclose(flow.transform(banana), other.transform(banana))
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert pickle.dumps(np.random.mtrand._rand) == numpy_state


def test_refit_forgets(banana):
    flow = NormalizingFlow(**_settings(max_epochs=1, validation_fraction=0.1)).fit(banana)
    flow.set_params(depth=1, validation_fraction=None).fit(banana[:, :3])
    fresh = NormalizingFlow(**_settings(max_epochs=1, depth=1)).fit(banana[:, :3])
    np.testing.assert_array_equal(flow.transform(banana[:, :3]), fresh.transform(banana[:, :3]))
    assert flow.validation_curve_ is None


def test_validation_keeps_the_best_flow(banana):
    X = banana[:60]
    settings = _settings(max_epochs=60, validation_fraction=0.3, learning_rate=0.01)
    flow = NormalizingFlow(**settings).fit(X)
    assert len(flow.validation_curve_) == len(flow.loss_curve_) == flow.n_iter_ == 60
    best = 1 + int(np.argmin(flow.validation_curve_))
    assert best < flow.n_iter_
    shorter = NormalizingFlow(**settings | {"max_epochs": best}).fit(X)
    np.testing.assert_array_equal(flow.transform(banana), shorter.transform(banana))


@pytest.mark.filterwarnings("ignore:The flow was fitted on fewer")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_degenerate_data_train_to_finite_vectors(dtype):
    X = np.random.RandomState(0).normal(size=(300, 8))
    X[:, 1] = 5.0  # constant
    X[:, 2] *= 1e-32  # as in the last layer of MiniLM
    X[:, 3] = 5.0 + 1e-3 * X[:, 3]  # nearly constant
    X[:, 4] = X[:, 5]  # rank below d
    X[:, 6] = X[:, 6] > 2.5  # mostly zero
    X[100:200] = X[:100]  # duplicated rows
    X = X.astype(dtype)
    flow = NormalizingFlow(device="cpu", max_epochs=4, random_state=0).fit(X)
    Z = flow.transform(X)
    assert np.isfinite(flow.score_samples(X)).all()
    assert abs(Z).max() < 100
    np.testing.assert_allclose(flow.inverse_transform(Z), X, atol=1e-4)
    for few in X[:3], np.ones_like(X[:60]), np.zeros_like(X[:60]):
        assert np.isfinite(flow.fit(few).score_samples(few)).all()


def test_flow_likelihood_is_finite_beside_a_large_constant():
    X = (1e-3 * np.random.RandomState(0).normal(size=(500, 4))).astype(np.float32)
    X[:, 3] = 1e6  # its next float32 is 60 deviations of the others away
    flow = NormalizingFlow(**_settings()).fit(X)
    assert abs(flow.loss_curve_[-1] - flow.loss_curve_[0]) < 1.0
    other = X.copy()
    other[:, 3] = np.nextafter(X[:, 3], np.float32(np.inf))
    np.testing.assert_allclose(flow.transform(other), flow.transform(X), atol=1.0)


def test_divergence_warns_and_goes_back(banana, at_steps):
    good = NormalizingFlow(**_settings(max_epochs=1)).fit(banana)
    at_steps(lambda step: np.nan if step % 50 == 0 else 1.0)
    flow = NormalizingFlow(**_settings())
    with pytest.raises(ConvergenceWarning, match="NaN or"):  # where warnings are errors
        flow.fit(banana)
    assert not hasattr(flow, "n_iter_")
    with pytest.warns(ConvergenceWarning, match=r"NaN or.*lower learning_rate") as seen:
        flow.fit(banana)
    assert seen[0].filename == __file__
    assert flow.n_iter_ == 1  # 32 steps an epoch
    np.testing.assert_array_equal(flow.transform(banana), good.transform(banana))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_divergence_at_a_finite_loss_warns(dtype):
    X = np.random.RandomState(0).normal(size=(40, 32)).astype(dtype)
    flow = NormalizingFlow(learning_rate=0.1, device="cpu", random_state=0)
    with pytest.warns(ConvergenceWarning, match="its loss is finite.*lower learn") as seen:
        flow.fit(X)
    assert seen[0].filename == __file__
    assert np.isfinite(flow.loss_curve_).all()
    NormalizingFlow(device="cpu", random_state=0).fit(X)  # a sound one does not


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_after_an_error_the_flow_is_not_fitted(banana, at_steps, monkeypatch, error):
    flow = NormalizingFlow(**_settings(max_epochs=2))
    expected = flow.fit(banana).transform(banana)
    at_steps(raising(error, every=40))  # in the second epoch of 32
    with pytest.raises(error):
        flow.fit(banana)
    assert not hasattr(flow, "n_features_in_")
    with pytest.raises(NotFittedError):
        flow.transform(banana)
    monkeypatch.undo()
    np.testing.assert_array_equal(flow.fit(banana).transform(banana), expected)


def test_a_pickle_needs_no_gpu_and_says_so(banana, monkeypatch):
    flow = NormalizingFlow(**_settings(max_epochs=1)).fit(banana)
    dumped = pickle.dumps(flow.set_params(device="cuda"))  # as after a fit on a GPU
    assert b"torch" not in dumped
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    loaded = pickle.loads(dumped)
    with pytest.warns(UserWarning, match=r"device='cuda' is not available.* The CPU is used"):
        Z = loaded.transform(banana)
    np.testing.assert_array_equal(Z, loaded.set_params(device="cpu").transform(banana))
    with pytest.raises(ValueError, match="device='cuda' is not available"):
        loaded.set_params(device="cuda").fit(banana)


@pytest.mark.parametrize(
    ("change", "shape", "message"),
    [
        ({"device": "gpu"}, (10, 3), "device='gpu' is unknown. Use 'auto', 'cpu', 'cuda'"),
        ({"validation_fraction": 0.95}, (10, 3), "n_samples=10, test_size=0.95.* set will be"),
        ({"depth": 0}, (10, 3), "'depth' parameter.*must be an int in the range"),
        ({}, (9, 1), r"1 feature\(s\).*while a minimum of 2 is required"),
        ({}, (1, 9), r"1 sample\(s\).*while a minimum of 2 is required"),
    ],
)
def test_what_cannot_be_fitted_says_what_is_expected(change, shape, message):
    flow, X = NormalizingFlow(**change), np.random.RandomState(0).normal(size=shape)
    with pytest.raises(ValueError, match=message):
        flow.fit(X)
    assert not hasattr(flow, "n_features_in_")


def test_a_memory_map_is_read_and_not_copied(tmp_path):
    X = np.random.RandomState(0).normal(size=(20000, 64)).astype(np.float32)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    settings = {"depth": 1, "batch_size": 500, "random_state": 0, "device": "cpu"}
    NormalizingFlow(**settings).fit(X[:1000])  # imports torch, which allocates too
    tracemalloc.start()
    try:
        flow = NormalizingFlow(**settings).fit(mapped)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < X.nbytes / 2
    expected = NormalizingFlow(**settings).fit(X)
    np.testing.assert_array_equal(flow.transform(mapped), expected.transform(X))


@pytest.mark.parametrize("n_threads", [1, 2])
def test_training_keeps_to_one_thread_and_gives_the_others_back(banana, at_steps, n_threads):
    seen, before = set(), torch.get_num_threads()
    at_steps(lambda step: seen.add(torch.get_num_threads()) or 1.0)
    torch.set_num_threads(n_threads)
    try:
        NormalizingFlow(device="cpu", random_state=0).fit(banana)
        assert torch.get_num_threads() == n_threads
    finally:
        torch.set_num_threads(before)
    assert seen == {1}


def test_to_torch_is_an_independent_copy(banana):
    flow = NormalizingFlow(**_settings(max_epochs=1)).fit(banana)
    expected = flow.transform(banana)
    module, u = flow.to_torch(), torch.from_numpy(banana).requires_grad_()
    assert not module.training
    np.testing.assert_allclose(module(u)[0].detach(), expected, rtol=1e-9, atol=1e-9)
    density = module.log_prob(u)
    np.testing.assert_allclose(density.detach(), flow.score_samples(banana))
    density.sum().backward()  # through the inputs and the parameters
    assert torch.isfinite(u.grad).all()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 1.0
    np.testing.assert_array_equal(flow.transform(banana), expected)
    with pytest.raises(NotFittedError):
        NormalizingFlow(device="cpu").to_torch()


def test_verbose_shows_progress(banana, capfd):
    NormalizingFlow(device="cpu", verbose=True, random_state=0).fit(banana)
    shown = capfd.readouterr().err
    assert "NormalizingFlow: 100%" in shown
    assert "32/32" in shown  # batches
    assert "epoch 1" in shown
    NormalizingFlow(device="cpu", random_state=0).fit(banana)
    assert capfd.readouterr() == ("", "")


@pytest.fixture(scope="module")
def encoded(minilm, sts_home):
    """Return a function from a task and a layer to vectors, pairs of rows and grades.

    Vectors of real sentences, on which the paper trained, take some seconds.
    """

    def encode(task, layer, limit=None):
        pairs, grades = fetch_sts(task, data_home=sts_home, return_X_y=True)
        pairs, grades = pairs[:limit], grades[:limit]
        texts, rows = np.unique(pairs.astype(str), return_inverse=True)
        encoder = BertEncoder(minilm, layers=layer, device="cpu")
        return encoder.fit_transform(texts.tolist()), rows.reshape(-1, 2), grades

    return encode


def _spearman(vectors, rows, grades):
    vectors = vectors.astype(np.float64)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = (unit[rows[:, 0]] * unit[rows[:, 1]]).sum(axis=1)
    return 100 * spearmanr(cosines, grades)[0]


@pytest.mark.parametrize(
    ("task", "raw", "calibrated"),
    [("stsb", 55.6, 70.5), ("sickr", 61.7, 59.8)],  # where it helps, and where it does not
)
def test_the_papers_settings_reach_the_reference_on_sentences(encoded, task, raw, calibrated):
    vectors, rows, grades = encoded(task, 0)
    assert _spearman(vectors, rows, grades) == pytest.approx(raw, abs=0.2)
    flow = NormalizingFlow(device="cpu", random_state=0).fit(vectors)
    assert _spearman(flow.transform(vectors), rows, grades) > calibrated - 1.0


def test_the_last_layer_of_minilm_trains_to_useful_vectors(encoded):
    vectors, rows, grades = encoded("stsb", -1, limit=220)
    # Three units that the encoder never uses, one of them down to 1e-32.
    assert (vectors.std(axis=0) < 1e-3).sum() == 3
    flow = NormalizingFlow(device="cpu", max_epochs=3, random_state=0).fit(vectors)
    Z = flow.transform(vectors)
    assert abs(Z).max() < 100
    assert _spearman(Z, rows, grades) > 70
    scale = abs(vectors).max()
    np.testing.assert_allclose(flow.inverse_transform(Z), vectors, atol=1e-4 * scale)


def test_a_fit_on_few_rows_warns():
    X = np.random.default_rng(0).normal(size=(60, 12))
    flow = NormalizingFlow(random_state=0)
    with pytest.warns(UserWarning, match="fewer than 25 rows"):
        flow.fit(X[:24])
    flow.fit(X[:25]).score_samples(X)  # the tests refuse warnings


def test_squares_that_overflow_are_refused():
    X = np.zeros((30, 6))
    X[5] = 1e200
    with pytest.raises(ValueError, match=r"overflow float64\. Scale X .* or drop"):
        NormalizingFlow().fit(X)
