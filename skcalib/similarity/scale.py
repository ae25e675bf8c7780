"""A scale of similarity: how rare a cosine is among pairs of unrelated texts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from math import ceil, sqrt
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from skcalib.base import VersionedState, warn
from skcalib.callbacks import fit_task, part_task
from skcalib.compat import Interval, StrOptions, validate_params
from skcalib.cosines import SLACK, best_of_others
from skcalib.encoders.pipelines import as_encoder, before_calibration
from skcalib.inputs.containers import first_text, refuse_rows
from skcalib.inputs.texts import distinct_texts
from skcalib.inputs.vectors import checked_rows, unit_rows, warn_of_silent
from skcalib.similarity.null import FEWEST_PAIRS, PairCounts, count_pairs, distinct
from skcalib.similarity.space import vectors_of
from skcalib.statistics.conformal import confidence_for, n_above, n_needed

# A new stored text that passes makes two pass: itself, and its nearest text.
MUTUAL = 2
MOST_PAIRS = 10**7  # default of `n_pairs`
# An odd number. The calibration is fitted on three fifths of the texts, and so a little noisier
# than on all: thresholds are on the strict side.
FOLDS = 5
# Vectors for each direction that holds the variance. With fewer, a whitening in full lets 1.2
# times as many new pairs pass as 1 % of the fitted ones: h = 1 / 30 of a fitted vector's length
# is its own, cosines of new ones are 1 / (1 - h) times as large, and exp(2.33² h) is 1.2.
ENOUGH = 30
FEWEST = 10  # vectors whose mean is not zero by symmetry
RATE = Interval(Real, 0, 1, closed="neither")
PER = StrOptions({"pair", "query"})


class SimilarityScale(VersionedState, BaseEstimator):
    """Measure how similar unrelated texts are: thresholds and p-values.

    Nearly all pairs of fitted texts are unrelated. So a similarity that one in a thousand of
    them reaches is reached by one in a thousand unrelated pairs of the same domain. A rate is
    per pair or, with ``per="query"``, per query without an answer, whose best pair counts.

    Parameters
    ----------
    encoder : any encoder of texts, transformer of vectors, or None, default=None
        It is cloned and fitted. For texts it is any encoder, such as a pipeline of
        `BertEncoder` and `Whitening`, or a model's folder, see `TextEncoder`. For vectors it is
        their calibration, such as ``Whitening(power="auto")``, or None to compare them as they
        are, if no calibration was fitted on them. The pairs that a calibration was fitted on
        are less similar than new ones, so pairs are counted that were left out of its fit.
    n_pairs : int, default=10_000_000
        Number of pairs to count, 10 at least; by default those of 4,473 texts drawn at random.

    Attributes
    ----------
    encoder_ : estimator or None
        The encoder, fitted on all texts.
    n_pairs_, n_queries_ : int
        Numbers of pairs, and of queries whose best document was counted.
    n_features_in_, feature_names_in_
        Of vectors: number of features seen during fit, and their names when all are strings.

    See Also
    --------
    BiEncoder : Cosines of pairs of texts.

    Notes
    -----
    **Per pair**, rates hold on average over fits. Of nine in ten fits on real texts, the rate
    was at most 1.5 times the promise with 200 texts, and 1.35 times with 1,000. Rates below
    ``10 / n_pairs_`` are refused.

    **Per query**, rates hold for any number of queries (conformal prediction [1]_) if the
    `unanswerable` ones are like future queries, and no document answers them. If some are
    answered, the threshold is stricter. On average over fits they hold with ``1 / rate - 1``
    queries; for the fit at hand, with a confidence of 0.9, they need 230 queries for 1 % and 45
    for 5 %. Without such queries, the documents stand in for them, which is right if queries
    are like documents. The most similar documents are often each other's best, so that a new
    one makes two pass, and rates need about twice as many.

    References
    ----------
    .. [1] Vovk, Gammerman & Shafer (2005), "Algorithmic Learning in a Random World", Springer;
           Vovk (2012), "Conditional validity of inductive conformal predictors", ACML.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from skcalib import BertEncoder, SimilarityScale, Whitening
    >>> from skcalib.datasets import load_questions
    >>> encoder = make_pipeline(BertEncoder("minilm"), Whitening(power="auto"))
    >>> scale = SimilarityScale(encoder).fit(load_questions().data)
    >>> threshold = scale.threshold(0.01)
    >>> bool(scale.p_value(threshold) <= 0.01)
    True
    """

    _parameter_constraints = {
        "encoder": "no_validation",  # `as_encoder` checks it, or scikit-learn's clone
        "n_pairs": [Interval(Integral, FEWEST_PAIRS, None, closed="left")],
    }

    # Data of the fit, which no pipeline passes on.
    __metadata_request__fit = {"unanswerable": UNUSED}
    _state_version = 13

    def __init__(self, encoder: Any = None, *, n_pairs: int = MOST_PAIRS) -> None:
        self.encoder = encoder
        self.n_pairs = n_pairs

    @fit_task(prefer_skip_nested_validation=True, n_subtasks=1)
    def fit(self, X: Any, y: Any = None, *, unanswerable: Any = None) -> Self:
        """Count the similarities of pairs of texts.

        Parameters
        ----------
        X : texts of shape (n_samples,), or array-like of shape (n_samples, n_features)
            Texts, pairs of texts or vectors, at least two that differ. Texts count once, as do
            vectors that are equal but for rounding. Zero vectors are left out.
        y : None
            Ignored. Texts and vectors are refused.
        unanswerable : like X, default=None
            Queries that no text of `X` answers; equal ones count once. Then the pairs of a
            query and a text of `X` are counted, and the best text of each query.

        Returns
        -------
        self : SimilarityScale
        """
        refuse_rows(
            self, y, "Pass queries that no text of X answers as fit(X, unanswerable=queries)."
        )
        X, calibration = self._fitted_rows(X)
        if unanswerable is None and calibration is not None and _learns(calibration):
            return self._count_left_out(X, calibration)
        queries = None if unanswerable is None else self._rows_of_queries(unanswerable)
        X = _mapped(calibration, X)
        rng, n_texts = np.random.default_rng(0), self._n_texts
        drawn = rng.permutation(len(X))
        if queries is None:
            if calibration is None:
                _warn_if_fitted(X)
            n_rows = min(n_texts, len(X))
            rows, places = unit_rows(X[drawn[:n_rows]])[0], drawn[:n_rows]
            pair, new = count_pairs(rows), MUTUAL
        else:
            n_rows, new = min(n_texts, len(queries)), 1
            columns = unit_rows(X[drawn[: max(self.n_pairs // n_rows, 1)]])[0]
            rows = unit_rows(queries[rng.permutation(len(queries))[:n_rows]])[0]
            places, pair = np.full(n_rows, -1), count_pairs(rows, columns)
        best = best_of_others(rows.astype(np.float32), places, X)
        return self._keep(pair, PairCounts.of(best, new))

    def _fitted_rows(self, X: Any) -> tuple[np.ndarray, Any]:
        """Fit the encoder; return distinct rows, and the fitted calibration that follows."""
        encoder = None if self.encoder is None else clone(as_encoder(self.encoder))
        self._is_of_texts = False
        if encoder is not None and first_text(X) is not None:
            self._is_of_texts = True
            texts = distinct_texts(X)
            with part_task("fit-encoder", encoder):
                self.encoder_ = encoder.fit(texts, None)  # a FrozenEstimator wants a y
            first, calibration = before_calibration(encoder, texts[0])
            return _distinct_content(vectors_of(first, texts), texts, least=2), calibration
        X = checked_rows(self, X, reset=True, ensure_min_samples=2)
        rows = _distinct_content(X, least=2)
        with part_task("fit-encoder", encoder):
            self.encoder_ = None if encoder is None else encoder.fit(rows, None)
        return rows, encoder

    def _rows_of_queries(self, queries: Any) -> np.ndarray:
        """Return distinct queries in the space of the encoder."""
        if self._is_of_texts:
            texts = distinct_texts(queries, "unanswerable")
            return _distinct_content(vectors_of(self.encoder_, texts), texts)
        rows = _distinct_content(checked_rows(self, queries, reset=False))
        return _mapped(self.encoder_, rows)

    def _count_left_out(self, X: np.ndarray, calibration: Any) -> Self:
        """Count pairs whose texts were both left out, and each text's best of all others."""
        if len(X) < FOLDS:
            raise ValueError(
                f"SimilarityScale got {len(X)} distinct vectors and a calibration, whose fit "
                f"leaves out two fifths of them; expected {FOLDS} or more, better some hundred."
            )
        drawn = np.random.default_rng(0).permutation(len(X))[: self._n_texts]
        folds = [drawn[k::FOLDS] for k in range(FOLDS)]
        counts, best = [], []
        for k, step in product(range(FOLDS), range(1, FOLDS // 2 + 1)):  # each pair once
            one, other = folds[k], folds[(k + step) % FOLDS]
            kept = drawn[~np.isin(drawn, [*one, *other])]
            try:
                fitted = clone(calibration).fit(X[kept], None)
            except Exception as error:
                error.add_note(
                    f"SimilarityScale fits the calibration on three fifths of {len(drawn)} "
                    "vectors and counts pairs of the others. Give more vectors, or a "
                    "FrozenEstimator of a calibration that was fitted on others."
                )
                raise
            rows, columns = (unit_rows(_mapped(fitted, X[fold]))[0] for fold in (one, other))
            counts.append(count_pairs(rows, columns))
            if step == 1:
                counts += [count_pairs(rows)] if len(rows) > 1 else []
                best.append(best_of_others(rows.astype(np.float32), one, _mapped(fitted, X)))
        pair = reduce(PairCounts.plus, counts)
        return self._keep(pair, PairCounts.of(np.concatenate(best), MUTUAL))

    def _keep(self, pair: PairCounts, query: PairCounts) -> Self:
        self._counts = {"pair": pair, "query": query}
        self.n_pairs_, self.n_queries_ = pair.n, query.n
        return self

    @property
    def _n_texts(self) -> int:
        """Number of texts that have `n_pairs` pairs."""
        return int(np.sqrt(2 * self.n_pairs)) + 1

    @validate_params(
        {
            "false_positive_rate": [RATE],
            "per": [PER],
            "confidence": [RATE, StrOptions({"auto"}), None],
        },
        prefer_skip_nested_validation=True,
    )
    def threshold(
        self,
        false_positive_rate: float = 0.01,
        *,
        per: Literal["pair", "query"] = "pair",
        confidence: float | Literal["auto"] | None = "auto",
    ) -> float:
        """Similarity that a given share of pairs of unrelated texts reaches.

        Parameters
        ----------
        false_positive_rate : float, default=0.01
            Largest share that may pass. What it needs is in the Notes of the class.
        per : {"pair", "query"}, default="pair"
            Whether it is the share of pairs that pass, or of queries whose best document
            passes.
        confidence : float in (0, 1), "auto" or None, default="auto"
            Per query, the confidence that the rate holds for this fit. With None it holds on
            average over fits, so that nearly every second one exceeds it. "auto" is 0.9 if
            there are 100 queries or more, and as many as this needs, and None with fewer.

        Returns
        -------
        similarity : float
            The smallest that keeps the rate. Pairs at least as similar count as related.
        """
        check_is_fitted(self)
        rate, counts = false_positive_rate, self._counts[per]
        if per == "pair":
            # Of n texts, n (n - 1) / 2 pairs are counted, at most n_pairs.
            needed = n_needed(rate, FEWEST_PAIRS)
            kind = f"pairs, of {ceil((1 + sqrt(1 + 8 * needed)) / 2):,} texts"
            kind += f", and n_pairs={needed}" if needed > MOST_PAIRS else ""
            n_above(counts.n, rate, kind, new=FEWEST_PAIRS)
            return float(counts.threshold(rate))
        if confidence == "auto":
            confidence = confidence_for(counts.n, rate, counts.new)
        kind = "unanswerable queries" if counts.new == 1 else "texts"
        most = n_above(counts.n, rate, kind, new=counts.new, confidence=confidence)
        return float(counts.threshold((most + counts.new) / (counts.n + 1)))

    @validate_params({"per": [PER]}, prefer_skip_nested_validation=True)
    def p_value(
        self,
        similarity: ArrayLike,
        *,
        per: Literal["pair", "query"] = "pair",
    ) -> np.ndarray:
        """Chance that a pair of unrelated texts is at least as similar.

        Parameters
        ----------
        similarity : array-like of shape (n,)
            Cosines.
        per : {"pair", "query"}, default="pair"
            "query" is for the best of all documents.

        Returns
        -------
        p : ndarray of shape (n,)
            ``(1 + counted pairs that are at least as similar) / (1 + n_pairs_)``, on average
            over fits. Per query, without queries, the first 1 is a 2, see Notes.
        """
        check_is_fitted(self)
        similarity = np.asarray(similarity, dtype=np.float64)
        if not (possible := np.abs(similarity) <= 1 + SLACK).all():
            raise ValueError(
                f"similarity has {similarity[~possible].flat[0]:g}; expected cosines, from -1 "
                "to 1. Compute them from vectors of unit length."
            )
        return self._counts[per].p_value(similarity)


def _distinct_content(
    X: np.ndarray, texts: Sequence[str] = (), *, least: int = 1
) -> np.ndarray:
    """Leave out zero vectors, which are similar to nothing, and copies."""
    silent = ~X.any(axis=1)
    rows = X[~silent]
    rows = distinct(rows) if len(rows) else rows
    if len(rows) < least:
        raise ValueError(
            f"SimilarityScale got {len(rows)} vectors that differ and are not zero; expected "
            f"{least} or more. Give more texts."
        )
    warn_of_silent(silent, texts)
    return rows


# A calibration moves the vectors that it is fitted on apart: their mean becomes zero, and a
# whitening shortens the directions that they share by chance. So pairs of new vectors are more
# similar than pairs of fitted ones, several times as often at a given threshold. The scale
# therefore counts pairs that a calibration was not fitted on.


def _warn_if_fitted(X: np.ndarray) -> None:
    """Warn if the mean is zero, as only that of the vectors of a fit is, and they are few."""
    X = X / np.abs(X).max()  # so that nothing overflows
    mean, length = X.mean(axis=0, dtype=np.float64), np.linalg.norm(X, axis=1).mean()
    if np.linalg.norm(mean) > 1e-3 * length / len(X) ** 0.5:
        return
    scatter = (X / length).T @ (X / length)
    directions = np.trace(scatter) ** 2 / np.sum(scatter**2)
    if FEWEST <= len(X) < ENOUGH * directions:
        warn(
            f"The mean of these {len(X):,} vectors is zero, as if a calibration was fitted on "
            "them. Then more pairs of new vectors pass than of these. Give the calibration to "
            "the scale, SimilarityScale(calibration), and fit it on the vectors before it."
        )


def _learns(calibration: Any) -> bool:
    """Whether a fit on other vectors would lead to another map."""
    if isinstance(calibration, Pipeline):
        return any(_learns(s) for _, s in calibration.steps if not isinstance(s, str | None))
    return not isinstance(calibration, FrozenEstimator) and get_tags(calibration).requires_fit


def _mapped(calibration: Any, X: np.ndarray) -> np.ndarray:
    """Return calibrated rows as an array, whatever output is configured."""
    if calibration is None:
        return X
    with config_context(transform_output="default"):
        return np.asarray(calibration.transform(X))
