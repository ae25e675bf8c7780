"""A fitted pipeline as a folder of sentence-transformers, built of that library's modules."""

import json
import os
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import Normalizer

from skcalib.base import import_package, warn
from skcalib.encoders.model.tokens import TEXT, around
from skcalib.encoders.recipe import POOLINGS, Recipe
from skcalib.export._onnx import not_one_graph
from skcalib.export._parts import Parts, combined, not_linear, take_apart
from skcalib.export._writing import probes, write_checked

CARD = Path(__file__).parent / "data" / "card.md"
PACKAGES = "sentence-transformers", "transformers", "torch"
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
    returns the vectors of the pipeline in float32, to 1e-5 of their length; for an empty text
    only if the tokenizer adds special tokens or there is a prompt. The folder has a model card.
    The encoder's prompt is the default, also of ``encode_query`` and ``encode_document``.

    Parameters
    ----------
    pipeline : Pipeline, BertEncoder or BiEncoder
        Fitted: a `BertEncoder`, then any number of linear steps, such as `Whitening`, and
        scikit-learn's ``Normalizer``.
    folder : str or path-like
        New, or empty. It is written whole or not at all.
    normalize : bool or None, default=None
        Whether vectors are scaled to unit length. None scales them if the model's own folder
        ends with ``Normalize``, and warns if lengths change.

    Raises
    ------
    TypeError, ValueError
        If no module can hold a part of the pipeline, or the vectors of the folder differ from
        the pipeline's. The message names the nearest pipeline that can be saved.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from skcalib import BertEncoder, Whitening
    >>> from skcalib.datasets import load_toy_sts, minilm_path
    >>> from skcalib.export import save_sentence_transformer
    >>> pipeline = make_pipeline(BertEncoder(minilm_path(), layers=3), Whitening(power="auto"))
    >>> pipeline = pipeline.fit(load_toy_sts().data.ravel()[:200])
    >>> save_sentence_transformer(pipeline, "calibrated")  # doctest: +SKIP
    """
    parts = take_apart(pipeline)
    scales = parts.encoder.declared_.normalizes if normalize is None else normalize
    changes_lengths = scales and not any(isinstance(s, Normalizer) for s in parts.steps[-1:])
    if changes_lengths:
        parts = parts._replace(steps=(*parts.steps, Normalizer()))
    recipe = parts.recipe
    if reason := _not_modules(recipe, parts.steps):
        instead = "" if not_one_graph(recipe, parts.steps) else "; or use save_onnx"
        raise ValueError(
            f"sentence-transformers has no module for {reason}, and fit again{instead}."
        )
    modules = import_package(
        "'sentence-transformers>=5.4'", "sentence_transformers.sentence_transformer.modules"
    )
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
        return _through_folder(folder, chain, parts, texts, **params)

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
        chain.append(_dense(modules, np.eye(backbone.width, kept), np.zeros(kept)))
    return chain


def _token_weights(parts: Parts) -> np.ndarray | None:
    """Weight of every token id in the mean over a text; None if all weigh the same."""
    backbone, recipe = parts.backbone(), parts.recipe
    if not POOLINGS[recipe.pooling].own:
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
            mean, W = step.mean.astype(np.float32), step.projection
            bias = (mean - step.mean) @ W + step.bias
            chain += [_dense(modules, np.eye(len(mean)), -mean), _dense(modules, W, bias)]
    return chain


def _dense(modules: Any, W: np.ndarray, b: np.ndarray) -> Any:
    """Return the module ``x W + b`` of sentence-transformers."""
    import torch

    return modules.Dense(
        *W.shape,
        activation_function=torch.nn.Identity(),
        init_weight=torch.tensor(W.T, dtype=torch.float32),
        init_bias=torch.tensor(b, dtype=torch.float32),
    )


def _not_modules(recipe: Recipe, steps: Sequence[Any]) -> str:
    slot = POOLINGS[recipe.pooling]
    if recipe.windows:
        return "windows of long texts, which it cuts off. Set overflow='cut'"
    if recipe.concatenates:
        return "layers side by side. Set layer_merge='mean'"
    if not (slot.st_names or slot.by_word):
        return f"pooling={recipe.pooling!r}. Set pooling='mean'"
    before, *between, after = around(recipe.prompt)
    if between or after:
        return (
            f"the prompt {recipe.prompt!r:.60}, since it puts prompts before texts only. Set a "
            f"prompt without {TEXT}"
        )
    if before and recipe.truncation_side == "left":
        return (
            f"the prompt {recipe.prompt!r:.60} with overflow='cut_left', by which it cuts off "
            "the prompt. Set overflow='cut_right' or prompt=''"
        )
    if any(recipe.skip) and slot.own:
        return (
            f"pooling={recipe.pooling!r} with token weights that skip those of the prompt. "
            "Set pooling='mean'"
        )
    return not_linear([step for step in steps if not isinstance(step, Normalizer)])


def _through_folder(
    folder: Path,
    modules: list[Any],
    parts: Parts,
    texts: list[str],
    **params: Any,
) -> np.ndarray:
    """Write modules equivalent to the parts; read them back, and return vectors of texts."""
    from sentence_transformers import SentenceTransformer

    params |= {"similarity_fn_name": "cosine", "device": "cpu"}
    model = SentenceTransformer(modules=modules, **params)
    model.save(str(folder), create_model_card=False)
    path = folder / "modules.json"
    modules = json.loads(path.read_text("utf-8"))
    for module in modules:
        # All versions find the classes at this path; 6 writes paths that 5 does not know.
        module["type"] = f"sentence_transformers.models.{module['type'].rpartition('.')[2]}"
    path.write_text(json.dumps(modules, indent=2), "utf-8")
    path = folder / "tokenizer_config.json"
    if path.exists():  # transformers 5 writes a name for this class that 4 does not know
        text = path.read_text("utf-8").replace("TokenizersBackend", "PreTrainedTokenizerFast")
        path.write_text(text, "utf-8")
    card = CARD.read_text("utf-8").format(
        width=model.get_embedding_dimension(),
        version=version("skcalib"),
        packages=", ".join(f"{name} {version(name)}" for name in PACKAGES),
        fingerprint=parts.recipe.fingerprint,
        steps="\n".join(f"{i}. {step}" for i, step in enumerate(_steps(parts), 1)),
        similarity=model.similarity_fn_name,
    )
    (folder / "README.md").write_text(card, "utf-8")
    loaded = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return loaded.encode(texts, show_progress_bar=False)


def _steps(parts: Parts) -> Iterator[str]:
    """Describe the fitted steps, without parameters that belong to this machine."""
    recipe = parts.recipe
    names = ["pooling", "layers", "prompt", "max_length"]
    if recipe.truncate_dim < parts.backbone().width:
        names.append("truncate_dim")
    written = ", ".join(f"{name}={getattr(recipe, name)!r}" for name in names)
    yield f"`BertEncoder({written})` of a `{type(parts.backbone().module).__name__}`"
    yield from (f"`{step!r}`" for step in parts.steps)
