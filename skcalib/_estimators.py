"""What the package has at its top, imported together when the first of it is looked up."""

from skcalib._answers.estimator import NearestAnswer as NearestAnswer
from skcalib._bi_encoder import BiEncoder as BiEncoder
from skcalib._classifier.estimator import ZeroShotClassifier as ZeroShotClassifier
from skcalib._duplicates.estimator import Duplicates as Duplicates
from skcalib._duplicates.guard import DetailGuard as DetailGuard
from skcalib._encoder.estimator import BertEncoder as BertEncoder
from skcalib._encoder.text_encoder import TextEncoder as TextEncoder
from skcalib._flow.estimator import NormalizingFlow as NormalizingFlow
from skcalib._groups.estimator import GroupErasure as GroupErasure
from skcalib._neighbors.estimator import NeighborSmoothing as NeighborSmoothing
from skcalib._scale.estimator import SimilarityScale as SimilarityScale
from skcalib._store.store import VectorStore as VectorStore
from skcalib._whitening.estimator import Whitening as Whitening
from skcalib.model_selection import calibrate as calibrate
