"""A stream of vectors against a fixed reference: an alarm that is rarely ever false."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.exceptions import NotFittedError

from skcalib.base import VersionedState, from_scratch
from skcalib.calibration.whitening.estimator import Whitening
from skcalib.compat import Interval, validate_parameter_constraints
from skcalib.inputs.vectors import rows_of
from skcalib.inspection._bets import Bets
from skcalib.inspection._displays import Display
from skcalib.inspection._shift import mahalanobis_map

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST = 20  # different rows of a reference
AXES = 4  # leading axes whose coordinates are scores
# Scores are rounded to this share of their standard deviation in the reference, so that copies
# of a row are equal: a product of matrices rounds a row differently beside other rows.
RESOLUTION = 1e-4
REMEMBERED = 2**18  # distinct rows of the stream, to recognize copies
POINTS = 4096  # most points of the history


@dataclass(eq=False)
class ShiftMonitor(VersionedState):
    """Watch a stream of vectors, and raise an alarm once they differ from a reference.

    If nothing changes, the probability that an alarm is ever raised is at most
    `false_alarm_rate`, however long the stream and however often it is looked at. A test that
    is repeated for each batch raises a false alarm sooner or later.

    Parameters
    ----------
    whitening : Whitening
        Fitted, on other texts than the reference.
    false_alarm_rate : float in (0, 1), default=0.01
        Largest probability of ever raising an alarm on a stream without a change.

    Attributes
    ----------
    is_shifted_ : bool
        Whether the evidence has ever reached ``1 / false_alarm_rate``.
    shifted_at_ : int or None
        The row, counted from 1, with which it reached that.
    evidence_ : float
        Evidence of a change after the last row: 1 for none, at most about 1e260.
    n_seen_ : int
        Rows of the stream so far.
    history_ : ndarray of shape (n_points, 2)
        Numbers of rows and the evidence after them, at most 4096, evenly spaced.
    n_features_in_ : int
        Width of the vectors.

    See Also
    --------
    shift : Compares one sample with the vectors of a fit, once.
    EvidenceDisplay : Draws the evidence over time.

    Notes
    -----
    Each row has six scores: its squared Mahalanobis distance from the mean of the whitening,
    its cosine with this mean, and its coordinates on the four leading axes. Of each score, only
    the rank among the reference counts, so that the promise holds for any distribution. Under
    no change the ranks of a stream among a *fixed* reference are those of a Pólya urn, which
    includes the reference's sampling error. The evidence is the capital of bets against this
    urn, a martingale [1]_ [2]_. Several bets start over time, so that a change late in a long
    stream is seen as well. The largest of the six capitals counts, divided by six.

    The promise holds if the rows of the reference and of the stream were drawn one by one from
    the same source. It also holds if each was then copied any number of times: the evidence is
    the smaller one of that of all rows and that of their first copies. So one text that floods
    the stream is no change. Copies are recognized among the last 262,144 distinct rows. A
    stream that is sorted by topic differs from a reference of all topics, and raises an alarm,
    and so may a stream of near-copies, which are not recognized.

    A larger reference detects smaller changes, and at 1,000 rows or more little is gained.

    References
    ----------
    .. [1] Vovk, Nouretdinov & Gammerman (2003), "Testing exchangeability on-line", ICML.
    .. [2] Shaer, Bar, Prinster & Romano (2026), "Testing For Distribution Shifts with
           Conditional Conformal Test Martingales", arXiv:2602.13848, which bets outside a
           confidence band of a fixed reference.

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib import Whitening
    >>> from skcalib.inspection import ShiftMonitor
    >>> rng = np.random.default_rng(0)
    >>> whitening = Whitening().fit(rng.normal(size=(1000, 8)))
    >>> monitor = ShiftMonitor(whitening).fit(rng.normal(size=(500, 8)))
    >>> monitor.update(rng.normal(size=(2000, 8))).is_shifted_
    False
    >>> monitor.update(rng.normal(size=(100, 8)) + 1).is_shifted_
    True
    >>> monitor.shifted_at_
    2015
    """

    whitening: Whitening
    _: KW_ONLY
    false_alarm_rate: float = 0.01

    @from_scratch
    def fit(self, reference: Any) -> Self:
        """Set the reference, and start a new stream.

        Parameters
        ----------
        reference : array-like of shape (n_samples, n_features)
            Vectors of texts as they should be, as the encoder returns them: 20 different
            ones or more, better 500, that the whitening was *not* fitted on. Fitted vectors lie
            nearer to the mean than new ones, and break the promise.

        Returns
        -------
        self : ShiftMonitor

        Raises
        ------
        TypeError
            If `whitening` is no `Whitening`.
        ValueError
            If rows are too few or not finite, or the whitening was fitted on just these.
        """
        rate = {"false_alarm_rate": [Interval(Real, 0, 1, closed="neither")]}
        parameters = {"false_alarm_rate": self.false_alarm_rate}
        validate_parameter_constraints(rate, parameters, type(self).__name__)
        if not isinstance(self.whitening, Whitening):
            raise TypeError(
                f"whitening is of type {type(self.whitening).__name__}; expected a fitted "
                "Whitening, such as the last step of a pipeline, pipeline[-1]."
            )
        self.whitening.linear_map()  # raises if it is not fitted
        X = self._rows(reference)
        moments = self.whitening.moments_
        if len(X) == moments.n and np.allclose(X.mean(axis=0), moments.mean, rtol=1e-5):
            raise ValueError(
                f"The reference is the sample of {len(X)} vectors that the whitening was "
                "fitted on. New vectors lie farther from the mean than fitted ones, and would "
                "raise an alarm. Set some vectors aside before the fit, and pass these."
            )
        scores = _scores(self.whitening, X)
        unit = RESOLUTION * scores.std(axis=0)
        self._unit = np.where(unit > 0, unit, 1.0)
        self._rng = np.random.default_rng(0)  # orders equal scores
        rounded, ties = self._rounded(scores)
        first = _are_first(rounded, {})
        if (n_first := int(first.sum())) < LEAST:
            raise ValueError(
                f"The reference has {len(X)} rows, {n_first} of them different; expected "
                f"{LEAST} or more, and better 500."
            )
        self._of_all, self._of_first = Bets(rounded, ties), Bets(rounded[first], ties[first])
        self._known: dict[bytes, None] = {}
        self._last = np.ones(2)
        self._points, self._step = [(0, 1.0)], 1
        self.n_features_in_ = X.shape[1]
        self.n_seen_, self.evidence_ = 0, 1.0
        self.is_shifted_ = False
        self.shifted_at_: int | None = None
        return self

    def update(self, X: Any) -> Self:
        """Add rows of the stream; any split into calls gives the same evidence.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New vectors, in their order, one or more.

        Returns
        -------
        self : ShiftMonitor

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            If `X` is not finite or has another width. Nothing is added then.
        """
        self._check_is_fitted()
        scores, ties = self._rounded(_scores(self.whitening, self._rows(X)))
        first = _are_first(scores, self._known)
        while len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
        evidence = np.empty((len(scores), 2))
        evidence[:, 0] = _largest(self._of_all.capital(scores, ties))
        of_first = _largest(self._of_first.capital(scores[first], ties[first]))
        # Until the next distinct row, the evidence stays as it is.
        evidence[:, 1] = np.concatenate([self._last[1:], of_first])[np.cumsum(first)]
        self._last = evidence[-1]
        self._keep(evidence.min(axis=1))
        return self

    @property
    def history_(self) -> np.ndarray:
        """Numbers of rows, and the evidence after them."""
        if not hasattr(self, "n_seen_"):
            raise AttributeError("This ShiftMonitor has no reference yet.")
        return np.array(self._points)

    def _check_is_fitted(self) -> None:
        if not hasattr(self, "n_seen_"):
            raise NotFittedError("The monitor has no reference. Call fit(reference) first.")

    def _rows(self, X: Any) -> np.ndarray:
        rows = rows_of(self.whitening, X, reset=False)
        return np.asarray(rows.cpu() if hasattr(rows, "cpu") else rows, dtype=np.float64)

    def _rounded(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores in whole units, and random numbers that order equal ones."""
        return np.rint(scores / self._unit) + 0.0, self._rng.random(scores.shape)

    def _keep(self, evidence: np.ndarray) -> None:
        """Count rows with the evidence after each."""
        numbers = np.arange(self.n_seen_ + 1, self.n_seen_ + len(evidence) + 1)
        alarms = np.flatnonzero(evidence >= 1 / self.false_alarm_rate)
        if len(alarms) and not self.is_shifted_:
            self.is_shifted_, self.shifted_at_ = True, int(numbers[alarms[0]])
        self.n_seen_, self.evidence_ = int(numbers[-1]), float(evidence[-1])
        while numbers[-1] // self._step >= POINTS:
            self._step *= 2
        kept = numbers % self._step == 0
        new: Iterable = zip(numbers[kept].tolist(), evidence[kept].tolist(), strict=True)
        self._points = [p for p in self._points if p[0] % self._step == 0] + [*new]


