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
from sklearn.base import clone
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.preprocessing import FunctionTransformer

from skcalib import BiEncoder, NormalizingFlow, Whitening
from skcalib.metrics import effective_rank, isoscore, mean_cosine, partition_isotropy, spearman

N, D = 24, 4
SEEDS = range(1)
# Powers of two, so that scaling alone rounds nothing until it leaves the range.
EXPONENTS = (
    *range(-1074, 1024, 124),
    *(-1030, -1022, -537, -534, -525, -510),  # squares are subnormal
    *(-270, -264, -260, 250, 256),  # fourth powers are
    *(-150, -140, -127, -75, 75, 120, 127),  # float32 ends
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
    cases = itertools.product(SEEDS, EXPONENTS, (0.0, 1e3), ("float64", "float32"))
    for seed, exponent, offset, dtype in cases:
        if (X := sample(seed, exponent, offset, dtype)) is not None:
            yield f"2**{exponent} + {offset:g}, {dtype}, seed {seed}", X


def same_numbers():
    """Yield name and rows of every type and layout that holds numbers of about one."""
    for seed in SEEDS:
        X = sample(seed, offset=3.0)
        integers = np.round(20 * X)
        unaligned = np.zeros(N, dtype=[("byte", "i1"), ("x", "f8", D)])
        unaligned["x"] = X
        layouts = {
            "Fortran order": np.asfortranarray(X),
            "negative strides": np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
            "every other": np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3],
            "read only": np.frombuffer(X.tobytes()).reshape(X.shape),
            "list": X.tolist(),
            "unaligned": unaligned["x"],
            "bool": X > 3,
            "constant column": np.c_[X[:, :3], np.full(N, 0.1)],
            "column twice": X[:, [0, 1, 2, 0]],
            "zero rows among others": np.where(np.arange(N)[:, None] % 3 > 0, X, 0.0),
        }
        layouts |= {name: X.astype(name) for name in (">f8", "float16", "longdouble", "O")}
        layouts |= {f"int{bits}": integers.astype(f"int{bits}") for bits in (8, 16, 32, 64)}
        layouts["uint64"] = np.abs(integers).astype("uint64")
        for name, array in layouts.items():
            yield f"{name}, seed {seed}", array


def no_samples():
    """Yield name and what holds no sample of numbers."""
    X = sample(0)
    values, types, rows = (np.nan, np.inf, -np.inf), ("float64", "float32"), (0, 7, N - 1)
    for value, dtype, row, column in itertools.product(values, types, rows, range(D)):
        bad = X.astype(dtype)
        bad[row, column] = value
        yield f"{value} at {row}, {column}, {dtype}", bad
    objects = X.astype(object)
    objects[2, 1] = None
    infinities = np.vstack([X, np.full(D, np.inf), np.full(D, -np.inf)])
    empty = [X[:0], X[:, :0], X[:0, :0]]
    shapes = [X[0], X[None], np.array(3.0), [[1.0, 2.0], [3.0]], None, 3.0, {"a": [1.0]}]
    types = [X + 1j, X.astype(str).astype(object)[:, :1] + "x", objects]
    types += [np.zeros(N, dtype=[("a", "f8"), ("b", "f8")])]
    sparse = [sp.csr_array(X), sp.csc_matrix(X), sp.coo_array(X)]
    for bad in (infinities, *empty, *shapes, *types, *sparse):
        yield f"{bad!r:.60}", bad


