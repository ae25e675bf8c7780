"""See what calibration does to vectors.

The displays follow scikit-learn's: ``from_estimator`` or ``from_vectors`` makes one and
``plot`` draws it. To draw one display over another, pass the ``ax_`` of the first. matplotlib
(extra ``plot``) is imported when a display is drawn.
"""

from skcalib.inspection._displays import CosineDisplay, FrequencyDisplay, SpectrumDisplay
from skcalib.inspection._token_similarity import TokenSimilarityDisplay
from skcalib.inspection._word_frequency import (
    FrequencyBias,
    word_embeddings,
    word_frequency_bias,
)

__all__ = [
    "CosineDisplay",
    "FrequencyBias",
    "FrequencyDisplay",
    "SpectrumDisplay",
    "TokenSimilarityDisplay",
    "word_embeddings",
    "word_frequency_bias",
]
