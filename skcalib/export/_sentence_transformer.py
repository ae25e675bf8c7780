"""A fitted pipeline as a folder of sentence-transformers, built of that library's modules."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import Normalizer

from skcalib.base import warn
from skcalib.encoders.model.tokens import around
from skcalib.encoders.recipe import POOLINGS, SLOTS
from skcalib.export._folder import parts_of_folder, through_folder
from skcalib.export._formats import FORMATS
from skcalib.export._parts import Parts, probes
from skcalib.export._steps import centered_float32, combined, dense
from skcalib.export._writing import write_checked

# Weight of a token that counts only in a text without others: next to 1 it is lost to rounding.
# `Pooling` divides by the sum of a text's weights, 1e-9 at least.
NEGLIGIBLE = 1e-8


def save_sentence_transformer(
    pipeline: Any,
    folder: str | os.PathLike,
    *,
    normalize: bool | None = None,
) -> None:
    """Save a fitted pipeline as a folder that ``SentenceTransformer(folder)`` loads.

    The library, from version 5.4 on, loads it without skcalib and ``trust_remote_code``, and
    returns the vectors of the pipeline, to 1e-5 of a typical entry, or these scaled to unit
    length, see `normalize`; for an empty text only if the tokenizer adds special tokens or
    there is a prompt. The folder holds the blocks of the model that are needed, and a
    model card. The encoder's prompt becomes the default prompt, also of ``encode_query`` and
    ``encode_document``.

    Parameters
    ----------
    pipeline : Pipeline, BertEncoder or BiEncoder
        Fitted: a `BertEncoder`, then any number of `GroupErasure`, `Whitening`,
        `SpaceAligner` and scikit-learn's ``Normalizer``. The similarity of a `BiEncoder`
        becomes that of the model.
    folder : str or path-like
        New, or empty. It is written whole or not at all.
    normalize : bool or None, default=None
        Whether vectors are scaled to unit length. None scales them if the model's own folder
        ends with ``Normalize`` and the similarity is the cosine, since programs may rely on it
        and compute cosines as inner products. It warns if lengths change.

    Raises
    ------
    TypeError, ValueError
        If no module can hold a part of the pipeline, or the vectors of the folder differ from
        the pipeline's, such as those of a model that padding changes. The message names the
        nearest pipeline that can be saved, or exports that accept it.

    Notes
    -----
    The model computes in float32, regardless of the ``dtype`` of the encoder. Before the folder
    appears, the model is loaded from it and compared with the pipeline on a few texts.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from skcalib import BertEncoder, Whitening
    >>> from skcalib.datasets import load_toy_sts, minilm_path
    >>> from skcalib.export import save_sentence_transformer
    >>> pipeline = make_pipeline(BertEncoder(minilm_path(), layers=3), Whitening(noise="auto"))
    >>> pipeline = pipeline.fit(load_toy_sts().data.ravel()[:200])
    >>> save_sentence_transformer(pipeline, "calibrated")  # doctest: +SKIP
    """
    parts, changes_lengths = parts_of_folder(pipeline, normalize)
    recipe = parts.recipe
    modules = FORMATS["sentence-transformers"].checked(recipe, parts.steps)
    texts, expected = probes(parts, without_token=False)
    if normalize is None and changes_lengths:
        warn(
            "The model's own folder ends with Normalize, and so does this one: its vectors "
            "have unit length, unlike those of the pipeline. Set normalize=False to keep the "
            "lengths, such as for a trained classifier, or normalize=True to avoid this "
            "warning."
        )
    calibrated = _calibrated(parts, modules)
    params: dict[str, Any] = {}
    if recipe.prompt:  # by the names that the library's methods look for
        prompts = dict.fromkeys(("default", "document", "query"), around(recipe.prompt)[0])
        params = {"prompts": prompts, "default_prompt_name": "default"}

    def write(depth: int, folder: Path) -> np.ndarray:
        chain = [*_pooled(parts, depth, modules), *calibrated]
        return through_folder(folder, chain, parts, texts, **params)

    # Only the needed blocks, then all: a model may normalize the output of its last block, or
    # list its blocks in its configuration.
    depths = dict.fromkeys([max(recipe.layers), parts.backbone().n_layers])
    ways = [partial(write, depth) for depth in depths]
    write_checked(folder, parts, expected, *ways)


def _pooled(parts: Parts, depth: int, modules: Any) -> list[Any]:
    """Modules from texts to pooled vectors; the transformer with ``depth`` blocks."""
    import torch

    recipe, backbone = parts.recipe, parts.backbone()
    layers, several = recipe.layers, len(set(recipe.layers)) > 1
    weights = _token_weights(parts)
    # A hidden state, counted as in `layers`, or the output of the model.
    output = ["hidden_states", layers[0]] if depth > max(layers) else "last_hidden_state"
    transformer = modules.Transformer(
        str(backbone.folder),
        model_kwargs={"dtype": torch.float32, "use_safetensors": True},
        config_kwargs={"num_hidden_layers": depth, "output_hidden_states": several},
        processor_kwargs={
            "model_max_length": recipe.max_length,
            "truncation_side": recipe.truncation_side,
        },
        modality_config={"text": {"method": "forward", "method_output_name": output}},
        module_output_name="token_embeddings",
        do_lower_case=parts.recipe.lower_case,
        # Weights of layers and tokens need padded batches.
        unpad_inputs=False if several or weights is not None else None,
    )
    chain = [transformer]
    if several:
        first = min(layers)
        times = np.bincount(layers, minlength=depth + 1)[first:]
        share = torch.nn.Parameter(torch.from_numpy(times).float())
        chain.append(modules.WeightedLayerPooling(backbone.width, depth, first, share))
    if weights is not None:
        by_id = {str(i): weight for i, weight in enumerate(weights.tolist())}
        chain.append(modules.WordWeights(list(by_id), by_id))
    # A pooling that the library does not know is a mean with weights that are already applied.
    mode, _ = POOLINGS[recipe.pooling].st_names or ("mean", "")
    chain.append(modules.Pooling(backbone.width, mode, include_prompt=not any(recipe.skip)))
    if (kept := recipe.truncate_dim) < backbone.width:
        leading = np.eye(backbone.width, kept, dtype=np.float32)
        chain.append(dense(modules, leading, np.zeros(kept, np.float32)))
    return chain


def _token_weights(parts: Parts) -> np.ndarray | None:
    """Weight of every token id in the mean over a text; None if all weigh the same."""
    backbone, recipe = parts.backbone(), parts.recipe
    if not SLOTS[recipe.slot].own:
        return None
    weights = np.ones(len(backbone.tokens))
    if POOLINGS[recipe.pooling].by_frequency:
        # A token without a Zipf weight counts only in a text without weighted ones.
        zipf = backbone.tokens.zipf.astype(np.float64)
        weights = np.where(zipf > 0, zipf / NEGLIGIBLE, 1.0)
    weights[backbone.tokens.added_ids] = NEGLIGIBLE
    return weights


def _calibrated(parts: Parts, modules: Any) -> list[Any]:
    """Modules from pooled to calibrated vectors."""
    chain = []
    for step in combined(parts.steps):
        if isinstance(step, Normalizer):
            chain.append(modules.Normalize())
        else:
            # Subtract the mean first and alone: after the product its digits would be lost.
            mean, W, bias = centered_float32(step)
            identity = np.eye(len(mean), dtype=np.float32)
            chain += [dense(modules, identity, -mean), dense(modules, W, bias)]
    return chain
