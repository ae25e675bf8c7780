"""Calibrations of vectors, and what a step of one's own tells the rest of skcalib."""

from skcalib.base import CalibratorTags
from skcalib.calibration.map import AffineMap

__all__ = ["AffineMap", "CalibratorTags"]
