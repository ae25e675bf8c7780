"""Export fitted pipelines as models of other libraries, which run without skcalib.

A pipeline is a `BertEncoder` followed by any of `GroupErasure`, `Whitening`,
`NormalizingFlow`, `NeighborSmoothing` and scikit-learn's ``Normalizer``; or a `BiEncoder` of
one. If a format cannot hold a pipeline, an error gives the reason.
"""

from skcalib.export._onnx import save_onnx
from skcalib.export._sentence_transformer import save_sentence_transformer
from skcalib.export._served import Served, check_served
from skcalib.export._static import save_static
from skcalib.export._vectors import to_faiss, to_sentence_transformers, to_torch

# Classes in files of skops with estimators of skcalib: for ``skops.io.load(trusted=)`` and
# ``mlflow.sklearn.log_model(skops_trusted_types=)``.
_TYPES = """
calibration.covariance.moments.Moments calibration.covariance.noise.Regularized
calibration.flow.estimator.NormalizingFlow calibration.flow.fitted.FittedFlow
calibration.groups.estimator.GroupErasure calibration.groups.means.GroupMeans
calibration.neighbors.estimator.NeighborSmoothing calibration.whitening.estimator.Whitening
calibration.whitening.solver.WhiteningMap
encoders.bert_encoder.BertEncoder encoders.model.declared.Declared encoders.recipe.Recipe
encoders.store.store.VectorStore encoders.text_encoder.TextEncoder
model_selection._calibration_search.CalibrationSearch
model_selection._self_retrieval.SelfRetrieval
similarity.answers.estimator.NearestAnswer similarity.bi_encoder.BiEncoder
similarity.classifier.estimator.ZeroShotClassifier similarity.duplicates.estimator.Duplicates
similarity.duplicates.guard.DetailGuard similarity.scale.estimator.SimilarityScale
similarity.scale.pairs.PairCounts similarity.space.TextSpace
"""
TRUSTED_TYPES = [f"skcalib.{name}" for name in _TYPES.split()]

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