def outcome(function, *arguments):
    """Return the result, which comes without a warning of NumPy, or the error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function(*arguments)
        except (ValueError, TypeError) as error:
            return error
    assert not [w for w in caught if w.category is RuntimeWarning]
    return result


def report(problems, at_least):
    """Fail if there is a problem; there is one a case, empty, or None for what was refused."""
    problems = list(problems)
    found = [problem for problem in problems if problem]
    assert not found, f"{len(found)} of {len(problems)} cases:\n" + "\n".join(found[:20])
    assert problems.count("") >= at_least


# Whitening -------------------------------------------------------------------------------

WHITENINGS = [
    *(Whitening(k) for k in (None, 2, 0.9)),
    *(Whitening(power=0.0), Whitening(power=0.5, shrinkage=0.3)),
    *(Whitening(shrinkage=s) for s in (1.0, "auto")),
    *(Whitening(method="zca", shrinkage=s) for s in (0.0, 0.2)),
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
    k = min(len(whitening.explained_variance_), whitening.rank_)
    Z = C @ vt[:k].T * regularised[:k] ** (-whitening.power_ / 2)
    return Z @ Z.T, exponent * (1 - whitening.power_)


def coarseness(Z):
    """Relative spacing of numbers of this size and type, where they are subnormal."""
    return 10 * float(np.finfo(Z.dtype).smallest_subnormal) / float(np.abs(Z).max())


def whitening_is_wrong(whitening, X, Z):
    """Say how, or nothing."""
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


FITS = {
    "fit_transform": lambda w, X: w.fit_transform(X),
    "partial_fit": lambda w, X: w.partial_fit(X[:7]).partial_fit(X[7:]).transform(X),
}


@pytest.mark.parametrize("first", range(len(WHITENINGS)), ids=map(str, WHITENINGS))
def test_whitening_is_right_or_refuses(first):
    """Each case by one of the ways to fit, which another whitening fits by another way."""

    def problems():
        for i, (name, X) in enumerate(itertools.chain(magnitudes(), same_numbers()), first):
            method, fit = [*FITS.items()][i % len(FITS)]
            fitted = clone(WHITENINGS[first])
            Z = outcome(fit, fitted, X)
            if isinstance(Z, Exception):
                yield None
                continue
            problem = whitening_is_wrong(fitted, X, Z)
            yield problem and f"{method} of {name}: {problem}"

    report(problems(), 50)


# NormalizingFlow -------------------------------------------------------------------------

FLOW = NormalizingFlow(random_state=0, batch_size=8)


def test_flow_is_right_or_refuses():
    """Right is: finite, invertible, and a density that knows the scale of the data."""
    densities = {}

    def problems():
        for name, X in itertools.chain(magnitudes(), same_numbers()):
            if not name.endswith("seed 0"):
                continue
            fitted = clone(FLOW)
            Z = outcome(fitted.fit_transform, X)
            if isinstance(Z, Exception):
                yield None
                continue
            back = outcome(fitted.inverse_transform, Z)
            density = outcome(fitted.score_samples, X)
            for result in (Z, back, density, outcome(fitted.sample, 3)):
                finite = isinstance(result, Exception) or np.isfinite(result).all()
                yield "" if finite else f"{name}: not finite"
            if isinstance(back, np.ndarray):
                X = np.asarray(X, dtype=np.float64)
                error = np.abs(back / np.abs(X).max() - X / np.abs(X).max()).max()
                yield "" if error < 1e-3 else f"inverse of {name}: {error=}"
            if isinstance(density, np.ndarray) and name.startswith("2**"):
                exponent, rest = name[3:].split(" ", 1)
                densities.setdefault(rest, {})[int(exponent)] = density
        for rest, found in densities.items():
            near = min(found, key=abs)
            for exponent, density in found.items():
                moved = density + (exponent - near) * D * np.log(2.0)
                right = abs(exponent) >= 900 or np.allclose(moved, found[near], atol=0.5)
                yield "" if right else f"density at 2**{exponent} {rest}"

    report(problems(), 150)


@pytest.mark.filterwarnings("ignore:The flow was fitted on fewer")
@pytest.mark.parametrize(
    "estimator", [WHITENINGS[0], *WHITENINGS[-3:], FLOW], ids=lambda e: str(e)[:40]
)
def test_what_is_no_sample_is_refused(estimator):
    fitted = clone(estimator).fit(sample(1))
    methods = ["fit", "transform", "inverse_transform"]
    methods += ["partial_fit"] if hasattr(estimator, "partial_fit") else []

    def problems():
        for name, X in no_samples():
            for method in methods:
                used = clone(estimator) if "fit" in method else fitted
                result = outcome(getattr(used, method), X)
                refused = isinstance(result, Exception) and len(str(result).split()) > 3
                yield "" if refused else f"{method} of {name}: {result!r:.80}"

    report(problems(), 75 * len(methods))


# BiEncoder and metrics -------------------------------------------------------------------


def cosines(X):
    rows = FunctionTransformer(lambda texts: X[np.asarray(texts, dtype=int)])
    pairs = [(str(i), str(N - 1 - i)) for i in range(N)]
    return BiEncoder(rows).fit(pairs).predict(pairs)


@pytest.mark.parametrize(
    "function",
    [cosines, lambda X: spearman(X[:, 0], X[:, 1])],
    ids=["cosine", "spearman"],
)
def test_similarities_do_not_depend_on_the_scale(function):
    def problems():
        for name, X in magnitudes():
            if X.any(axis=1).all():  # no row that underflowed
                Y = X.astype(np.longdouble) / np.abs(X).max()
                value, expected = outcome(function, X), function(Y.astype(np.float64))
                right = np.allclose(value, expected, atol=1e-9)
                yield "" if right else f"{name}: {value} and not {expected}"

    report(problems(), 75)


@pytest.mark.parametrize("metric", [isoscore, mean_cosine, effective_rank, partition_isotropy])
def test_metrics_are_right_or_refuse(metric):
    def problems():
        for name, X in itertools.chain(magnitudes(), same_numbers()):
            value = outcome(metric, X)
            if isinstance(value, Exception):
                yield None
                continue
            Y = np.asarray(X, dtype=np.float64)
            expected = metric(Y / np.ldexp(1.0, int(np.frexp(np.abs(Y).max())[1]) - 1))
            scaled = metric is partition_isotropy  # the others are free of scale
            right = np.isfinite(value) and (scaled or abs(value - expected) < 1e-6)
            yield "" if right else f"{name}: {value} and not {expected}"
        for name, X in no_samples():
            yield "" if isinstance(outcome(metric, X), Exception) else name

    report(problems(), 150)
