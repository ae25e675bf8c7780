"""Moments, spectrum and noise, which the whitening and the flow share."""
