"""Calibrated BERT sentence vectors with scikit-learn estimators.

The job is a pipeline, and the modules follow it::

    texts ── BertEncoder ──> vectors ── Whitening | NormalizingFlow ──> calibrated vectors
    pairs ── BiEncoder(that pipeline) ──> cosine similarity ── Spearman's rho

Importing this package loads neither torch nor transformers; they come in with the first
estimator that needs them.
"""

from skcalib._base import refuse_former_classes
from skcalib._bi_encoder import BiEncoder
from skcalib._encoder.estimator import BertEncoder
from skcalib._flow.estimator import NormalizingFlow
from skcalib._groups.estimator import GroupErasure
from skcalib._neighbors.estimator import NeighborSmoothing
from skcalib._scale.estimator import SimilarityScale
from skcalib._store.store import VectorStore
from skcalib._whitening.estimator import Whitening

__version__ = "0.1.0"

__all__ = [
    "BertEncoder",
    "BiEncoder",
    "GroupErasure",
    "NeighborSmoothing",
    "NormalizingFlow",
    "SimilarityScale",
    "VectorStore",
    "Whitening",
    "__version__",
]

refuse_former_classes(
    {
        "BertEncoder": "skcalib._bert_encoder",
        "NormalizingFlow": "skcalib._normalizing_flow",
        "VectorStore": "skcalib._store",
        "Whitening": "skcalib._whitening",
    }
)
