"""Calibrated BERT sentence vectors with scikit-learn estimators.

The job is a pipeline, and the modules follow it::

    texts ── BertEncoder ──> vectors ── Whitening | NormalizingFlow ──> calibrated vectors
    pairs ── BiEncoder(that pipeline) ──> cosine similarity ── Spearman's rho

Importing this package loads neither torch nor transformers; they come in with the first
estimator that needs them.
"""

from skcalib._bert_encoder import BertEncoder
from skcalib._bi_encoder import BiEncoder
from skcalib._normalizing_flow import NormalizingFlow
from skcalib._store import VectorStore
from skcalib._whitening import Whitening

__version__ = "0.1.0.dev0"

__all__ = [
    "BertEncoder",
    "BiEncoder",
    "NormalizingFlow",
    "VectorStore",
    "Whitening",
    "__version__",
]
