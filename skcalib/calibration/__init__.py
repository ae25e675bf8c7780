"""Vectors to calibrated vectors. Nothing here knows of texts."""
