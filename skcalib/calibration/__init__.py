"""Calibrations of vectors, and what a step of one's own tells the rest of skcalib."""

from skcalib.calibration.covariance.linear_map import AffineMap
from skcalib.utils.base import CalibratorTags

__all__ = ["AffineMap", "CalibratorTags"]
