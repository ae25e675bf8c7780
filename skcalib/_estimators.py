"""What the package has at its top, imported together when the first of it is looked up."""

from __future__ import annotations

from skcalib._answers.estimator import NearestAnswer
from skcalib._bi_encoder import BiEncoder
from skcalib._classifier.estimator import ZeroShotClassifier
from skcalib._duplicates.estimator import Duplicates
from skcalib._duplicates.guard import DetailGuard
from skcalib._encoder.estimator import BertEncoder
from skcalib._encoder.text_encoder import TextEncoder
from skcalib._flow.estimator import NormalizingFlow
from skcalib._groups.estimator import GroupErasure
from skcalib._neighbors.estimator import NeighborSmoothing
from skcalib._scale.estimator import SimilarityScale
from skcalib._store.store import VectorStore
from skcalib._whitening.estimator import Whitening
from skcalib.model_selection import calibrate

__all__ = [
    "BertEncoder",
    "BiEncoder",
    "DetailGuard",
    "Duplicates",
    "GroupErasure",
    "NearestAnswer",
    "NeighborSmoothing",
    "NormalizingFlow",
    "SimilarityScale",
    "TextEncoder",
    "VectorStore",
    "Whitening",
    "ZeroShotClassifier",
    "calibrate",
]
