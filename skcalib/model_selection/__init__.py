"""Model selection without labels.

`SelfRetrieval` is the scorer, for scikit-learn's searches without ``y``; `calibrate` searches
hidden states and calibrations of a model with it.
"""

from skcalib.model_selection._calibrate import Calibration, Candidate, calibrate
from skcalib.model_selection._self_retrieval import SelfRetrieval

__all__ = ["Calibration", "Candidate", "SelfRetrieval", "calibrate"]
