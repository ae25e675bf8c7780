"""Fitted pipelines as models of other libraries, which need no skcalib to run.

A pipeline is a `BertEncoder` and what follows it: `Whitening`, `NormalizingFlow` and
scikit-learn's ``Normalizer``; or a `BiEncoder` of one. What a format cannot hold is refused,
with the reason.
"""

from skcalib.export._onnx import save_onnx
from skcalib.export._sentence_transformer import save_sentence_transformer
from skcalib.export._skl2onnx import register_skl2onnx
from skcalib.export._static import save_static

__all__ = ["register_skl2onnx", "save_onnx", "save_sentence_transformer", "save_static"]
