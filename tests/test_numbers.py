"""Any array: the right result, or an error that says what is wrong; never a silent NaN.

A table of cases with a fixed seed: magnitudes over the whole range of float64, data types,
layouts, containers, and what is no matrix of numbers, through every estimator and method.
Results are compared with a float64 reference that sees the data at a scale of about one.
"""

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.covariance import ledoit_wolf_shrinkage

from skcalib import BiEncoder, NormalizingFlow, Whitening
from skcalib.metrics import (
    effective_rank,
    isoscore,
    mean_cosine,
    partition_isotropy,
    pearson,
    spearman,
)

N, D = 24, 4
SEEDS = range(2)
# Powers of two, so that scaling alone rounds nothing until it leaves the range.
EXPONENTS = (
    *range(-1074, 1024, 62),
    *(-1030, -1022, -537, -534, -530, -525, -520, -510),  # squares are subnormal
    *(-270, -268, -264, -260, 250, 256),  # fourth powers are
    *(-150, -140, -130, -127, -75, 75, 120, 126, 127),  # float32 ends
)


def sample(seed, exponent=0, offset=0.0, dtype=np.float64):
    """Anisotropic rows of ``dtype``; None where the type cannot hold them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) @ rng.normal(size=(D, D)) + offset
    with np.errstate(over="ignore", under="ignore"):
        X = np.ldexp(X, exponent).astype(dtype)
    return X if np.isfinite(X).all() and X.any() else None


def magnitudes():
    """Yield name and rows of every magnitude."""
    for seed, exponent, offset, dtype in itertools.product(
        SEEDS, EXPONENTS, (0.0, 1e3), (np.float64, np.float32)
    ):
        X = sample(seed, exponent, offset, dtype)
        if X is not None:
            yield f"2**{exponent} + {offset:g}, {np.dtype(dtype)}, seed {seed}", X


def same_numbers():
    """Yield name and rows of every type and layout that holds numbers of about one."""
    for seed in SEEDS:
        X = sample(seed, offset=3.0)
        integers = np.round(20 * X)
        layouts = {
            "Fortran order": np.asfortranarray(X),
            "negative strides": np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
            "every other": np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3],
            "read only": np.frombuffer(X.tobytes()).reshape(X.shape),
            "big-endian": X.astype(">f8"),
            "float16": X.astype(np.float16),
            "long double": X.astype(np.longdouble),
            "object": X.astype(object),
            "list": X.tolist(),
            "unaligned": _unaligned(X),
            "bool": X > 3,
            "constant column": np.c_[X[:, :3], np.full(N, 0.1)],
            "column twice": X[:, [0, 1, 2, 0]],
            "zero rows among others": np.where(np.arange(N)[:, None] % 3 > 0, X, 0.0),
        }
        for name in ("int8", "int16", "int32", "int64"):
            layouts[name] = integers.astype(name)
        layouts["uint64"] = np.abs(integers).astype("uint64")
        for name, array in layouts.items():
            yield f"{name}, seed {seed}", array


def _unaligned(X):
    raw = np.empty(X.nbytes + 1, dtype=np.uint8)
    raw[1:] = np.frombuffer(X.tobytes(), dtype=np.uint8)
    return raw[1:].view(X.dtype).reshape(X.shape)


def no_samples():
    """Yield name and what holds no sample of numbers."""
    X = sample(0)
    for value, dtype in itertools.product((np.nan, np.inf, -np.inf), (np.float64, np.float32)):
        for row, column in itertools.product((0, 7, N - 1), range(D)):
            bad = X.astype(dtype)
            bad[row, column] = value
            yield f"{value} at {row}, {column}, {np.dtype(dtype)}", bad
    both = X.copy()
    both[3, 0], both[4, 0] = np.inf, -np.inf
    objects = X.astype(object)
    objects[2, 1] = None
    yield from {
        "both infinities": both,
        "no rows": X[:0],
        "no columns": X[:, :0],
        "nothing": X[:0, :0],
        "1-D": X[0],
        "3-D": X[None],
        "0-D": np.array(3.0),
        "complex": X + 1j,
        "text": X.astype(str).astype(object)[:, :1] + "x",
        "None inside": objects,
        "structured": np.zeros(N, dtype=[("a", "f8"), ("b", "f8")]),
        "csr": sp.csr_array(X),
        "csc matrix": sp.csc_matrix(X),
        "coo": sp.coo_array(X),
        "ragged": [[1.0, 2.0], [3.0]],
        "None": None,
        "number": 3.0,
        "dict": {"a": [1.0]},
    }.items()


def outcome(function, *arguments):
    """Return the result, or the error if it is one that a reader can act on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function(*arguments)
        except (ValueError, TypeError) as error:
            problem = error
        else:
            problem = None
    if problem is not None:
        assert len(str(problem).split()) > 3, f"{problem!r} says too little"
        return problem
    assert not [str(w.message) for w in caught if w.category is RuntimeWarning]
    return result


