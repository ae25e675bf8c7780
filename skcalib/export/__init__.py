"""Export fitted pipelines as models of other libraries, which run without skcalib.

A pipeline is a `BertEncoder` followed by any of `GroupErasure`, `Whitening`,
`NormalizingFlow`, `NeighborSmoothing` and scikit-learn's ``Normalizer``; or a `BiEncoder` of
one. If a format cannot hold a pipeline, an error gives the reason.
"""

from skcalib.export._onnx import save_onnx
from skcalib.export._sentence_transformer import save_sentence_transformer
from skcalib.export._served import Served, check_served
from skcalib.export._skl2onnx import register_skl2onnx
from skcalib.export._static import save_static

# Classes in files of skops with estimators of skcalib: for ``skops.io.load(trusted=)`` and
# ``mlflow.sklearn.log_model(skops_trusted_types=)``.
_TYPES = """
_answers.calibration.Calibration _answers.estimator.NearestAnswer _bi_encoder.BiEncoder
_classifier.estimator.ZeroShotClassifier _covariance.moments.Moments
_covariance.noise.Regularized _duplicates.estimator.Duplicates _duplicates.guard.DetailGuard
_encoder.declared.Declared _encoder.estimator.BertEncoder _encoder.recipe.Recipe
_encoder.text_encoder.TextEncoder _flow.estimator.NormalizingFlow _flow.fitted.FittedFlow
_groups.estimator.GroupErasure _groups.means.GroupMeans _neighbors.estimator.NeighborSmoothing
_scale.estimator.SimilarityScale _scale.pairs.PairCounts _store.store.VectorStore
_whitening.estimator.Whitening _whitening.linear_map.WhiteningMap
_whitening.solver.FittedWhitening model_selection._bootstrap.Difference
model_selection._report.Calibration model_selection._report.Candidate
model_selection._report.Cosines model_selection._self_retrieval.SelfRetrieval
"""
TRUSTED_TYPES = [f"skcalib.{name}" for name in _TYPES.split()]

__all__ = [
    "TRUSTED_TYPES",
    "Served",
    "check_served",
    "register_skl2onnx",
    "save_onnx",
    "save_sentence_transformer",
    "save_static",
]
