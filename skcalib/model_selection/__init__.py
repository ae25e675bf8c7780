"""Model selection without labels."""

from skcalib.model_selection._calibration_search import CalibrationSearch
from skcalib.model_selection._self_retrieval import SelfRetrieval

__all__ = ["CalibrationSearch", "SelfRetrieval"]