def report(failures, n_cases, at_least):
    assert n_cases >= at_least
    assert not failures, f"{len(failures)} of {n_cases} cases:\n" + "\n".join(failures[:20])


# Whitening -------------------------------------------------------------------------------

WHITENINGS = [
    Whitening(),
    Whitening(2),
    Whitening(0.9),
    Whitening(power=0.0),
    Whitening(power=0.5, shrinkage=0.3),
    Whitening(shrinkage=1.0),
    Whitening(shrinkage="auto"),
    Whitening(method="zca"),
    Whitening(method="zca", shrinkage=0.2),
    Whitening(tol=1e-3),
]


def reference_inner_products(whitening, X):
    """``Z Zᵀ`` by an SVD of the rows at a scale of one, and the power of two left out.

    Inner products do not depend on the rotation, which is open where variances are equal.
    """
    X = np.asarray(X).astype(np.longdouble)
    exponent = int(np.frexp(np.abs(X - X[0]).max())[1])
    C = X - X[0]
    C = np.ldexp(C - C.mean(axis=0), -exponent).astype(np.float64)
    _, s, vt = np.linalg.svd(C, full_matrices=False)
    variance = s**2 / (len(X) - 1)
    shrinkage = whitening.shrinkage_
    regularised = (1 - shrinkage) * variance + shrinkage * variance.sum() / X.shape[1]
    k = len(whitening.explained_variance_)
    k = min(k, whitening.rank_)
    Z = C @ vt[:k].T * regularised[:k] ** (-whitening.power / 2)
    return Z @ Z.T, exponent * (1 - whitening.power)


def coarseness(Z):
    """Relative spacing of numbers of this size and type, where they are subnormal."""
    return 10 * float(np.finfo(Z.dtype).smallest_subnormal) / float(np.abs(Z).max())


def whitening_is_right(whitening, X, Z):
    if not np.isfinite(Z).all():
        return "not finite"
    if whitening.shrinkage == "auto":
        Y = np.asarray(X, dtype=np.longdouble)
        Y = (Y / np.abs(Y - Y[0]).max()).astype(np.float64)
        if not np.isclose(whitening.shrinkage_, ledoit_wolf_shrinkage(Y), rtol=1e-5, atol=1e-9):
            return f"shrinkage_={whitening.shrinkage_}"
    expected, exponent = reference_inner_products(whitening, X)
    slack = coarseness(Z)
    Z = Z.astype(np.longdouble) * np.longdouble(2) ** -exponent
    error = float(np.abs(Z @ Z.T - expected).max() / np.abs(expected).max())
    accepted = 1e-4 if np.asarray(X).dtype == np.float32 else 1e-6
    return "" if error < accepted + slack else f"{error=}"


