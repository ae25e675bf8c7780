"""See what calibration does to vectors.

The displays follow scikit-learn's: ``from_estimator`` or ``from_vectors`` makes one and
``plot`` draws it. To draw one display over another, pass the ``ax_`` of the first. matplotlib
(extra ``plot``) is imported when a display is drawn.
"""

from skcalib.inspection._displays import CosineDisplay, SpectrumDisplay
from skcalib.inspection._token_similarity import TokenSimilarityDisplay

__all__ = [
    "CosineDisplay",
    "SpectrumDisplay",
    "TokenSimilarityDisplay",
]
