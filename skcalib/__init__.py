"""Calibrated BERT sentence vectors with scikit-learn estimators.

The job is a pipeline, and the modules follow it::

    texts ── BertEncoder ──> vectors ── Whitening | NormalizingFlow ──> calibrated vectors
    pairs ── BiEncoder(that pipeline) ──> cosine similarity ── Spearman's rho
    names ── ZeroShotClassifier(BertEncoder, names) ──> classes
    questions ── NearestAnswer(BertEncoder) ──> one of the stored answers, or none

`CalibrationSearch` chooses such a pipeline without labels. `TextEncoder` is for models of other
libraries, and `VectorStore` keeps vectors on disk. `NeighborSmoothing` moves each vector toward
its nearest neighbors, `SimilarityScale` gives thresholds for cosines, `SearchEncoder` is for
searches. `clear_caches` drops what the process keeps in memory. The other packages:

- `model_selection`: scorers and searches without labels;
- `metrics`: agreement with human judgment;
- `evaluation`: tables of scores on benchmarks and on texts with labels;
- `inspection`: displays of what calibration does to vectors;
- `export`: fitted pipelines as models of other libraries;
- `monitoring`: tests whether texts or the model have changed;
- `datasets`: sentence pairs with judgments, and a small real BERT.

torch and transformers are imported when they are first needed.
"""

from skcalib import (
    datasets,
    evaluation,
    export,
    inspection,
    metrics,
    model_selection,
    monitoring,
)
from skcalib.calibration.flow import NormalizingFlow
from skcalib.calibration.neighbors import NeighborSmoothing
from skcalib.calibration.whitening import Whitening
from skcalib.encoders.bert_encoder import BertEncoder
from skcalib.encoders.store import VectorStore
from skcalib.encoders.text_encoder import TextEncoder
from skcalib.model_selection import CalibrationSearch
from skcalib.process.caches import clear_caches
from skcalib.similarity.answers import NearestAnswer
from skcalib.similarity.bi_encoder import BiEncoder
from skcalib.similarity.classifier import ZeroShotClassifier
from skcalib.similarity.scale import SimilarityScale
from skcalib.similarity.search import SearchEncoder

__version__ = "0.1.0"

__all__ = [
    "BertEncoder",
    "BiEncoder",
    "CalibrationSearch",
    "NearestAnswer",
    "NeighborSmoothing",
    "NormalizingFlow",
    "SearchEncoder",
    "SimilarityScale",
    "TextEncoder",
    "VectorStore",
    "Whitening",
    "ZeroShotClassifier",
    "__version__",
    "clear_caches",
    "datasets",
    "evaluation",
    "export",
    "inspection",
    "metrics",
    "model_selection",
    "monitoring",
]
