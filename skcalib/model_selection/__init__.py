"""Model selection without labels."""

from skcalib.model_selection.search import CalibrationSearch
from skcalib.model_selection.self_retrieval import SelfRetrieval

__all__ = ["CalibrationSearch", "SelfRetrieval"]
