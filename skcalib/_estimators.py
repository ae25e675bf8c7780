"""What the package has at its top, imported together when the first of it is looked up."""

from skcalib.calibration.flow.estimator import NormalizingFlow as NormalizingFlow
from skcalib.calibration.groups.estimator import GroupErasure as GroupErasure
from skcalib.calibration.neighbors.estimator import NeighborSmoothing as NeighborSmoothing
from skcalib.calibration.whitening.estimator import Whitening as Whitening
from skcalib.encoders.bert_encoder import BertEncoder as BertEncoder
from skcalib.encoders.store.store import VectorStore as VectorStore
from skcalib.encoders.text_encoder import TextEncoder as TextEncoder
from skcalib.model_selection import calibrate as calibrate
from skcalib.similarity.answers.estimator import NearestAnswer as NearestAnswer
from skcalib.similarity.bi_encoder import BiEncoder as BiEncoder
from skcalib.similarity.classifier.estimator import ZeroShotClassifier as ZeroShotClassifier
from skcalib.similarity.duplicates.estimator import Duplicates as Duplicates
from skcalib.similarity.duplicates.guard import DetailGuard as DetailGuard
from skcalib.similarity.scale.estimator import SimilarityScale as SimilarityScale
from skcalib.utils.caches import clear_caches as clear_caches
