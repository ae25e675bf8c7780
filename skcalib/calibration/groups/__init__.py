"""Erasure of the differences between known groups."""
