"""Embeddings of the words of a vocabulary, by their frequency."""

import os

import numpy as np

# How tokenizers mark the beginning of a word; WordPiece marks its other pieces, by "##".
BEGINNINGS = ("Ġ", "▁")


def word_embeddings(model: str | os.PathLike[str]) -> tuple[np.ndarray, list[str]]:
    """Read the embeddings of the words of a model's vocabulary, by decreasing frequency.

    These are rows of the embedding matrix. Words of one character are left out: in BERT's
    vocabulary they come first, in alphabetical order.

    Parameters
    ----------
    model : str
        Hub id or local folder, as in `BertEncoder`.

    Returns
    -------
    vectors : ndarray of shape (n_words, d), float32
    words : list of str

    Raises
    ------
    OSError
        If there is no such model.
    TypeError, ValueError
        If it is no name or folder, or its vocabulary is not sorted by frequency.

    Examples
    --------
    >>> from skcalib.datasets import minilm_path
    >>> from skcalib.inspection import word_embeddings
    >>> vectors, words = word_embeddings(minilm_path())
    >>> words[:5]
    ['the', 'of', 'and', 'in', 'to']
    >>> vectors.shape[1]
    384
    """
    import torch

    from skcalib.encoders.model.folder import locate
    from skcalib.encoders.model.load import load

    backbone = load(locate(model), "cpu", "float32")
    if not backbone.tokens.has_zipf:
        raise ValueError(
            f"The vocabulary of {str(model)!r} is not sorted by frequency, so its words have "
            "no ranks. Take a model whose vocabulary is, such as BERT."
        )
    tokenizer = backbone.tokens.tokenizer
    weighted = np.flatnonzero(backbone.tokens.zipf)  # from the first whole word on
    tokens = tokenizer.convert_ids_to_tokens(weighted.tolist())
    marked = any(token.startswith(BEGINNINGS) for token in tokens)
    is_whole = [t.startswith(BEGINNINGS) or not (marked or t.startswith("##")) for t in tokens]
    whole = np.flatnonzero(is_whole)
    matrix = backbone.module.get_input_embeddings().weight
    vectors = matrix[torch.from_numpy(weighted[whole]).to(matrix.device)].cpu().numpy()
    words = [tokens[i].lstrip("".join(BEGINNINGS)) for i in whole]
    return vectors, words
