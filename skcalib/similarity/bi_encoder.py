"""Pairs of texts scored by the similarity of their vectors."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from skcalib.base import VersionedState
from skcalib.callbacks import fit_task, part_task
from skcalib.cosines import of_pairs
from skcalib.encoders.pipelines import as_encoder
from skcalib.inputs.containers import refuse_rows
from skcalib.inputs.texts import TextInput, as_pairs, distinct, distinct_texts
from skcalib.inputs.vectors import unit_rows
from skcalib.metrics import spearman
from skcalib.similarity.space import vectors_of


class BiEncoder(TextInput, VersionedState, BaseEstimator):
    """Score pairs of texts by the cosine of their vectors.

    The same encoder maps each text of a pair separately (a bi-encoder [1]_). Cosines are in
    float64, since those of BERT's raw vectors hardly differ. A text without content for the
    encoder (blank, only unknown tokens, or a zero vector) has cosine 0 with every other text.
    Model selection can choose pooling, layers and calibration by human judgments; fitting uses
    none.

    Parameters
    ----------
    encoder : transformer of texts, or any encoder of texts
        Such as a pipeline of `BertEncoder` and `Whitening`, or a model's folder, see
        `TextEncoder`. It is cloned and fitted; a ``FrozenEstimator`` keeps its fit.

    Attributes
    ----------
    encoder_ : estimator
        The fitted clone.

    See Also
    --------
    SimilarityScale : Thresholds and p-values of these cosines.

    References
    ----------
    .. [1] Reimers & Gurevych (2019), "Sentence-BERT: Sentence Embeddings using Siamese
           BERT-Networks", EMNLP, arXiv:1908.10084.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from skcalib import BertEncoder, BiEncoder, Whitening
    >>> from skcalib.datasets import load_toy_sts
    >>> pairs, grades = load_toy_sts(return_X_y=True)
    >>> encoder = make_pipeline(BertEncoder("minilm", layers=0), Whitening(shrinkage="auto"))
    >>> model = BiEncoder(encoder).fit(pairs)
    >>> raw = BiEncoder(encoder[0]).fit(pairs)
    >>> model.score(pairs, grades) > raw.score(pairs, grades)
    True
    """

    _parameter_constraints = {"encoder": "no_validation"}  # `as_encoder` checks it

    _state_version = 12

    def __init__(self, encoder: Any) -> None:
        self.encoder = encoder

    @fit_task(prefer_skip_nested_validation=False, n_subtasks=1)
    def fit(self, X: Any, y: None = None) -> Self:
        """Fit the encoder on the distinct texts of ``X``.

        Parameters
        ----------
        X : pairs of shape (n_pairs, 2), or texts of shape (n_texts,)
            Lists, arrays or frames, of any texts of the domain.
        y : None, or array-like of shape (n_pairs,)
            Judgments, which are ignored.

        Returns
        -------
        self : BiEncoder
        """
        advice = "Pass pairs of texts as fit(list(zip(sentences1, sentences2)))."
        refuse_rows(self, y, advice)
        self.encoder_ = clone(as_encoder(self.encoder))
        with part_task("fit-encoder", self.encoder_):
            self.encoder_.fit(distinct_texts(X), None)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Cosine of the two texts of each pair.

        Parameters
        ----------
        X : pairs of shape (n_pairs, 2)
            Each distinct text is encoded once.

        Returns
        -------
        similarity : ndarray of shape (n_pairs,), float64
        """
        check_is_fitted(self)
        left, right = as_pairs(X)
        texts, inverse = distinct(left + right)
        rows = unit_rows(vectors_of(self.encoder_, texts, warns=True))[0]
        return of_pairs(rows, inverse[: len(left)], inverse[len(left) :])

    def score(self, X: Any, y: ArrayLike) -> float:
        """Spearman's rank correlation between similarity and human judgment.

        Parameters
        ----------
        X : pairs of shape (n_pairs, 2)
        y : array-like of shape (n_pairs,)
            Judged similarity of each pair.

        Returns
        -------
        rho : float
            In [-1, 1]. The literature reports it times 100.
        """
        return spearman(y, self.predict(X))
