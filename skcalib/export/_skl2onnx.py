"""Register `Whitening` and `GroupErasure` with skl2onnx."""

from typing import Any

import numpy as np

from skcalib.calibration.groups.estimator import GroupErasure
from skcalib.calibration.whitening.estimator import Whitening
from skcalib.calibration.whitening.exports import centred_float32
from skcalib.utils.base import import_package

CALLER = "register_skl2onnx"


def register_skl2onnx() -> None:
    """Let skl2onnx convert pipelines of vectors with `Whitening` or `GroupErasure`.

    This is for pipelines of vectors, such as a whitening and then a classifier or a clustering.
    `save_onnx` exports pipelines that begin with texts, with other calibrators too. Call this
    once per process, before ``skl2onnx.to_onnx``.

    Notes
    -----
    The graph computes in the type of its input, float32 or float64. A whitening that would lose
    its digits in float32 is refused when it is converted; convert it with an input of float64.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from skcalib import Whitening
    >>> from skcalib.export import register_skl2onnx
    >>> X = np.random.default_rng(0).normal(size=(100, 8)).astype(np.float32)
    >>> model = make_pipeline(Whitening(4), LogisticRegression()).fit(X, X[:, 0] > 0)
    >>> register_skl2onnx()  # doctest: +SKIP
    >>> graph = skl2onnx.to_onnx(model, X[:1])  # doctest: +SKIP
    """
    package = import_package(CALLER, "skl2onnx", "skl2onnx")
    for kind in (GroupErasure, Whitening):
        package.update_registered_converter(kind, f"Skcalib{kind.__name__}", _shape, _convert)


def _shape(operator: Any) -> None:
    """Give the output the type of the input, and the width of the map."""
    [given] = operator.inputs
    width = operator.raw_operator._linear_map.projection.shape[1]
    operator.outputs[0].type = type(given.type)([given.get_first_dimension(), width])


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Add ``(x - m) W + b``."""
    from skl2onnx.algebra.onnx_ops import OnnxAdd, OnnxMatMul, OnnxSub
    from skl2onnx.common.data_types import guess_numpy_type

    linear = operator.raw_operator._linear_map
    if guess_numpy_type(operator.inputs[0].type) == np.float64:
        m, W, b = linear.mean, linear.projection, linear.bias
    else:
        m, W, b = centred_float32(linear, CALLER)
    version = {"op_version": container.target_opset}
    product = OnnxMatMul(OnnxSub(operator.inputs[0], m, **version), W, **version)
    OnnxAdd(product, b, **version, output_names=operator.outputs[:1]).add_to(scope, container)
