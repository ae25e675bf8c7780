"""See what calibration does to vectors: displays, and tables of the bias of word frequency.

The displays follow scikit-learn's: made by ``from_estimator`` or ``from_embeddings``, drawn
by ``plot``, and drawn over one another by handing on ``ax_``. matplotlib (extra ``plot``) is
imported when one is drawn.
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
