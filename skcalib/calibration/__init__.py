"""Calibrations of vectors, and what the rest of skcalib needs to know of a step of your own."""

from skcalib.base import CalibratorTags
from skcalib.calibration.map import LinearMap

__all__ = ["CalibratorTags", "LinearMap"]
