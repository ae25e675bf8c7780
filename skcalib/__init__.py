"""Calibrated BERT sentence vectors with scikit-learn estimators.

The job is a pipeline, and the modules follow it::

    texts ── BertEncoder ──> vectors ── Whitening | NormalizingFlow ──> calibrated vectors
    pairs ── BiEncoder(that pipeline) ──> cosine similarity ── Spearman's rho

`calibrate` chooses such a pipeline for a model by texts without labels. `TextEncoder` stands in
for `BertEncoder` where the model is another library's, and `VectorStore` keeps vectors on disk.
In front of a whitening, `GroupErasure` takes languages out; behind it, `NeighborSmoothing`
brings texts that ask the same together, and `SimilarityScale` says what a cosine means. The
packages beside them:

- `model_selection`: scorers and searches without labels;
- `metrics`: agreement with human judgement, and measures of isotropy;
- `evaluation`: tables of scores by benchmarks and by labels;
- `inspection`: displays of what calibration does to vectors;
- `export`: fitted pipelines as models of other libraries;
- `datasets`: sentence pairs with judgements, and a small real BERT.

Importing this package loads neither torch nor transformers; they come in with the first
estimator that needs them.
"""

from importlib import import_module
from typing import Any

from skcalib._bi_encoder import BiEncoder
from skcalib._encoder.estimator import BertEncoder
from skcalib._encoder.text_encoder import TextEncoder
from skcalib._flow.estimator import NormalizingFlow
from skcalib._groups.estimator import GroupErasure
from skcalib._neighbors.estimator import NeighborSmoothing
from skcalib._scale.estimator import SimilarityScale
from skcalib._store.store import VectorStore
from skcalib._whitening.estimator import Whitening
from skcalib.model_selection import calibrate

__version__ = "0.1.0"

PACKAGES = ["datasets", "evaluation", "export", "inspection", "metrics", "model_selection"]

__all__ = [
    "BertEncoder",
    "BiEncoder",
    "GroupErasure",
    "NeighborSmoothing",
    "NormalizingFlow",
    "SimilarityScale",
    "TextEncoder",
    "VectorStore",
    "Whitening",
    "__version__",
    "calibrate",
    *PACKAGES,
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Import a package when it is first looked up."""
    if name in PACKAGES:
        return import_module(f"skcalib.{name}")
    raise AttributeError(f"module 'skcalib' has no attribute {name!r}")
