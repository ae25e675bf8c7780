"""Folders that sentence-transformers loads, with a model card."""

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import Normalizer

from skcalib.export._parts import Parts, take_apart

CARD = Path(__file__).parent / "data" / "card.md"
# Learned by the steps, and written on the card.
FIGURES = (
    *("n_samples_seen_", "n_samples_", "n_pairs_", "centering_", "power_", "noise_"),
    *("shrinkage_", "variance_kept_", "kept_"),
)
PACKAGES = "sentence-transformers", "transformers", "torch"


def parts_of_folder(pipeline: Any, normalize: bool | None = None) -> tuple[Parts, bool]:
    """Take a pipeline apart; also return whether the folder scales vectors to unit length.

    With ``normalize=None`` it does if the model's own folder ends with ``Normalize``, since the
    library often computes cosines as inner products.
    """
    parts = take_apart(pipeline)
    if normalize is None:
        normalize = parts.encoder.declared_.normalizes and parts.similarity == "cosine"
    if not normalize or parts.is_unit:
        return parts, False
    return parts._replace(steps=(*parts.steps, Normalizer())), True


def through_folder(
    folder: Path,
    modules: list[Any],
    parts: Parts,
    texts: list[str],
    as_what: str = "",
    **params: Any,
) -> np.ndarray:
    """Write modules equivalent to the parts; read them back, and return vectors of texts."""
    from sentence_transformers import SentenceTransformer

    params |= {"similarity_fn_name": parts.similarity, "device": "cpu"}
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
        as_what=as_what,
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
    settings = {name: getattr(recipe, name) for name in names}
    if recipe.windows:
        settings["overflow"] = "windows"
    written = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    yield f"`BertEncoder({written})` of a `{type(parts.backbone().module).__name__}`"
    for step in parts.steps:
        known = ", ".join(_of_fit(step))
        yield f"`{step!r}`" + (f", {known}" if known else "")


def _of_fit(step: Any) -> Iterator[str]:
    """Describe the fit of a step by what it learned, as far as it has that."""
    if hasattr(step, "group_count_"):
        yield f"n_samples {step.group_count_.sum():,}"
    for name in FIGURES:
        if (value := getattr(step, name, None)) is not None:
            yield f"{name.rstrip('_')} {round(value, 3):,}"
    if (shares := getattr(step, "explained_variance_ratio_", None)) is not None:
        yield f"{len(shares)} of {step.n_features_in_} axes, {sum(shares):.0%} of the variance"
