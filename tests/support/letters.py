"""Encoders of texts that need no model."""

import numpy as np

KNOWN = np.random.default_rng(0).normal(size=(128, 24))


def letters(texts):
    """Vectors of Latin letters and digits, by chance; of other texts they are zero."""
    rows = [[ord(c) for c in text if c.isascii() and c.isalnum()] for text in texts]
    return np.array([KNOWN[row].sum(axis=0) for row in rows])


def counts(texts):
    """How often each of some letters occurs."""
    return np.array([[text.count(letter) + 0.1 for letter in "acdglmnot"] for text in texts])
