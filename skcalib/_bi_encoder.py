"""Pairs of texts scored by the similarity of their vectors."""

from __future__ import annotations

from numbers import Real
from os import PathLike
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted

from skcalib._base import VersionedState, warn
from skcalib._encoder.text_encoder import as_encoder
from skcalib._scale.estimator import SimilarityScale
from skcalib._sklearn_compat import HasMethods, StrOptions, _fit_context
from skcalib._texts import as_pairs, distinct, texts_of
from skcalib._vectors import unit_rows, unmasked
from skcalib.metrics import spearman

__all__ = ["BiEncoder", "vectors_of"]

# Texts whose pairs, two millions, tell which similarities chance produces.
SAMPLED_TEXTS = 2000

PAIRS_AT_A_TIME = 2048  # pairs whose vectors are copied side by side


class BiEncoder(VersionedState, BaseEstimator):
    """Score pairs of texts by the similarity of their vectors.

    Both texts of a pair go through the same encoder on their own (a bi-encoder [1]_), and
    the similarity of the two vectors is the prediction. Wrapping a pipeline of an encoder
    and a calibrator lets scikit-learn's model selection choose pooling, layers and
    calibration by human judgements of similarity; fitting uses no judgement.

    Parameters
    ----------
    encoder : estimator, or any encoder of texts
        Transformer from texts to vectors, such as a pipeline of `BertEncoder` and
        `Whitening`; or a model's folder, an object with a method ``encode``, or a function from
        a list of texts to an array, see `TextEncoder`. It is cloned, never changed;
        ``FrozenEstimator(pipeline)`` keeps the fit of one that is fitted, such as `calibrate`
        returns.
    similarity : {"cosine", "corrected", "dot", "euclidean"}, default="cosine"
        Similarity of two vectors; "euclidean" is the negated distance, and "corrected" the
        cosine less the mean density of both texts among the fitted ones (`SimilarityScale`),
        after which one threshold serves all pairs. Computed in float64: between vectors that
        are nearly parallel, as BERT's are, float32 leaves too few digits to rank them. A zero
        vector has cosine 0 with every other.

    Attributes
    ----------
    encoder_ : estimator
        The fitted clone.
    random_similarities_ : ndarray of shape (n,), float64
        Similarities of all pairs of up to 2,000 fitted texts, drawn at random, in rising order.
        Nearly all pairs are unrelated: they show how similar unrelated texts are. They follow
        `similarity` where `set_params` changes it.
    scale_ : SimilarityScale
        Fitted on the vectors of these texts.

    Notes
    -----
    The sampled texts are encoded when `threshold`, a rate or a corrected similarity is first
    asked for. From then on the estimator holds their vectors, until then the texts, and so does
    a pickle of it.

    References
    ----------
    .. [1] Reimers & Gurevych (2019), "Sentence-BERT: Sentence Embeddings using Siamese
           BERT-Networks", EMNLP, arXiv:1908.10084.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from skcalib import BertEncoder, BiEncoder, Whitening
    >>> from skcalib.datasets import load_toy_sts, minilm_path
    >>> pairs, grades = load_toy_sts(return_X_y=True)
    >>> encoder = make_pipeline(
    ...     BertEncoder(minilm_path(), layers=0), Whitening(shrinkage="auto")
    ... )
    >>> model = BiEncoder(encoder).fit(pairs)
    >>> model.predict(pairs[:3]).shape
    (3,)
    >>> raw = BiEncoder(BertEncoder(minilm_path(), layers=0)).fit(pairs)
    >>> model.score(pairs, grades) > raw.score(pairs, grades)
    True

    How similar two texts must be, for one pair in a hundred to be as similar by chance:

    >>> threshold = model.threshold(0.01)
    >>> bool(model.false_positive_rate([threshold])[0] <= 0.01)
    True
    """

    _parameter_constraints: dict = {
        "encoder": [HasMethods(["fit", "transform"]), HasMethods("encode"), callable]
        + [str, PathLike],
        "similarity": [StrOptions({"cosine", "corrected", "dot", "euclidean"})],
    }

    encoder_: BaseEstimator
    _state_version = 3

    def __init__(
        self,
        encoder: BaseEstimator,
        *,
        similarity: Literal["cosine", "corrected", "dot", "euclidean"] = "cosine",
    ) -> None:
        self.encoder = encoder
        self.similarity = similarity

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: None = None) -> Self:
        """Fit the encoder on the distinct texts of ``X``.

        Parameters
        ----------
        X : pairs of shape (n_pairs, 2), or texts of shape (n_texts,)
            Lists, arrays or frames. No judgement of similarity is needed, so any texts of
            the domain will do.
        y : None
            Ignored.

        Returns
        -------
        self : BiEncoder
            The fitted estimator.
        """
        unique = distinct(texts_of(X, caller=type(self).__name__))[0]
        if hasattr(self, "encoder_"):
            del self.encoder_  # an error below leaves nothing half-fitted
        encoder = as_encoder(self.encoder, type(self).__name__)
        encoder = clone(encoder).fit(unique, None)  # FrozenEstimator wants a y
        sample = np.random.default_rng(0).permutation(len(unique))[:SAMPLED_TEXTS]
        self._sample: list[str] | np.ndarray = [unique[row] for row in sample]
        self._scale: SimilarityScale | None = None
        self._random: dict[str, np.ndarray] = {}
        self.encoder_ = encoder
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Similarity of the two texts of each pair.

        Parameters
        ----------
        X : pairs of shape (n_pairs, 2)
            A list of pairs, an array or a frame. Each distinct text is encoded once.

        Returns
        -------
        similarity : ndarray of shape (n_pairs,), float64
            Larger means more similar.
        """
        check_is_fitted(self)
        left, right = as_pairs(X, caller=type(self).__name__)
        texts, inverse = distinct(left + right)
        vectors = vectors_of(self.encoder_, texts)
        similarity = self._similarities(vectors, inverse[: len(left)], inverse[len(left) :])
        if not np.isfinite(similarity).all():
            raise ValueError(
                f"The {self.similarity} of pair {np.flatnonzero(~np.isfinite(similarity))[0]} "
                "is not finite: its vectors are not, or overflow float64. Look at what the "
                "encoder returns for it."
            )
        return similarity

    @property
    def scale_(self) -> SimilarityScale:
        """The scale of similarity, fitted when first asked for."""
        if self._scale is None:
            self._scale = SimilarityScale().fit(self._sampled_vectors())
        return self._scale

    @property
    @np.errstate(over="ignore", invalid="ignore")
    def random_similarities_(self) -> np.ndarray:
        """Similarities of all pairs of some fitted texts, computed when first asked for."""
        vectors = self._sampled_vectors()
        if self.similarity not in self._random:
            scaled, density = self._scaled(vectors)
            of_rows = [
                self._similarity(scaled[i], scaled[i + 1 :], density[i], density[i + 1 :])
                for i in range(len(scaled))
            ]
            found = np.concatenate(of_rows)
            # Those that are not finite are left out; `predict` raises an error for them.
            self._random = {self.similarity: np.sort(found[np.isfinite(found)])}
        return self._random[self.similarity]

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return state | {"_random": {}} if "_random" in state else state  # 16 MB, soon made anew

    def _sampled_vectors(self) -> np.ndarray:
        """Vectors of some fitted texts, encoded when first asked for."""
        check_is_fitted(self)
        if isinstance(self._sample, list):
            self._sample = vectors_of(self.encoder_, self._sample)
        return self._sample

    @np.errstate(over="ignore", invalid="ignore")
    def _similarities(self, vectors: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Similarities of the rows ``i`` to the rows ``j``, pair by pair."""
        scaled, density = self._scaled(vectors)
        similarity = np.empty(len(i))
        for start in range(0, len(i), PAIRS_AT_A_TIME):
            pairs = slice(start, start + PAIRS_AT_A_TIME)
            a, b = i[pairs], j[pairs]
            similarity[pairs] = self._similarity(scaled[a], scaled[b], density[a], density[b])
        return similarity

    def _scaled(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows as they are compared, in float64, and what their density takes off a cosine."""
        corrected = self.similarity == "corrected"
        density = self.scale_.density(vectors) if corrected else np.zeros(len(vectors))
        cosine = self.similarity in ("cosine", "corrected")
        return unit_rows(vectors)[0] if cosine else vectors.astype(np.float64), density

    def _similarity(
        self, a: np.ndarray, b: np.ndarray, density_a: np.ndarray, density_b: np.ndarray
    ) -> np.ndarray:
        """Similarities of the rows of ``a``, or of one vector, to those of ``b``."""
        if self.similarity == "euclidean":
            return -unit_rows(a - b)[1]
        return np.einsum("...j,...j->...", a, b) - (density_a + density_b) / 2

    def false_positive_rate(self, similarity: ArrayLike) -> np.ndarray:
        """Share of random pairs that are at least as similar.

        It is the rate at which pairs of unrelated texts would pass if this similarity were
        the threshold: an estimate from fitted texts, so fit on texts of the domain.

        Parameters
        ----------
        similarity : array-like of shape (n,)
            As `predict` returns it.

        Returns
        -------
        rate : ndarray of shape (n,)
            In [0, 1]. With n sampled texts rates below 10 / n tell little: pairs that happen
            to be related are among the random ones.
        """
        similarity = np.asarray(unmasked(similarity), dtype=np.float64)
        if np.isnan(similarity).any():
            raise ValueError("false_positive_rate got a similarity that is no number; drop it.")
        random = self._random_pairs()
        below = np.searchsorted(random, similarity, side="left")
        return (len(random) - below) / len(random)

    def threshold(self, false_positive_rate: float = 0.01) -> float:
        """Similarity that a given share of random pairs reaches.

        Parameters
        ----------
        false_positive_rate : float, default=0.01
            Largest share of pairs of unrelated texts that may be as similar, in (0, 1).

        Returns
        -------
        similarity : float
            The smallest that keeps the rate; take pairs for related where `predict` is at
            least this.

        Raises
        ------
        ValueError
            If the rate is out of its range, or there are no similarities of random pairs.
        """
        random = self._random_pairs()
        given: Any = false_positive_rate  # perhaps no number
        rate = float(given) if isinstance(given, Real) else np.nan
        if not 0 < rate < 1:
            raise ValueError(
                f"threshold got false_positive_rate={given!r}; it takes a number "
                "between 0 and 1, such as 0.01."
            )
        passed = int(rate * len(random))  # pairs that may pass
        if not passed:
            warn(
                f"threshold got false_positive_rate={rate:g}, and there are {len(random):,} "
                "random pairs: they tell no such rate, and the largest similarity among them "
                "is returned. Fit on more texts; SimilarityScale counts more pairs."
            )
        # Just above the most similar pair that must not pass.
        return float(np.nextafter(random[len(random) - passed - 1], np.inf))

    def _random_pairs(self) -> np.ndarray:
        """`random_similarities_`, refused where there are none."""
        random = self.random_similarities_
        if not len(random):
            raise ValueError(
                f"This {type(self).__name__} knows no similarities of unrelated texts: of "
                f"{len(self._sample)} fitted ones that it sampled, no two have vectors with a "
                "finite similarity. Fit on several texts of the domain."
            )
        return random

    def score(self, X: Any, y: ArrayLike) -> float:
        """Spearman's rank correlation between similarity and human judgement.

        Parameters
        ----------
        X : pairs of shape (n_pairs, 2)
            Pairs of texts.
        y : array-like of shape (n_pairs,)
            Judged similarity of each pair.

        Returns
        -------
        rho : float
            In [-1, 1]. The literature reports it times 100.
        """
        check_consistent_length(X, y)
        return spearman(y, self.predict(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False  # the tag means two columns of numbers
        tags.target_tags.required = False
        return tags


def vectors_of(encoder: Any, texts: list[str]) -> np.ndarray:
    """Return vectors of texts as an array, from a frame too; refuse a sparse matrix."""
    vectors = encoder.transform(texts)
    name = "vectors of the encoder"
    dtypes = [np.float64, np.float32]
    return check_array(vectors, dtype=dtypes, ensure_all_finite=False, input_name=name)
