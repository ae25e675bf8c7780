"""Pairs of texts scored by the similarity of their vectors."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator, _fit_context, clone
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from skcalib._persistence import VersionedState
from skcalib._progress import CallbackSupportMixin, fit_inside, fit_task
from skcalib._texts import as_pairs, distinct, texts_of
from skcalib.metrics import spearman

__all__ = ["BiEncoder"]

# The square of a norm above this, and below its inverse, neither under- nor overflows.
TINY = 1e-140


class BiEncoder(CallbackSupportMixin, VersionedState, BaseEstimator):
    """Score pairs of texts by the similarity of their vectors.

    Both texts of a pair go through the same encoder on their own (a bi-encoder [1]_), and
    the similarity of the two vectors is the prediction. Wrapping a pipeline of an encoder
    and a calibrator lets scikit-learn's model selection choose pooling, layers and
    calibration by human judgements of similarity; fitting uses no judgement.

    Parameters
    ----------
    encoder : estimator
        Transformer from texts to vectors, such as a pipeline of `BertEncoder` and
        `Whitening`. It is cloned, never changed; ``FrozenEstimator(pipeline)`` keeps the fit
        of one that is fitted, such as `skcalib.model_selection.calibrate` returns.
    similarity : {"cosine", "dot", "euclidean"}, default="cosine"
        Similarity of two vectors; "euclidean" is the negated distance. Computed in
        float64: between vectors that are nearly parallel, as BERT's are, float32 leaves
        too few digits to rank them. A zero vector has cosine 0 with every other.

    Attributes
    ----------
    encoder_ : estimator
        The fitted clone.

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
    """

    _parameter_constraints: dict = {
        "encoder": [HasMethods(["fit", "transform"])],
        "similarity": [StrOptions({"cosine", "dot", "euclidean"})],
    }

    encoder_: BaseEstimator

    def __init__(self, encoder, *, similarity="cosine"):
        self.encoder = encoder
        self.similarity = similarity

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y=None):
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
        texts = texts_of(X, caller=type(self).__name__)
        if hasattr(self, "encoder_"):
            del self.encoder_  # an error below leaves nothing half-fitted
        encoder = clone(self.encoder)
        with fit_task(self, X, max_subtasks=1) as task:
            with fit_inside(task, "fit-encoder", self, encoder):
                encoder.fit(distinct(texts)[0], None)  # FrozenEstimator wants a y
            self.encoder_ = encoder
        return self

    def predict(self, X):
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
        vectors = np.array(self.encoder_.transform(texts), dtype=np.float64)  # a copy
        i, j = inverse[: len(left)], inverse[len(left) :]
        with np.errstate(over="ignore", invalid="ignore"):
            if self.similarity == "cosine":
                similarity = _cosines(vectors, i, j)
            elif self.similarity == "dot":
                similarity = np.einsum("ij,ij->i", vectors[i], vectors[j])
            else:
                # In units of a power of two, so that no square under- or overflows.
                away = vectors[i] - vectors[j]
                _, exponent = np.frexp(np.abs(away).max(axis=1))
                norms = np.linalg.norm(np.ldexp(away, -exponent[:, None]), axis=1)
                similarity = -np.ldexp(norms, exponent)
        if not np.isfinite(similarity).all():
            raise ValueError(
                f"The {self.similarity} of pair {np.flatnonzero(~np.isfinite(similarity))[0]} "
                "is not finite: its vectors are not, or overflow float64. Look at what the "
                "encoder returns for it."
            )
        return similarity

    def score(self, X, y):
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

    def __sklearn_is_fitted__(self):
        return hasattr(self, "encoder_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False  # of numbers; pairs are another thing
        tags.target_tags.required = False
        return tags


def _cosines(vectors, i, j):
    """Cosines of some rows of `vectors` with others; the rows may be rescaled in place."""
    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    if not np.all((norms > TINY) & (norms < 1 / TINY)):
        # In units of the largest entry, so that no norm over- or underflows.
        largest = np.abs(vectors).max(axis=1)
        vectors /= np.where(largest > 0, largest, 1.0)[:, None]
        norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        norms[norms == 0] = 1.0  # of a zero vector, whose products are all 0
    return np.einsum("ij,ij->i", vectors[i], vectors[j]) / (norms[i] * norms[j])
