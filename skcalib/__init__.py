"""Calibrated BERT sentence vectors with scikit-learn estimators.

The job is a pipeline, and the modules follow it::

    texts ── BertEncoder ──> vectors ── Whitening | NormalizingFlow ──> calibrated vectors
    pairs ── BiEncoder(that pipeline) ──> cosine similarity ── Spearman's rho
    names ── ZeroShotClassifier(BertEncoder, names) ──> classes
    questions ── NearestAnswer(BertEncoder) ──> one of the stored answers, or none

`calibrate` chooses such a pipeline from texts, without labels. `TextEncoder` replaces
`BertEncoder` for a model of another library, and `VectorStore` keeps vectors on disk. Before a
whitening, `GroupErasure` removes differences between groups such as languages. After it,
`NeighborSmoothing` moves each vector toward its nearest neighbors, and `SimilarityScale` gives
thresholds for cosines. `Duplicates` groups texts that come twice, and a `DetailGuard` keeps
those apart that differ in a number or a code. `clear_caches` drops what a process keeps. The
other packages:

- `model_selection`: scorers and searches without labels;
- `metrics`: agreement with human judgement, and measures of isotropy;
- `evaluation`: tables of scores on benchmarks and on texts with labels;
- `inspection`: displays of what calibration does to vectors;
- `export`: fitted pipelines as models of other libraries;
- `datasets`: sentence pairs with judgements, and a small real BERT.

Importing this package loads nothing else, so the command hears Ctrl-C from its start.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skcalib._estimators import *

__version__ = "0.1.0"

PACKAGES = ["datasets", "evaluation", "export", "inspection", "metrics", "model_selection"]

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
    "__version__",
    "calibrate",
    "clear_caches",
    *PACKAGES,
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Import a package, or what stands here, when it is first looked up."""
    if name in PACKAGES:
        return import_module(f"skcalib.{name}")
    if name in __all__:
        found = globals()[name] = getattr(import_module("skcalib._estimators"), name)
        return found
    raise AttributeError(f"module 'skcalib' has no attribute {name!r}")
