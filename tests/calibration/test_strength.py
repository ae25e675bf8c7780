"""The neutral rule, ``power="auto"``: what is trained, and how far the rest is flattened."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import entropy
from sklearn.preprocessing import StandardScaler

from skcalib import BertEncoder, NormalizingFlow, Whitening
from skcalib.datasets import load_toy_sts

D = 200


def trained(n=3000, constants=0, seed=0):
    """Rows whose mean spreads over the columns, but for a few that hold a constant."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, D)) + rng.choice([-0.5, 0.5], D)
    rows[:, :constants] += [20, -10, 15][:constants]
    return rows


def raw(n=3000, massive=5.0, seed=0):
    """Rows with a falling spectrum and massive columns, in mean and in variance."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, D)) * np.geomspace(1, 0.05, D)
    rows[:, :2] = massive * (1 + rng.normal(size=(n, 2)))
    return rows


def spread(shares):
    """Over which share of the columns shares spread."""
    return np.exp(entropy(shares)) / len(shares)  # SciPy's, which makes them sum to 1


def cosines(Z):
    Z = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    return Z @ Z.T


@pytest.mark.parametrize("n", [100, 3000])
@pytest.mark.parametrize("constants", [0, 1, 2])  # of 200 columns, two may be outliers
@pytest.mark.parametrize("k", [None, "many", 2, 100])
def test_trained_outputs_are_only_centered_and_filtered(n, constants, k):
    X = trained(n, constants)
    whitening = Whitening(power="auto", n_groups=k).fit(X)
    assert whitening.power_ == whitening.level_ == 0
    mean2, total = X.mean(axis=0) @ X.mean(axis=0), X.var(axis=0, ddof=1).sum()
    cone = total / (mean2 + total)
    kept = min(0.2, np.sqrt(cone / (1 - cone) / 4)) if k in (None, "many") else 0
    noise = 0 if k in (None, "many") else cone ** (1 / 3) / (8 * k)
    assert_allclose((whitening.noise_, whitening.centering_), (noise, 1 - kept), rtol=1e-8)
    used = {name: getattr(whitening, f"{name}_") for name in ("noise", "centering", "power")}
    by_hand = Whitening(**used, shrinkage=Whitening(shrinkage="auto").fit(X).shrinkage_)
    assert_array_equal(by_hand.fit_transform(X), whitening.transform(X))


@pytest.mark.parametrize("offset", [0.5, 5.0])
def test_of_a_narrow_cone_less_of_the_mean_is_kept(offset):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, D)) + rng.choice([-offset, offset], D)
    whitening = Whitening(power="auto").fit(X)
    left = cosines(whitening.transform(X))[np.triu_indices(len(X), 1)].mean()
    kept = 1 - whitening.centering_
    if offset == 0.5:  # a fifth of it leaves next to nothing
        assert (whitening.power_, kept) == (0, pytest.approx(0.2))
        assert left < 0.02
    else:  # a fifth would leave a mean cosine of a half
        assert kept < 0.11
        assert left == pytest.approx(0.2, abs=0.01)


def test_a_constant_column_too_many_or_one_that_varies_is_no_trained_output():
    X = trained(constants=3)
    assert Whitening(power="auto").fit(X).power_ > 0
    X = trained(constants=1)
    X[:, 0] *= 2  # four times the variance of the others
    assert Whitening(power="auto").fit(X).power_ > 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scaler", [StandardScaler(with_std=False), StandardScaler()], ids=str)
@pytest.mark.parametrize("rows", [trained, raw])
def test_vectors_that_were_centered_before_warn(dtype, scaler, rows):
    X = scaler.fit_transform(rows().astype(dtype))
    step = Whitening(power="auto")
    with pytest.warns(UserWarning, match="mean of zero.*as the encoder returns them"):
        step.fit(X)
    assert step.power_ > 0  # raw
    new = scaler.transform(rows(seed=1))  # of another sample the mean is not zero
    Whitening(power="auto").fit(new)  # no warning, which would be an error


def test_a_mean_near_the_limit_of_a_trained_output_warns():
    rng = np.random.default_rng(0)
    verdicts = []
    for columns in range(40, 120, 4):
        X = rng.normal(size=(2000, D)) * 0.1
        X[:, :columns] += 3
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            power = Whitening(power="auto").fit(X).power_
        near = any("between that of an output" in str(w.message) for w in caught)
        verdicts.append("near" if near else "raw" if power else "trained")
    assert verdicts == sorted(verdicts, key=["raw", "near", "trained"].index)
    assert set(verdicts) == {"raw", "near", "trained"}


def flattened(X):
    """Center X, divide columns by ``(σ² + median)^(1/2)``; the axes of the result too."""
    variances = X.var(axis=0, ddof=1)
    scale = np.sqrt(variances + np.median(variances))
    scaled = (X - X.mean(axis=0)) / scale
    variance, U = np.linalg.eigh(np.cov(scaled.T))
    return scale, scaled, np.maximum(variance[::-1], 0), U[:, ::-1]


@pytest.mark.parametrize("n", [150, 3000])  # above and below the number of columns
def test_raw_columns_and_directions_are_reduced_to_two_levels(n):
    X = raw(n)
    whitening = Whitening(power="auto").fit(X)
    scale, _, variance, U = flattened(X)
    level = variance[2]  # two of 200 directions may be outliers
    assert whitening.level_ == pytest.approx(level)
    assert_allclose(whitening.scale_, scale)
    assert whitening.power_ == pytest.approx(1 / 3)
    assert (whitening.noise_, whitening.centering_) == (0, 1)
    # Directions without variance in the sample pass, too: others have it.
    new = raw(50, seed=1)
    expected = ((new - X.mean(axis=0)) / scale) @ U * (variance + level) ** (-1 / 6)
    mapped = whitening.transform(new)
    assert mapped.shape == new.shape
    assert_allclose(mapped @ mapped.T, expected @ expected.T, rtol=1e-6, atol=1e-6)
    assert_allclose(whitening.transform(X).mean(axis=0), 0, atol=1e-9)
    assert_allclose(whitening.inverse_transform(whitening.transform(X)), X, atol=1e-7)


@pytest.mark.filterwarnings("ignore:One column holds most of the variance")
def test_the_size_of_massive_columns_does_not_matter():
    one, other = (
        cosines(Whitening(power="auto").fit_transform(raw(massive=m))) for m in (8, 80)
    )
    assert abs(one - other).max() < 0.05
    rows = raw(massive=8), raw(massive=80)
    one, other = (cosines(X - X.mean(axis=0)) for X in rows)
    assert abs(one - other).max() > 0.5


@pytest.mark.parametrize("k", [2, 10, 50])
def test_groups_of_raw_vectors_take_two_directions_each(k):
    X = raw()
    whitening = Whitening(power="auto", n_groups=k).fit(X)
    _, _, variance, _ = flattened(X)
    level = variance[2 * k - 1]
    assert whitening.power_ == 1
    assert whitening.level_ == pytest.approx(level)
    assert whitening.noise_ == pytest.approx(level / variance.sum())
    gain = variance / (variance + level) ** 1.5
    assert_allclose(whitening.transform(X).var(axis=0, ddof=1), variance * gain**2, rtol=1e-6)


@pytest.mark.parametrize("n", [101, 300, 3000])
def test_for_similarity_a_quarter_of_the_directions_is_flattened(n):
    """Of those that are determined by two samples each; without a filter."""
    X = raw(n)
    _, _, variance, _ = flattened(X)
    determined = min(n // 2, D)
    whitening = Whitening(power="auto", n_groups="many").fit(X)
    assert whitening.level_ == pytest.approx(variance[determined // 4])
    assert (whitening.power_, whitening.noise_) == (1, 0)
    most = variance[int(0.9 * determined) - 1]  # of a number, up to nine tenths
    assert Whitening(power="auto", n_groups=10**6).fit(X).level_ == pytest.approx(most)


@pytest.mark.parametrize("n", [2, 3, 30])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_few_rows_and_columns_have_a_level(n, d):
    X = np.random.default_rng(0).normal(size=(n, d)) * np.geomspace(30, 1, d) + [
        100,
        *[0] * (d - 1),
    ]
    for k in (None, 2, "many"):
        Z = Whitening(power="auto", n_groups=k).fit_transform(X)
        assert np.isfinite(Z).all()
        assert Z.any()


@pytest.mark.filterwarnings("ignore:One column holds most of the variance")
@pytest.mark.parametrize("columns", [slice(2), slice(None)], ids=["massive columns", "all"])
def test_one_massive_row_does_not_decide_alone(columns):
    """As the vector of a text of one token, which is massive in the massive columns."""
    X = raw(500)
    expected = Whitening(power="auto").fit(X).transform(X)
    X[0, columns] *= 1e4 if columns.stop else 10
    mapped = Whitening(power="auto").fit(X).transform(X)
    rows = slice(1, None)
    pairs = cosines(expected[rows]).ravel(), cosines(mapped[rows]).ravel()
    assert np.corrcoef(*pairs)[0, 1] > 0.9


def test_layers_of_minilm_are_recognized(tmp_path):
    texts = np.unique(load_toy_sts().data)[:100]
    for layer, pooling, power in ((6, "mean", 0), (3, "mean", 1 / 3), (3, "cls", 1 / 3)):
        encoder = BertEncoder("minilm", layers=layer, pooling=pooling, memory=tmp_path)
        whitening = Whitening(power="auto").fit(encoder.fit_transform(texts))
        assert whitening.power_ == power, (layer, pooling)


def test_parts_are_merged_to_the_same_rule():
    X = raw()
    whole = Whitening(power="auto", n_groups=7).fit(X)
    parts = [Whitening(power="auto", n_groups=7).fit(part) for part in np.array_split(X, 5)]
    merged = parts[0].merge(*parts[1:])
    assert merged.level_ == pytest.approx(whole.level_, rel=1e-10)
    assert_allclose(merged.scale_, whole.scale_, rtol=1e-10)
    assert_allclose(merged.transform(X), whole.transform(X), atol=1e-8)


@pytest.mark.parametrize(
    "calibrator",
    [Whitening(), Whitening(power="auto"), NormalizingFlow()],
    ids=str,
)
def test_a_column_that_holds_most_of_the_variance_is_told(calibrator):
    X = raw(1200, massive=1.0).astype(np.float32)
    calibrator.fit(X)  # no warning, which would be an error
    X[:, 7] *= 1000
    with pytest.warns(UserWarning, match="One column holds most of the variance.*first token"):
        calibrator.fit(X)
