"""Whether vectors are of the model that a whitening was fitted on, or of another."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from skcalib.calibration.moments import Moments
from skcalib.calibration.strength import ledoit_wolf_shrinkage
from skcalib.calibration.whitening import Whitening
from skcalib.inputs.vectors import checked_rows, unit_rows, warn_of_silent

# Between vectors of the same model and of another one. With MiniLM and e5 on five sets that no
# table has (docstrings, Cranfield, catalogs, code, passages), samples of twenty are at up to
# 0.91 and from 0.99 on, and 999 in 1,000 single vectors up to 0.82 and from 0.96 on.
FOREIGN, FOREIGN_SAMPLE = 0.87, 0.94
# Samples of another model, by random rotations, and the largest chance that one of them is
# called the same, by a normal distribution. On the five sets, all fits where samples of another
# model were called the same, at 32 to 192 columns, have chances of 0.0002 or more.
ROTATIONS, SAMPLE, LARGEST_CHANCE = 200, 20, 1e-4
# Least log ratio of random directions to those of the fit; below it nothing differs.
CONTRAST = 0.1
# Variance of a direction, as a share of the mean, below which it counts as this much. Vectors
# in int8 have rounding errors in directions that were nearly empty.
LEAST = 0.03


@dataclass(frozen=True)
class Provenance:
    """Whether vectors are of the model that a whitening was fitted on.

    Parameters
    ----------
    distance : float
        0 for vectors like those of the fit, 1 for vectors of another model, whose directions
        have nothing to do with those of the fit. Other domains and languages of the same model
        are between. It is the mean of `distances`.
    distances : ndarray of shape (n_samples,)
        The same of each vector.
    """

    distance: float
    distances: np.ndarray

    @property
    def is_same_model(self) -> bool:
        """Whether `distance` is below 0.94."""
        return self.distance < FOREIGN_SAMPLE

    @property
    def foreign(self) -> np.ndarray:
        """Mask of the vectors of another model, whose distance is 0.87 or more."""
        return self.distances >= FOREIGN


def provenance(whitening: Whitening, X: Any) -> Provenance:
    """Find out whether vectors are of the model that a whitening was fitted on.

    Two models of one width may lie in one index, and nothing says so. `is_same_model` needs
    five vectors, better twenty, of any domain. `foreign` marks the vectors of another model in
    an index that mixes two, if the whitening was fitted on texts such as those of the index.

    Parameters
    ----------
    whitening : Whitening
        Fitted on the vectors of one model, a few hundred or more.
    X : array-like of shape (n_samples, n_features)
        Vectors of any length, as they are stored. Zero vectors are of no model: their distance
        is NaN, and they are not marked.

    Returns
    -------
    provenance : Provenance
        With ``is_same_model``, ``distance``, and for each vector ``foreign`` and ``distances``.

    Raises
    ------
    TypeError, ValueError
        If `whitening` is no `Whitening`; if `X` has another width, is not finite, or is all
        zero; or if the vectors are so narrow that another model may look the same.

    See Also
    --------
    shift : Whether the texts have changed.

    Notes
    -----
    A model leaves some directions nearly empty, whatever the texts, and they are as good as
    random for another model. With the second moments M of the fitted vectors about the origin,
    ``s(x) = log(x' M⁻¹ x / |x|²)`` is small for the model's own vectors, and about
    ``log(tr(M⁻¹) / d)`` for vectors in random directions. The distance is 1 minus the share of
    the way from there to the fitted vectors. In M, covariances of columns are shrunk by the
    estimate of Ledoit and Wolf [1]_; variances are not, since the scales of its columns
    distinguish a model in any domain.

    The fewer directions there are, the more they share by chance. So the fitted vectors are
    rotated at random, as those of another model would be, and refused if more than one sample
    of twenty in 10,000 would be called the same.

    A change that keeps the directions is not seen: a prompt, or another domain. Layers,
    poolings and fine-tuned copies of one model share directions: another layer is mostly seen,
    another pooling with some models only.

    References
    ----------
    .. [1] Ledoit & Wolf (2004), "A well-conditioned estimator for large-dimensional
           covariance matrices", Journal of Multivariate Analysis 88(2).

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib import Whitening
    >>> from skcalib.monitoring import provenance
    >>> rng = np.random.default_rng(0)
    >>> old, new = (rng.normal(size=(500, 4)) @ rng.normal(size=(4, 384)) for _ in range(2))
    >>> whitening = Whitening(power="auto").fit(old[:400])
    >>> provenance(whitening, old[400:]).is_same_model
    True
    >>> index = np.vstack([old[400:], new[:3]])
    >>> np.flatnonzero(provenance(whitening, index).foreign)
    array([100, 101, 102])
    """
    if not isinstance(whitening, Whitening):
        raise TypeError(
            f"Got a {type(whitening).__name__}; expected a fitted Whitening. Of a pipeline of "
            "an encoder and a Whitening pass pipeline[-1], and vectors of "
            "pipeline[:-1].transform(texts)."
        )
    check_is_fitted(whitening)
    X = checked_rows(whitening, X, reset=False)
    moments = whitening.moments_
    covariance = moments.covariance()
    M = (1 - ledoit_wolf_shrinkage(moments)) * covariance
    np.fill_diagonal(M, np.diag(covariance))
    M += np.outer(moments.mean, moments.mean)
    values, basis = linalg.eigh(M)
    weights = 1 / np.maximum(values, LEAST * values.mean())
    elsewhere = np.log(weights.mean())
    second = moments.scatter / moments.n + np.outer(moments.mean, moments.mean)
    at_home = np.log(np.einsum("ij,ij->j", basis, second @ basis) @ weights / np.trace(second))
    if elsewhere - at_home < CONTRAST:
        raise ValueError(
            "The fitted vectors spread evenly in all directions, as whitened ones do, so that "
            "nothing distinguishes their model from others. Fit the whitening on the vectors "
            "that the encoder returns, of 300 texts or more."
        )
    spread = _spread_of_others(moments, weights) / (elsewhere - at_home)
    if norm.sf((1 - FOREIGN_SAMPLE) / spread) > LARGEST_CHANCE:
        raise ValueError(
            f"Vectors of {X.shape[1]} columns like these do not identify a model: those of "
            f"another one are at a distance of 1 ± {spread:.2g}, and of the same one at up to "
            f"{FOREIGN_SAMPLE}. Pass the whole vectors, if columns were cut off, or fit the "
            "whitening on other texts."
        )
    unit, lengths = unit_rows(X)
    if not lengths.any():
        raise ValueError("All vectors are zero; expected some of texts with content.")
    warn_of_silent(lengths == 0)
    scores = np.full(len(X), np.nan)
    scores[lengths > 0] = np.log((unit[lengths > 0] @ basis) ** 2 @ weights)
    distances = (scores - at_home) / (elsewhere - at_home)
    return Provenance(float(np.nanmean(distances)), distances)


def _spread_of_others(moments: Moments, weights: np.ndarray) -> float:
    """Return the standard deviation of the mean score of a sample that is rotated at random."""
    rng, d = np.random.default_rng(0), len(weights)
    drawn = rng.multivariate_normal(
        moments.mean, moments.covariance(), SAMPLE, "ignore", method="eigh"
    )
    # The sample in its own span, which is rotated into random directions.
    inner = np.linalg.qr(unit_rows(drawn)[0].T)[1].T
    frames = (np.linalg.qr(rng.normal(size=(d, inner.shape[1])))[0] for _ in range(ROTATIONS))
    return float(np.std([np.log((inner @ F.T) ** 2 @ weights).mean() for F in frames]))