@pytest.mark.parametrize("whitening", WHITENINGS, ids=str)
def test_whitening_is_right_or_refuses(whitening):
    failures, n_cases, n_right = [], 0, 0
    for name, X in itertools.chain(magnitudes(), same_numbers()):
        fitted = clone(whitening)
        for method in ("fit_transform", "partial_fit", "sample_weight"):
            n_cases += 1

            def run(method=method, fitted=fitted, X=X):
                if method == "fit_transform":
                    return fitted.fit_transform(X)
                if method == "partial_fit":
                    parts = clone(whitening).partial_fit(X[:7]).partial_fit(X[7:])
                    return parts.transform(X)
                return clone(whitening).fit(X, sample_weight=np.full(N, 1.0)).transform(X)

            Z = outcome(run)
            if isinstance(Z, Exception):
                continue
            n_right += 1
            if problem := whitening_is_right(fitted, X, Z):
                failures.append(f"{method} of {name}: {problem}")
        if not fitted.__sklearn_is_fitted__():
            continue
        # What comes back lies in the span of what was kept.
        n_cases += 1
        Z = outcome(fitted.transform, X)
        back = outcome(fitted.inverse_transform, Z) if isinstance(Z, np.ndarray) else Z
        if isinstance(back, np.ndarray):
            again = outcome(fitted.transform, back)
            if isinstance(again, np.ndarray):
                size = np.abs(Z).max() + np.finfo(Z.dtype).eps * np.abs(
                    np.asarray(X, dtype=float)
                ).max() * min(np.abs(fitted._linear_map.projection).max(), 1e300)
                if not np.abs(again / size - Z / size).max() < 1e-3 + coarseness(Z):
                    failures.append(f"inverse_transform of {name}")
    assert n_right > n_cases / 3
    report(failures, n_cases, 1000)


@pytest.mark.parametrize("whitening", WHITENINGS[:1] + WHITENINGS[4:8:3], ids=str)
def test_whitening_refuses_what_is_no_sample(whitening):
    failures, n_cases = [], 0
    fitted = clone(whitening).fit(sample(1))
    for name, X in no_samples():
        for method in ("fit", "partial_fit", "transform", "inverse_transform"):
            n_cases += 1
            estimator = fitted if "transform" in method else clone(whitening)
            result = outcome(getattr(estimator, method), X)
            if not isinstance(result, Exception):
                failures.append(f"{method} of {name}: {result!r:.80}")
    report(failures, n_cases, 300)


# NormalizingFlow -------------------------------------------------------------------------

FLOWS = [
    NormalizingFlow(random_state=0, batch_size=8),
    NormalizingFlow(random_state=0, batch_size=8, coupling="affine", permutation="lu", depth=1),
]


@pytest.mark.parametrize("flow", FLOWS, ids=["additive", "affine lu"])
def test_flow_is_right_or_refuses(flow):
    """Right is: finite, invertible, and a density that knows the scale of the data."""
    failures, n_cases, n_right = [], 0, 0
    densities = {}
    for name, X in itertools.chain(magnitudes(), same_numbers()):
        if not name.endswith("seed 0"):
            continue
        fitted = clone(flow)
        n_cases += 4
        Z = outcome(fitted.fit_transform, X)
        if isinstance(Z, Exception):
            continue
        back = outcome(fitted.inverse_transform, Z)
        density = outcome(fitted.score_samples, X)
        drawn = outcome(fitted.sample, 3)
        X = np.asarray(X, dtype=np.float64)
        for what, result in (("z", Z), ("u", back), ("density", density), ("sample", drawn)):
            if not isinstance(result, Exception) and not np.isfinite(result).all():
                failures.append(f"{what} of {name} is not finite")
        if isinstance(back, np.ndarray):
            n_right += 1
            size = np.abs(X).max()
            if not np.abs(back / size - X / size).max() < 1e-3:
                failures.append(f"inverse of {name}")
        if isinstance(density, np.ndarray) and name.startswith("2**"):
            exponent, rest = name[3:].split(" ", 1)
            densities.setdefault(rest, {})[int(exponent)] = density
    for rest, found in densities.items():
        reference = found[min(found, key=abs)], min(found, key=abs)
        for exponent, density in found.items():
            n_cases += 1
            moved = density + (exponent - reference[1]) * D * np.log(2.0)
            if abs(exponent) < 900 and not np.allclose(moved, reference[0], atol=0.5):
                failures.append(f"density at 2**{exponent} {rest}")
    assert n_right > 50
    report(failures, n_cases, 600)


