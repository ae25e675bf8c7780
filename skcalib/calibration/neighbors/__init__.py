"""Smoothing by nearest neighbors, and the exact search."""
