"""See what calibration does to vectors.

``from_vectors`` or ``from_texts`` makes a display and draws it, and ``plot`` draws it again. To
draw one display over another, pass the ``ax_`` of the first. matplotlib (extra ``plot``) is
imported when a display is drawn.
"""

from skcalib.inspection._displays import CosineDisplay, SpectrumDisplay
from skcalib.inspection._token_similarity import TokenSimilarityDisplay

__all__ = ["CosineDisplay", "SpectrumDisplay", "TokenSimilarityDisplay"]
