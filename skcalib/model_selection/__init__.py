"""Model selection without labels."""

from skcalib.model_selection._calibrate import calibrate
from skcalib.model_selection._report import Calibration, Candidate
from skcalib.model_selection._self_retrieval import SelfRetrieval
from skcalib.utils.bootstrap import Difference

__all__ = ["Calibration", "Candidate", "Difference", "SelfRetrieval", "calibrate"]
