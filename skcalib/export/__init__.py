"""Export fitted pipelines as models of other libraries, which run without skcalib.

A pipeline is a `BertEncoder` followed by any of `Whitening`, `NormalizingFlow`,
`NeighborSmoothing`, scikit-learn's ``PCA``, ``TruncatedSVD``, ``StandardScaler`` and
``Normalizer``, and steps of your own with a method ``linear_map``; or a search or a `BiEncoder`
of one. If a format cannot hold a pipeline, an error gives the reason.
"""

from skcalib.base import TRUSTED_TYPES
from skcalib.export._onnx import save_onnx
from skcalib.export._sentence_transformer import save_sentence_transformer
from skcalib.export._torch import to_torch

__all__ = ["TRUSTED_TYPES", "save_onnx", "save_sentence_transformer", "to_torch"]
