"""Export fitted pipelines as models of other libraries, which run without skcalib.

A pipeline is a `BertEncoder` followed by any of `GroupErasure`, `Whitening`,
`NormalizingFlow`, `NeighborSmoothing`, scikit-learn's ``PCA``, ``TruncatedSVD``,
``StandardScaler`` and ``Normalizer``, and steps of your own with a method ``linear_map``; or a
search or a `BiEncoder` of one. If a format cannot hold a pipeline, an error gives the reason.
"""

import re
from pathlib import Path

from skcalib.export._onnx import save_onnx
from skcalib.export._sentence_transformer import save_sentence_transformer
from skcalib.export._static import save_static
from skcalib.export._vectors import to_faiss, to_sentence_transformers, to_torch

# Classes in files of skops with estimators of skcalib: for ``skops.io.load(trusted=)`` and
# ``mlflow.sklearn.log_model(skops_trusted_types=)``.
TRUSTED_TYPES: list[str]

__all__ = [
    "TRUSTED_TYPES",
    "save_onnx",
    "save_sentence_transformer",
    "save_static",
    "to_faiss",
    "to_sentence_transformers",
    "to_torch",
]


def __getattr__(name: str) -> list[str]:
    """Read `TRUSTED_TYPES` from the sources of the rooms of estimators, when first asked."""
    if name != "TRUSTED_TYPES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    package = Path(__file__).parents[1]
    # Arrays of numbers, in which the words of texts are counted.
    kinds = "_csr.csr_array", "_csr.csr_matrix", "_csc.csc_array", "_csc.csc_matrix"
    names = [f"scipy.sparse.{kind}" for kind in kinds]
    for room in ("calibration", "encoders", "model_selection", "similarity"):
        for path in sorted((package / room).rglob("*.py")):
            module = ".".join(path.relative_to(package.parent).with_suffix("").parts)
            classes = re.findall(r"^class ([A-Z]\w+)", path.read_text("utf-8"), re.MULTILINE)
            names += [f"{module}.{name}" for name in classes]
    return globals().setdefault(name, names)
