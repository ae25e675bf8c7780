"""Texts and pairs with human judgments of similarity, and a small real BERT."""

from skcalib.datasets._model import minilm_path
from skcalib.datasets._sts import fetch_sts, load_pairs, load_toy_sts
from skcalib.datasets._texts import load_docstrings, load_questions

__all__ = [
    "fetch_sts",
    "load_docstrings",
    "load_pairs",
    "load_questions",
    "load_toy_sts",
    "minilm_path",
]
