"""Texts, encoders and shortcuts of the tests of searches without labels."""

import zlib

import numpy as np
import pandas as pd

from skcalib import CalibrationSearch
from skcalib.model_selection import SelfRetrieval


def chance(texts):
    """Vectors without structure."""
    seeds = [zlib.crc32(text.encode()) for text in texts]
    return np.stack([np.random.default_rng(seed).normal(size=8) for seed in seeds])


def numbered(n):
    """Texts of one word each, over and over: every view of a text names it."""
    return [" ".join([str(i)] * 8) for i in range(n)]


def views_of(texts, **params):
    """Views of each text, of texts none of whose views are alike: what a model is asked for."""
    asked = {}

    def model(texts):
        asked.update(dict.fromkeys(texts))
        return np.ones((len(texts), 2))

    SelfRetrieval(**params)(model, texts)
    return [tuple(view) for view in np.array(list(asked)).reshape(-1, 5).tolist()]


def of_words(n, n_words=20):
    """Texts of words that no other text has."""
    return [" ".join(f"{i}.{j}" for j in range(n_words)) for i in range(n)]


def searched(encoder, texts, **params):
    return CalibrationSearch(encoder, **params).fit(texts)


def rows(search):
    """Rows of the results, as dictionaries."""
    return pd.DataFrame(search.cv_results_).to_dict("records")


def chosen(search):
    return rows(search)[search.best_index_]
