"""A fitted pipeline on the embedding layer as a table of calibrated word vectors."""

import copy
import os
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from skcalib.encoders.poolings import POOLINGS
from skcalib.export._folder import parts_of_folder, through_folder
from skcalib.export._formats import FORMATS
from skcalib.export._parts import Parts, apply, some_texts
from skcalib.export._sentence_transformer import NEGLIGIBLE
from skcalib.export._writing import write_checked
from skcalib.inputs.vectors import unit_rows


def save_static(pipeline: Any, folder: str | os.PathLike) -> None:
    """Save a fitted pipeline on the embedding layer as a table of calibrated word vectors.

    ``SentenceTransformer(folder)``, from version 5 on, loads it as a ``StaticEmbedding``: the
    vector of a text is the mean of its tokens' vectors, and no transformer runs. The vector of
    a token is its mean over the first 16 positions. The page on deployment shows what this
    costs and gains.

    Parameters
    ----------
    pipeline : Pipeline, BertEncoder or BiEncoder
        Fitted: a `BertEncoder` with ``layers=0`` and ``pooling="zipf"`` or ``"mean_own"``; then
        any number of `GroupErasure` and `Whitening`, and scikit-learn's
        ``Normalizer`` last. The similarity of a `BiEncoder` becomes that of the model.
    folder : str or path-like
        New, or empty. It is written whole or not at all.

    Raises
    ------
    TypeError, ValueError
        If the pipeline does not average vectors of tokens, the model has no fast tokenizer, or
        the vectors of the folder are not those of the table.

    Notes
    -----
    With "zipf" the vectors have unit length, with a ``Normalizer`` or without: the table
    includes the weights, so the mean is right up to a factor for each text. With "mean" a
    special token that stands in a text makes its vector shorter, and leaves its direction. A
    text without tokens has the vector 0. Before the folder appears, the model is loaded from it
    and compared with means of the table on a few texts.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from skcalib import BertEncoder, Whitening
    >>> from skcalib.datasets import load_toy_sts, minilm_path
    >>> from skcalib.export import save_static
    >>> encoder = BertEncoder(minilm_path(), layers=0, pooling="zipf")
    >>> pipeline = make_pipeline(encoder, Whitening(noise="auto"))
    >>> pipeline = pipeline.fit(load_toy_sts().data.ravel())
    >>> save_static(pipeline, "static")  # doctest: +SKIP
    """
    parts, _ = parts_of_folder(pipeline)
    modules = FORMATS["static"].checked(parts.recipe, parts.steps)
    tokens = parts.backbone().tokens
    if len(tokens) > tokens.n_embedded:
        raise ValueError(
            "save_static got a model that does not embed all tokens of its tokenizer. Save the "
            "model after resize_token_embeddings, and fit again; or use another export."
        )
    table, is_unit = word_vectors(parts)
    chain = [modules.StaticEmbedding(_tokenizer(parts), embedding_weights=table)]
    chain += [modules.Normalize()] if is_unit else []
    texts = some_texts(parts)
    tokenizer = copy.deepcopy(tokens.tokenizer)  # each call leaves settings behind
    token_ids = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    kept = [_kept(ids, parts) for ids in token_ids]
    expected = np.stack([table[ids].sum(axis=0) / max(len(ids), 1) for ids in kept])
    expected = unit_rows(expected)[0] if is_unit else expected
    as_what = " as a table of word vectors"
    write = partial(through_folder, modules=chain, parts=parts, texts=texts, as_what=as_what)
    write_checked(folder, parts, expected, write)


def word_vectors(parts: Parts, positions: int = 16) -> tuple[np.ndarray, bool]:
    """Calibrated vectors of all tokens, (vocabulary, k), float32, over the first positions.

    Also return whether their averages over texts must be scaled to unit length.
    """
    recipe = parts.recipe
    weighted = POOLINGS[recipe.pooling].by_frequency
    steps = parts.steps[:-1] if parts.is_unit else parts.steps
    table = _embeddings(parts, min(positions, recipe.max_length - 1))
    table = apply(steps, table)  # affine, as averages are
    tokens = parts.backbone().tokens
    weights = tokens.zipf if weighted else np.ones(len(table))
    if not weighted:
        weights[tokens.added_ids] = 0
    # Tokens without a weight count only in a text that has no others.
    left_out = NEGLIGIBLE * weights[weights > 0].min()
    table = table * np.where(weights > 0, weights, left_out)[:, None].astype(np.float32)
    return table, parts.is_unit or weighted


def _embeddings(parts: Parts, positions: int) -> np.ndarray:
    """Layer 0 of each token, (vocabulary, d), averaged over positions after the special one."""
    backbone, width = parts.backbone(), parts.recipe.truncate_dim
    table = np.empty((len(backbone.tokens), width), dtype=np.float32)
    for ids in gen_batches(len(table), 1024):
        rows = table[ids]

        def receive(layer: int, hidden: Any, rows: np.ndarray = rows) -> None:
            states = hidden.float().view(len(rows), positions + 1, -1)
            rows[:] = states[:, 1:, :width].mean(dim=1).cpu().numpy()

        # Each text is one token, repeated.
        repeated = np.repeat(np.arange(ids.start, ids.stop), positions + 1)
        backbone.forward(repeated, np.full(len(rows), positions + 1), {0}, receive)
    return table


def _most_tokens(parts: Parts) -> int | None:
    """Return how many tokens of a text the encoder reads; None for all, in windows."""
    if parts.recipe.windows:
        return None
    return (
        parts.recipe.max_length - parts.backbone().tokens.tokenizer.num_special_tokens_to_add()
    )


def _kept(ids: list[int], parts: Parts) -> list[int]:
    """Tokens of a text that the encoder reads."""
    most = _most_tokens(parts)
    if most is None or len(ids) <= most:
        return ids
    return ids[:most] if parts.recipe.truncation_side == "right" else ids[-most:]


def _tokenizer(parts: Parts) -> Any:
    """Tokenizer that cuts texts off where the encoder does, without special tokens."""
    from tokenizers import Tokenizer

    tokenizer = parts.backbone().tokens.tokenizer
    if not tokenizer.is_fast:
        raise ValueError(
            f"save_static needs a model with a fast tokenizer; this model has a "
            f"{type(tokenizer).__name__}. Use save_sentence_transformer."
        )
    copied = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    if (most := _most_tokens(parts)) is not None:
        copied.enable_truncation(most, direction=parts.recipe.truncation_side)
    return copied
