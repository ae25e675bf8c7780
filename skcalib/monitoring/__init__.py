"""Whether new vectors are of the texts, and of the model, that a whitening was fitted on."""

from skcalib.monitoring._provenance import Provenance, provenance
from skcalib.monitoring._shift import Shift, shift

__all__ = [
    "Provenance",
    "Shift",
    "provenance",
    "shift",
]
