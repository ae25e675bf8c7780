"""Pairs of texts scored by the similarity of their vectors."""

from __future__ import annotations

from os import PathLike
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline
from sklearn.utils import gen_batches, resample
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted

from skcalib._base import VersionedState
from skcalib._encoder.text_encoder import as_encoder
from skcalib._scale.estimator import SimilarityScale
from skcalib._sklearn_compat import HasMethods, StrOptions, _fit_context
from skcalib._texts import as_pairs, distinct, is_pairs, texts_of
from skcalib._vectors import unit_rows
from skcalib.metrics import spearman

__all__ = ["BiEncoder", "groups_of", "vectors_of"]

# Texts whose two million pairs show how similar unrelated texts are.
SAMPLED_TEXTS = 2000
PAIRS_AT_A_TIME = 2048  # pairs whose vectors are copied side by side


class BiEncoder(VersionedState, BaseEstimator):
    """Score pairs of texts by the similarity of their vectors.

    The same encoder maps each text of a pair separately (a bi-encoder [1]_), and the
    similarity of the two vectors is the prediction. Wrapping a pipeline of an encoder
    and a calibrator lets scikit-learn's model selection choose pooling, layers and
    calibration by human judgements of similarity; fitting uses no judgement.

    Parameters
    ----------
    encoder : estimator, or any encoder of texts
        Transformer from texts to vectors, such as a pipeline of `BertEncoder` and
        `Whitening`; or a model's folder, an object with a method ``encode``, or a function from
        a list of texts to an array, see `TextEncoder`. Transformers are cloned, never changed;
        ``FrozenEstimator(pipeline)`` keeps the fit of a fitted one, such as `calibrate`
        returns. All clones share other objects and functions, and call them once for each
        text.
    similarity : {"cosine", "corrected", "dot", "euclidean"}, default="cosine"
        Similarity of two vectors; "euclidean" is the negated distance. "corrected" is the
        cosine minus the mean `SimilarityScale.neighbor_similarity` of both texts, so that one
        threshold fits all pairs. It is computed in float64: BERT's vectors are nearly
        parallel, and float32 has too few digits to rank their similarities. A zero vector has
        cosine 0 with every other vector.

    Attributes
    ----------
    encoder_ : estimator
        The fitted clone.
    scale_ : SimilarityScale
        Thresholds and p-values of cosines and corrected similarities, from the pairs of up to
        2,000 fitted texts drawn at random. It is computed at first use from vectors that `fit`
        kept.

    Notes
    -----
    The estimator and its pickles contain vectors of these texts, but no text.

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

    The similarity that one pair of unrelated texts in a hundred reaches:

    >>> threshold = model.threshold(0.01)
    >>> bool(model.p_value([threshold])[0] <= 0.01)
    True
    """

    _parameter_constraints: dict = {
        "encoder": [HasMethods(["fit", "transform"]), HasMethods("encode"), callable]
        + [str, PathLike],
        "similarity": [StrOptions({"cosine", "corrected", "dot", "euclidean"})],
    }

    # In a search, groups go to the splitter only, unless set_fit_request asks for more.
    __metadata_request__fit = {"groups": False}
    encoder_: BaseEstimator
    _state_version = 5

    def __init__(
        self,
        encoder: BaseEstimator,
        *,
        similarity: Literal["cosine", "corrected", "dot", "euclidean"] = "cosine",
    ) -> None:
        self.encoder = encoder
        self.similarity = similarity

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: None = None, groups: Any = None) -> Self:
        """Fit the encoder on the distinct texts of ``X``.

        Parameters
        ----------
        X : pairs of shape (n_pairs, 2), or texts of shape (n_texts,)
            Lists, arrays or frames. No judgement of similarity is needed, so any texts of
            the domain will do.
        y : None
            Ignored.
        groups : array-like of shape (n_texts,), (n_pairs,) or (n_pairs, 2), default=None
            Group, such as the language: one per text, one for both texts of a pair, or one
            for each of them. A step of the encoder must accept groups, as `GroupErasure` does.

        Returns
        -------
        self : BiEncoder
            The fitted estimator.
        """
        texts = texts_of(X, caller=type(self).__name__)
        labels = None if groups is None else groups_of(X, groups, caller=type(self).__name__)
        if hasattr(self, "encoder_"):
            del self.encoder_  # an error below leaves nothing half-fitted
        encoder = clone(self._transformer())
        self._scale: SimilarityScale | None = None
        self._kept, self._left = _fit(encoder, texts, labels)
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
                "is not finite: its vectors are not finite, or their products overflow "
                "float64. Check what the encoder returns for these texts."
            )
        return similarity

    @property
    def scale_(self) -> SimilarityScale:
        """The scale of similarity, fitted when first asked for."""
        check_is_fitted(self)
        if self.similarity not in ("cosine", "corrected"):
            raise ValueError(
                f"BiEncoder has similarity={self.similarity!r}; thresholds and p-values are "
                "for cosines. Set similarity='cosine' or 'corrected'."
            )
        if self._scale is None:
            vectors = self._kept if self._left is None else vectors_of(self._left, self._kept)
            self._scale = SimilarityScale().fit(vectors)
        return self._scale

    def threshold(self, false_positive_rate: float = 0.01) -> float:
        """Similarity that a given share of pairs of unrelated texts reaches.

        The rate holds for texts of the domain that was fitted.

        Parameters
        ----------
        false_positive_rate : float, default=0.01
            Largest share of such pairs that may pass, below 1. A rate too small to be estimated
            from the counted pairs, below 5e-6 with 2,000 texts or more, raises a ValueError, as
            do `similarity` "dot" and "euclidean".

        Returns
        -------
        similarity : float
            The smallest that keeps the rate. Pairs at least as similar count as related.
        """
        return self.scale_.threshold(
            false_positive_rate, corrected=self.similarity == "corrected"
        )

    def p_value(self, similarity: ArrayLike) -> np.ndarray:
        """Chance that a pair of unrelated texts is at least as similar.

        Parameters
        ----------
        similarity : array-like of shape (n,)
            As `predict` returns it.

        Returns
        -------
        p : ndarray of shape (n,)
            As in `SimilarityScale`: at most the rate for similarities from its threshold up.
        """
        return self.scale_.p_value(similarity, corrected=self.similarity == "corrected")

    def __sklearn_clone__(self) -> Self:
        known = self.__dict__.setdefault("_known", {})
        if hasattr(self.encoder, "get_params"):
            twin = super().__sklearn_clone__()
        else:  # a deep copy of a model would need as much memory again, or fail
            twin = type(self)(**self.get_params(deep=False))
        twin._known = known
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_known"}

    def _transformer(self) -> Any:
        """Return the encoder; a model is wrapped once, so that clones share its vectors."""
        if hasattr(self.encoder, "get_params"):
            return self.encoder
        known = self.__dict__.setdefault("_known", {})
        encoder = as_encoder(self.encoder, type(self).__name__)
        return known.setdefault(id(self.encoder), encoder)  # keeps the model, so its id

    @np.errstate(over="ignore", invalid="ignore")
    def _similarities(self, vectors: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Similarities of the rows ``i`` to the rows ``j``, pair by pair, in float64."""
        corrected = self.similarity == "corrected"
        r = self.scale_.neighbor_similarity(vectors) if corrected else np.zeros(len(vectors))
        cosine = corrected or self.similarity == "cosine"
        rows = unit_rows(vectors)[0] if cosine else vectors.astype(np.float64)
        similarity = np.empty(len(i))
        for pairs in gen_batches(len(i), PAIRS_AT_A_TIME):
            a, b = rows[i[pairs]], rows[j[pairs]]
            if self.similarity == "euclidean":
                similarity[pairs] = -unit_rows(a - b)[1]
            else:
                similarity[pairs] = np.einsum("ij,ij->i", a, b)
        return similarity - (r[i] + r[j]) / 2

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


def groups_of(X: Any, groups: Any, *, caller: str) -> list[Any]:
    """Return the group of each text, where the first texts of all pairs come first."""
    # Masked entries become None, which the step that accepts groups refuses as missing.
    labels = np.ma.MaskedArray(groups, dtype=object)
    n, shapes = len(X), [(len(X), 1), (len(X),)]
    if is_pairs(X):
        shapes = [(n, 2), *shapes]
    if labels.shape not in shapes:
        raise ValueError(
            f"{caller} got groups of shape {labels.shape} for {n} "
            f"{'pairs' if is_pairs(X) else 'texts'}; it expects {shapes[-1]}"
            f"{f', one for both texts of a pair, or {shapes[0]}' if is_pairs(X) else ''}."
        )
    columns = 2 if is_pairs(X) and labels.size == n else 1
    found: list[Any] = labels.T.ravel().tolist() * columns
    return found


def _fit(encoder: Any, texts: list[str], labels: list[Any] | None) -> tuple[Any, Any]:
    """Fit an encoder; return vectors of some texts, and the step that must still map them.

    The vectors are the input of a pipeline's last step, which is computed anyway. A search fits
    that step many times and never uses its output.
    """
    if labels is not None:
        pairs = dict.fromkeys(zip(texts, labels, strict=True))  # a text counts in each group
        texts, labels = map(list, zip(*pairs, strict=True))
        with config_context(enable_metadata_routing=True):
            if not get_routing_for_object(encoder).consumes("fit", ["groups"]):
                raise ValueError(
                    "BiEncoder got groups, but no step of its encoder accepts them. Put a "
                    "GroupErasure into a pipeline, before the whitening."
                )
            encoder.fit(texts, None, groups=labels)
        return vectors_of(encoder, _some(distinct(texts)[0])), None
    texts = distinct(texts)[0]
    if type(encoder) is not Pipeline or len(encoder) == 1:
        encoder.fit(texts, None)  # FrozenEstimator wants a y
        return vectors_of(encoder, _some(texts)), None
    steps = [*encoder.steps[:-1], ("vectors", "passthrough")]
    before = Pipeline(steps, memory=encoder.memory, verbose=encoder.verbose)
    vectors = before.fit_transform(texts)
    last = encoder[-1:].fit(vectors)
    encoder.steps = [*before.steps[:-1], *last.steps]
    return _some(vectors), last


def _some(rows: Any) -> Any:
    """Return `SAMPLED_TEXTS` random rows, or all rows without a copy if there are fewer."""
    if np.shape(rows)[0] <= SAMPLED_TEXTS:
        return rows
    return resample(rows, replace=False, n_samples=SAMPLED_TEXTS, random_state=0)


def vectors_of(encoder: Any, texts: list[str]) -> np.ndarray:
    """Return vectors of texts as an array, also from a frame; refuse a sparse matrix."""
    vectors = encoder.transform(texts)
    name = "vectors of the encoder"
    dtypes = [np.float64, np.float32]
    vectors = check_array(vectors, dtype=dtypes, ensure_all_finite=False, input_name=name)
    if len(vectors) != len(texts):
        raise ValueError(
            f"The encoder {encoder!r:.80} returned {len(vectors)} rows for {len(texts)} texts; "
            "it must return one row for each text."
        )
    return vectors
