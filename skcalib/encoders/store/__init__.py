"""Vectors on disk."""