@dataclass(eq=False, repr=False)
class EvidenceDisplay(Display):
    """Evidence of a `ShiftMonitor` over the rows of its stream, with the bound of the alarm.

    Parameters
    ----------
    n_seen : ndarray of shape (n_points,)
        Numbers of rows.
    evidence : ndarray of shape (n_points,)
        The evidence after them.
    threshold : float
        Evidence that raises the alarm.
    shifted_at : int or None, default=None
        The row that raised it.
    name : str or None, default=None
        For the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
    threshold_line_ : matplotlib Line2D
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from skcalib import Whitening
    >>> from skcalib.inspection import EvidenceDisplay, ShiftMonitor
    >>> rng = np.random.default_rng(0)
    >>> whitening = Whitening().fit(rng.normal(size=(1000, 8)))
    >>> monitor = ShiftMonitor(whitening).fit(rng.normal(size=(500, 8)))
    >>> monitor.update(rng.normal(size=(1000, 8))).update(rng.normal(size=(50, 8)) + 1)
    ShiftMonitor(whitening=Whitening(), false_alarm_rate=0.01)
    >>> display = EvidenceDisplay.from_monitor(monitor)
    >>> bool(display.evidence.max() > display.threshold)
    True
    """

    n_seen: np.ndarray
    evidence: np.ndarray
    threshold: float
    shifted_at: int | None = None

    @classmethod
    def from_monitor(
        cls,
        monitor: ShiftMonitor,
        *,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the evidence of a monitor.

        Parameters
        ----------
        monitor : ShiftMonitor
            With a reference and a stream.
        name : str or None, default=None
            For the legend.
        ax : matplotlib Axes or None, default=None
            Where to draw; None makes a new figure.
        **kwargs
            Passed to ``plot`` of matplotlib.

        Returns
        -------
        display : EvidenceDisplay

        Raises
        ------
        ImportError
            If matplotlib is missing.
        NotFittedError
            If the monitor has no reference.
        """
        monitor._check_is_fitted()
        n_seen, evidence = monitor.history_.T
        threshold = 1 / monitor.false_alarm_rate
        display = cls(n_seen, evidence, threshold, monitor.shifted_at_, name=name)
        return display.plot(ax, **kwargs)

    def _draw(self, ax: Axes, kwargs: dict[str, Any]) -> None:
        (self.line_,) = ax.plot(self.n_seen, self.evidence, **{"label": self.name, **kwargs})
        self.threshold_line_ = ax.axhline(self.threshold, color="black", ls="--", lw=0.8)
        if self.shifted_at is not None:
            ax.axvline(self.shifted_at, color=self.line_.get_color(), ls=":", lw=0.8)
        ax.set(xlabel="rows of the stream", ylabel="evidence of a change", yscale="log")


def _scores(whitening: Whitening, X: np.ndarray) -> np.ndarray:
    """Scores of rows, (n, S): distance, cosine with the mean, coordinates."""
    Z = mahalanobis_map(whitening.map_).affine.apply(X)
    distance = np.einsum("ij,ij->i", Z, Z)
    mean = whitening.mean_
    lengths = np.linalg.norm(X, axis=1)
    cosine = X @ mean / np.where(lengths > 0, lengths, 1)
    return np.column_stack([distance, cosine, Z[:, :AXES]])


def _are_first(scores: np.ndarray, known: dict[bytes, None]) -> np.ndarray:
    """Whether rows are not among the known ones, nor copies of one before; all are then known.

    Two rows with the same scores count as copies.
    """
    first = np.empty(len(scores), bool)
    for i, row in enumerate(scores):
        first[i] = (key := row.tobytes()) not in known
        known[key] = None
    return first


def _largest(capital: np.ndarray) -> np.ndarray:
    """Evidence from the capital of each score.

    The capitals are martingales of different pasts, so that Ville's inequality bounds each of
    them, and not their mean: they share the rate.
    """
    return capital.max(axis=1) / capital.shape[1]
