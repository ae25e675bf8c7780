"""See what calibration does to vectors: displays, and tables of the bias of word frequency.

The displays follow scikit-learn's: ``from_estimator`` or ``from_embeddings`` makes one and
``plot`` draws it. Pass on ``ax_`` of one to draw another over it. matplotlib (extra ``plot``)
is imported when one is drawn.
"""

from skcalib.inspection._displays import CosineDisplay, FrequencyDisplay, SpectrumDisplay
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
    "word_embeddings",
    "word_frequency_bias",
]
