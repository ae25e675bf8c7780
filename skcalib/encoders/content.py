"""Texts without content for an encoder: in every estimator they are similar to no text."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.pipeline import FeatureUnion

from skcalib.encoders.any_encoder import steps_of
from skcalib.encoders.bert_encoder import BertEncoder
from skcalib.encoders.model.tokens import tokenize
from skcalib.encoders.text_encoder import TextEncoder
from skcalib.utils.caches import KNOWN_TEXTS

# The space in vocabularies of SentencePiece and of byte-level tokenizers. Before an unknown
# word it is a separate token.
SPACES = "\N{LOWER ONE EIGHTH BLOCK}", "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}"
ROUNDING = 1e-5  # between two images of the same vector, as a share of its length
LENGTH = 512  # tokens to read of a text if the limit of the model is unknown

MOST_READ = 2**18  # texts to remember for each tokenizer


def without_content(encoder: Any, texts: Sequence[str], vectors: np.ndarray) -> Any:
    """Which texts are blank, contain only unknown tokens, or have a zero vector at any step.

    ``encoder`` is fitted, and ``vectors`` are those that it returned for the texts.
    """
    first, *others = steps_of(encoder)
    blank = np.fromiter((not text.strip() for text in texts), bool, len(texts))
    found = [blank, _zero(others, vectors), _unknown(first, texts)]
    return np.any(found, axis=0)


def _zero(steps: list[Any], vectors: np.ndarray) -> Any:
    """Which vectors are images of a zero vector, after the encoder or any later step."""
    zero = ~vectors.any(axis=1)
    with config_context(transform_output="default"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names of features
        for i, step in enumerate(steps):
            image: Any = np.zeros((1, getattr(step, "n_features_in_", 0)))
            for later in steps[i:] if image.size else ():
                image = later.transform(image)
            if image.size:
                image = np.asarray(image, np.float64)
                apart = np.linalg.norm(vectors - image, axis=1)
                zero |= apart <= ROUNDING * np.linalg.norm(image)
    return zero


def _unknown(encoder: Any, texts: Sequence[str]) -> np.ndarray:
    """Which texts have no known token, if the encoder has a vocabulary."""
    if isinstance(encoder, FeatureUnion):
        parts = [steps_of(part)[0] for _, part in encoder.transformer_list]
        return np.all([_unknown(part, texts) for part in parts], axis=0)
    tokenizer: Any = None
    length = LENGTH
    if isinstance(encoder, BertEncoder):
        tokenizer, length = encoder._backbone().tokenizer, encoder.max_length_
    elif isinstance(encoder, TextEncoder):  # of a SentenceTransformer
        tokenizer = getattr(encoder.model, "tokenizer", None)
    if not hasattr(tokenizer, "all_special_ids"):
        return np.zeros(len(texts), bool)
    known = KNOWN_TEXTS.setdefault(tokenizer, {})
    codes = [*map(hash, texts)]
    new = {code: text for code, text in zip(codes, texts, strict=True) if code not in known}
    if len(known) + len(new) > MOST_READ:
        known.clear()
        new = dict(zip(codes, texts, strict=True))
    if new:
        spaces = tokenizer.convert_tokens_to_ids([*SPACES])
        nothing = {None, *tokenizer.all_special_ids, *spaces}
        windows, *_ = tokenize(tokenizer, [*new.values()], length)
        known.update(
            (c, not nothing.issuperset(ids)) for c, ids in zip(new, windows, strict=True)
        )
    return ~np.fromiter(map(known.__getitem__, codes), bool, len(codes))
