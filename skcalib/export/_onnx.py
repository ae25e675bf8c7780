"""A fitted pipeline as one graph of ONNX: token ids in, calibrated vectors out."""

import logging
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import Normalizer

from skcalib.base import import_package
from skcalib.encoders.model.tokens import TEXT, around
from skcalib.encoders.recipe import POOLINGS, Recipe
from skcalib.export._parts import Parts, not_linear, take_apart
from skcalib.export._writing import probes, write_checked

PACKAGES = "onnx", "onnxscript", "onnxruntime"
MOST_BYTES = 3 * 2**29  # of weights: torch puts more into a second file


def save_onnx(pipeline: Any, path: str | os.PathLike) -> None:
    """Save a fitted pipeline as one ONNX graph, from token ids to calibrated vectors.

    Its inputs are ``input_ids`` and ``attention_mask``, int64 of shape (n_texts, n_tokens), as
    the model's tokenizer returns them for texts in the encoder's ``prompt_``: with special
    tokens, padded on the right, cut to ``max_length_``. Its output ``sentence_embedding``,
    float32 of shape (n_texts, n_features), equals the vectors of the pipeline to 1e-5 of their
    length. Its metadata are ``prompt``, ``max_length``, ``truncation_side``, and the numbers of
    tokens around a text that a client must keep, ``tokens_before`` and ``tokens_after``. With
    ``overflow="windows"`` a client splits long texts and combines the vectors, as the page on
    deployment shows.

    Parameters
    ----------
    pipeline : Pipeline, BertEncoder or BiEncoder
        Fitted: a `BertEncoder`, then any number of `Whitening`, `NormalizingFlow`,
        `NeighborSmoothing` and scikit-learn's ``Normalizer``.
    path : str or path-like
        A new file, written whole or not at all.

    Raises
    ------
    TypeError, ValueError
        If a step is of another class, the vectors of the graph differ from the pipeline's, it
        exceeds the 1.5 GiB that torch writes into one file, or a client cannot combine windows.

    Notes
    -----
    The model computes in float32, regardless of the encoder's ``dtype``, and neighbors are
    searched exactly, regardless of ``neighbors``. Of two fitted texts that are equally near up
    to rounding, graph and pipeline may choose different ones.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from skcalib import BertEncoder, Whitening
    >>> from skcalib.datasets import load_toy_sts, minilm_path
    >>> from skcalib.export import save_onnx
    >>> pipeline = make_pipeline(BertEncoder(minilm_path(), layers=3), Whitening(power="auto"))
    >>> pipeline = pipeline.fit(load_toy_sts().data.ravel()[:200])
    >>> save_onnx(pipeline, "calibrated.onnx")  # doctest: +SKIP
    """
    parts = take_apart(pipeline)
    recipe = parts.recipe
    if reason := not_one_graph(recipe, parts.steps):
        raise ValueError(f"A graph of save_onnx {reason}, and fit again.")
    runtime = [import_package(" ".join(PACKAGES), name) for name in PACKAGES][-1]
    from skcalib.export._modules import PaddedPipeline

    graph = PaddedPipeline(parts)
    if (size := sum(tensor.nbytes for tensor in graph.state_dict().values())) > MOST_BYTES:
        raise ValueError(
            f"The graph would have {size / 1e9:.1f} GB; torch writes up to 1.6 into one file. "
            "Fit NeighborSmoothing on fewer texts, keep fewer components before it, or use "
            "to_torch() of the steps."
        )
    texts, expected = probes(parts, without_token=True)
    inputs, frame = _padded(parts, texts), parts.backbone().tokens.frame(recipe.prompt)
    metadata = {
        "prompt": recipe.prompt,
        "max_length": str(recipe.max_length),
        "truncation_side": recipe.truncation_side,
        "tokens_before": str(len(frame.before)),
        "tokens_after": str(len(frame.after)),
    }

    def write(target: Path) -> np.ndarray:
        _export(graph, inputs, metadata, target)
        session = runtime.InferenceSession(target, providers=["CPUExecutionProvider"])
        return _run(session, inputs)

    write_checked(path, parts, expected, write, is_file=True)


def _export(
    graph: Any, inputs: dict[str, np.ndarray], metadata: dict[str, str], path: Path
) -> None:
    """Write the graph, with batch and length of any size; ``inputs`` are an example."""
    import torch

    axes = {0: torch.export.Dim("n_texts"), 1: torch.export.Dim("n_tokens")}
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # about torch's own code
        logger.setLevel(logging.ERROR)
        try:
            program: Any = torch.onnx.export(
                graph.eval(),
                tuple(map(torch.from_numpy, inputs.values())),
                input_names=list(inputs),
                output_names=["sentence_embedding"],
                dynamic_shapes=dict.fromkeys(inputs, axes),
                dynamo=True,
                verbose=False,
            )
            program.model.metadata_props.update(metadata)
            program.save(path, external_data=False)
        finally:
            logger.setLevel(level)


def _run(session: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Vectors by a graph, which must accept texts of any number and length."""
    shape = session.get_inputs()[0].shape
    if any(isinstance(size, int) for size in shape):
        raise ValueError(f"torch writes a graph for inputs of the shape {shape} only")
    vectors = session.run(None, inputs)[0]
    # A size that was frozen inside the graph shows with fewer, shorter texts.
    lengths = inputs["attention_mask"].sum(axis=1)
    few = np.flatnonzero(lengths < lengths.max())
    shorter = {name: ids[few, : lengths[few].max()] for name, ids in inputs.items()}
    vectors[few] = session.run(None, shorter)[0]
    return vectors


def _padded(parts: Parts, texts: list[str]) -> dict[str, np.ndarray]:
    """Ids and mask of texts, padded on the right, by name."""
    ids = parts.backbone().tokens.windows(texts, replace(parts.recipe, windows=False)).ids
    lengths = np.array([len(some) for some in ids])
    mask = np.arange(lengths.max()) < lengths[:, None]
    padded = np.full(mask.shape, parts.backbone().tokens.tokenizer.pad_token_id, dtype=np.int64)
    padded[mask] = np.concatenate(ids)
    return {"input_ids": padded, "attention_mask": mask.astype(np.int64)}


def not_one_graph(recipe: Recipe, steps: Sequence[Any]) -> str:
    """Return what a graph and its clients cannot compute, or ""."""
    how, reason = POOLINGS[recipe.pooling], ""
    if len(around(recipe.prompt)) > 2:
        return (
            f"cannot find the second text of the prompt {recipe.prompt!r:.60} in its inputs. "
            f"Set a prompt with one {TEXT}"
        )
    if not recipe.windows:
        return ""
    if how.by_frequency or how.maximum:
        reason = f"pooling={recipe.pooling!r}. Set pooling='mean'"
    elif any(isinstance(step, Normalizer) for step in steps):
        reason = "vectors of unit length. Set normalize=False, without a Normalizer"
    else:
        reason = not_linear(steps)
    return reason and (
        "leaves windows to clients, which combine them by a weighted mean; this is not the "
        f"vector of a long text with {reason}, or set overflow='cut'"
    )
