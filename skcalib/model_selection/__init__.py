"""Model selection without labels.

`SelfRetrieval` is the scorer, for scikit-learn's searches without ``y``; `calibrate` searches
hidden states and calibrations of a model with it.
"""

from skcalib.model_selection._bootstrap import Difference
from skcalib.model_selection._calibrate import calibrate
from skcalib.model_selection._calibration import Calibration, Candidate, Cosines
from skcalib.model_selection._self_retrieval import SelfRetrieval

__all__ = ["Calibration", "Candidate", "Cosines", "Difference", "SelfRetrieval", "calibrate"]
