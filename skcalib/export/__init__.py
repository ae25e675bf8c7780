"""Export fitted pipelines as models of other libraries, which run without skcalib.

A pipeline is a `BertEncoder` followed by any of `GroupErasure`, `Whitening`, `SpaceAligner`,
`NormalizingFlow`, `NeighborSmoothing`, scikit-learn's ``PCA``, ``TruncatedSVD``,
``StandardScaler`` and ``Normalizer``, and steps of your own with a method ``linear_map``; or a
search or a `BiEncoder` of one. If a format cannot hold a pipeline, an error gives the reason.
"""

from skcalib.export._onnx import save_onnx
from skcalib.export._sentence_transformer import save_sentence_transformer
from skcalib.export._served import Served, check_served
from skcalib.export._static import save_static
from skcalib.export._trusted import trusted_types
from skcalib.export._vectors import to_faiss, to_sentence_transformers, to_torch

# Classes in files of skops with estimators of skcalib: for ``skops.io.load(trusted=)`` and
# ``mlflow.sklearn.log_model(skops_trusted_types=)``.
TRUSTED_TYPES: list[str]

__all__ = [
    "TRUSTED_TYPES",
    "Served",
    "check_served",
    "save_onnx",
    "save_sentence_transformer",
    "save_static",
    "to_faiss",
    "to_sentence_transformers",
    "to_torch",
]


def __getattr__(name: str) -> list[str]:
    if name == "TRUSTED_TYPES":  # read from the sources when it is first asked for
        return trusted_types()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