@pytest.mark.parametrize("flow", FLOWS[:1], ids=["additive"])
def test_flow_refuses_what_is_no_sample(flow):
    failures, n_cases = [], 0
    fitted = clone(flow).fit(sample(1))
    for name, X in no_samples():
        for method in ("fit", "partial_fit", "transform", "inverse_transform", "score_samples"):
            n_cases += 1
            estimator = clone(flow) if "fit" in method else fitted
            result = outcome(getattr(estimator, method), X)
            if not isinstance(result, Exception):
                failures.append(f"{method} of {name}: {result!r:.80}")
    report(failures, n_cases, 400)


# BiEncoder and metrics -------------------------------------------------------------------


class Lookup(TransformerMixin, BaseEstimator):
    """Give text "i" row i of an array."""

    def __init__(self, rows):
        self.rows = rows

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return self.rows[[int(text) for text in X]]


def test_cosines_do_not_depend_on_the_scale():
    failures, n_cases = [], 0
    pairs = [(str(i), str(N - 1 - i)) for i in range(N)]
    for name, X in magnitudes():
        if not X.any(axis=1).all():
            continue  # a row that underflowed
        n_cases += 1
        cosines = outcome(BiEncoder(Lookup(X)).fit(pairs).predict, pairs)
        Y = X.astype(np.longdouble)
        Y /= np.sqrt((Y**2).sum(axis=1, keepdims=True))
        expected = (Y * Y[::-1]).sum(axis=1).astype(float)
        if not np.allclose(cosines, expected, atol=1e-9):
            failures.append(f"cosine of {name}")
    report(failures, n_cases, 150)


@pytest.mark.parametrize(
    ("metric", "scale_free"),
    [
        (isoscore, True),
        (mean_cosine, True),
        (effective_rank, True),
        (partition_isotropy, False),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_metrics_are_right_or_refuse(metric, scale_free):
    failures, n_cases = [], 0
    for name, X in itertools.chain(magnitudes(), same_numbers()):
        n_cases += 1
        value = outcome(metric, X)
        if isinstance(value, Exception):
            continue
        Y = np.asarray(X, dtype=np.float64)
        expected = metric(Y / np.ldexp(1.0, int(np.frexp(np.abs(Y).max())[1]) - 1))
        if not np.isfinite(value) or (scale_free and abs(value - expected) > 1e-6):
            failures.append(f"{name}: {value} and not {expected}")
    for name, X in no_samples():
        n_cases += 1
        if not isinstance(outcome(metric, X), Exception):
            failures.append(name)
    report(failures, n_cases, 300)


@pytest.mark.parametrize("metric", [spearman, pearson])
def test_correlations_do_not_depend_on_the_scale(metric):
    failures, n_cases = [], 0
    for name, X in magnitudes():
        n_cases += 1
        Y = X.astype(np.longdouble)
        Y = (Y / np.abs(Y).max()).astype(np.float64)
        value, expected = outcome(metric, X[:, 0], X[:, 1]), metric(Y[:, 0], Y[:, 1])
        if not abs(value - expected) < 1e-9:
            failures.append(f"{name}: {value} and not {expected}")
    report(failures, n_cases, 150)


# Size ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [Whitening(), Whitening(64), NormalizingFlow(permutation="lu")],
    ids=["all", "some", "flow"],
)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_million_columns_are_refused_before_memory_is(estimator, method):
    X = np.zeros((2, 1_000_000), dtype=np.float32)
    with pytest.raises(
        ValueError, match=r"1000000 features; .* of 8,000 GB each.*Reduce the features first"
    ):
        getattr(clone(estimator), method)(X)
