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
TRUSTED_TYPES = [
    "skcalib._answers.calibration.Calibration",
    "skcalib._answers.estimator.NearestAnswer",
    "skcalib._bi_encoder.BiEncoder",
    "skcalib._classifier.estimator.ZeroShotClassifier",
    "skcalib._covariance.moments.Moments",
    "skcalib._covariance.noise.Regularized",
    "skcalib._duplicates.estimator.Duplicates",
    "skcalib._duplicates.guard.DetailGuard",
    "skcalib._encoder.declared.Declared",
    "skcalib._encoder.estimator.BertEncoder",
    "skcalib._encoder.recipe.Recipe",
    "skcalib._encoder.text_encoder.TextEncoder",
    "skcalib._flow.estimator.NormalizingFlow",
    "skcalib._flow.fitted.FittedFlow",
    "skcalib._groups.estimator.GroupErasure",
    "skcalib._groups.means.GroupMeans",
    "skcalib._neighbors.estimator.NeighborSmoothing",
    "skcalib._scale.estimator.SimilarityScale",
    "skcalib._scale.pairs.PairCounts",
    "skcalib._store.store.VectorStore",
    "skcalib._whitening.estimator.Whitening",
    "skcalib._whitening.linear_map.WhiteningMap",
    "skcalib._whitening.solver.FittedWhitening",
    "skcalib.model_selection._bootstrap.Difference",
    "skcalib.model_selection._report.Calibration",
    "skcalib.model_selection._report.Candidate",
    "skcalib.model_selection._report.Cosines",
    "skcalib.model_selection._self_retrieval.SelfRetrieval",
]

__all__ = [
    "TRUSTED_TYPES",
    "Served",
    "check_served",
    "register_skl2onnx",
    "save_onnx",
    "save_sentence_transformer",
    "save_static",
]
