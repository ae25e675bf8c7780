"""Intervals by the bootstrap, and thresholds at a promised rate."""
