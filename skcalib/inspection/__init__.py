"""See what calibration does to vectors, and whether new vectors are like those of a fit.

The displays follow scikit-learn's: ``from_estimator`` or ``from_vectors`` makes one and
``plot`` draws it. To draw one display over another, pass the ``ax_`` of the first. matplotlib
(extra ``plot``) is imported when a display is drawn.
"""

from skcalib.inspection._displays import CosineDisplay, FrequencyDisplay, SpectrumDisplay
from skcalib.inspection._monitor import EvidenceDisplay, ShiftMonitor
from skcalib.inspection._provenance import Provenance, provenance
from skcalib.inspection._shift import Shift, mahalanobis, mahalanobis_threshold, shift
from skcalib.inspection._token_similarity import TokenSimilarityDisplay
from skcalib.inspection._word_frequency import (
    FrequencyBias,
    word_embeddings,
    word_frequency_bias,
)

__all__ = [
    "CosineDisplay",
    "EvidenceDisplay",
    "FrequencyBias",
    "FrequencyDisplay",
    "Provenance",
    "Shift",
    "ShiftMonitor",
    "SpectrumDisplay",
    "TokenSimilarityDisplay",
    "mahalanobis",
    "mahalanobis_threshold",
    "provenance",
    "shift",
    "word_embeddings",
    "word_frequency_bias",
]
