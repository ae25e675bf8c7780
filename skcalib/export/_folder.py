"""Folders that sentence-transformers loads, with a model card."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from skcalib.export._parts import Parts

__all__ = ["save"]

CARD = """\
---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- sentence-similarity
- feature-extraction
---

# Calibrated sentence vectors

A model of sentence-transformers that turns texts into vectors of {width} dimensions. It is a
pipeline of skcalib {version}{as_what}:

{steps}

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
vectors = model.encode(["A text.", "Another text."])
model.similarity(vectors, vectors)  # {similarity}
```
"""


def save(model: Any, parts: Parts, folder: Path, as_what: str = "") -> None:
    """Write a `SentenceTransformer` that does what the parts do."""
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
    card = CARD.format(
        width=model.get_embedding_dimension(),
        version=version("skcalib"),
        as_what=as_what,
        steps="\n".join(f"{i}. {step}" for i, step in enumerate(_steps(parts), 1)),
        similarity=model.similarity_fn_name,
    )
    (folder / "README.md").write_text(card, "utf-8")


def _steps(parts: Parts) -> Iterator[str]:
    """Describe the steps, by what was fitted rather than by parameters that name a machine."""
    recipe = parts.recipe
    settings = {name: getattr(recipe, name) for name in ("pooling", "layers", "special_tokens")}
    settings |= {"prompt": recipe.prompt, "max_length": recipe.max_length}
    if recipe.truncate_dim < parts.backbone().width:
        settings["truncate_dim"] = recipe.truncate_dim
    settings |= {} if recipe.stride is None else {"overflow": "windows"}
    written = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    yield f"`BertEncoder({written})` of a `{type(parts.backbone().module).__name__}`"
    for step in parts.fitted:
        n = getattr(step, "n_samples_seen_", None)
        yield f"`{step!r}`" + (f", fitted on {n:,} texts" if n else "")
