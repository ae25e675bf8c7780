"""The whitening."""
