"""Whether a server applies the calibration of an exported pipeline."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.spatial.distance import cdist

from skcalib.encoders.bert_encoder import for_export
from skcalib.export._parts import Parts, apply, take_apart
from skcalib.inputs.texts import as_texts
from skcalib.inputs.vectors import unit_rows

# Largest distance of unit vectors that are the same up to the precision of a server: float16
# and bfloat16 move them by 0.001 to 0.02, another text by much more.
SAME = 0.05


@dataclass(frozen=True)
class Served:
    """What a server returns for the texts of a pipeline.

    Parameters
    ----------
    kind : {"calibrated", "raw", "other"}
        The pipeline's vectors, those of its encoder alone, or neither.
    distance : float
        Largest distance of a served vector to that of the pipeline, both of unit length: 0 to
        2, and NaN if they cannot be compared.
    reason : str
        Such as a missing prompt, or rows in another order.
    """

    kind: Literal["calibrated", "raw", "other"]
    distance: float
    reason: str = ""

    def __str__(self) -> str:
        return self.kind + (f": {self.reason}" if self.reason else "")


def check_served(function: Callable[[list[str]], Any], pipeline: Any, texts: Any) -> Served:
    """Check whether a server returns calibrated vectors, raw vectors or others.

    Some servers load the transformer in a folder of `save_sentence_transformer`, and silently
    ignore the calibration that follows it.

    Parameters
    ----------
    function : callable
        Takes a list of texts and returns their vectors as served, of shape (n_texts,
        n_features). Their lengths do not matter.
    pipeline : Pipeline, BertEncoder or BiEncoder
        The fitted pipeline that was exported.
    texts : array-like of str, of shape (n_texts,)
        A few different texts of the kind that will be served.

    Returns
    -------
    served : Served
        With ``kind``, ``distance`` and ``reason``.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from skcalib import BertEncoder, Whitening
    >>> from skcalib.datasets import load_toy_sts, minilm_path
    >>> from skcalib.export import check_served
    >>> texts = load_toy_sts().data.ravel()
    >>> pipeline = make_pipeline(BertEncoder(minilm_path(), layers=3), Whitening(noise="auto"))
    >>> pipeline = pipeline.fit(texts)
    >>> def served(texts):  # in place of a request to a server
    ...     return pipeline[0].transform(texts)
    >>> check_served(served, pipeline, texts[:5]).kind
    'raw'
    """
    parts = take_apart(pipeline)
    texts = as_texts(texts, "texts")
    if len(set(texts)) < max(len(texts), 2):
        raise ValueError(
            f"Got {len(texts)} texts, {len(set(texts))} of them different; expected two or "
            "more, all different."
        )
    expected = _expected(parts, texts)
    vectors = np.asarray(function(texts), dtype=np.float64)
    widths = sorted({known.shape[1] for known in expected.values()})
    shapes = [(len(texts), width) for width in widths]
    if vectors.shape not in shapes:
        right = " or ".join(map(str, shapes))
        return Served("other", np.nan, f"the shape is {vectors.shape}, not {right}")
    if not (finite := np.isfinite(vectors).all(axis=1)).all():
        return Served("other", np.nan, f"NaN or infinity in vector {finite.argmin()}")
    unit = unit_rows(vectors)[0]
    # From each served vector, in rows, to each that is expected.
    distances = {
        name: cdist(unit, known)
        for name, known in expected.items()
        if known.shape == unit.shape
    }
    farthest = {name: float(each.diagonal().max()) for name, each in distances.items()}
    distance = farthest.get("calibrated", np.nan)
    # An encoder alone may scale to unit length, so that raw differs by rounding only.
    nearest = min(farthest, key=lambda name: round(farthest[name], 6))
    if farthest[nearest] <= SAME:
        kind, _, reason = nearest.partition(", ")
        return Served("raw" if kind == "raw" else "calibrated", distance, reason)
    for name, each in distances.items():
        if np.all(each.min(axis=1) <= SAME) and len({*each.argmin(axis=1)}) == len(texts):
            return Served("other", distance, f"{name}, in another order")
    reason = f"up to {farthest[nearest]:.2g} from the nearest, which is {nearest}"
    return Served("other", distance, reason)


def _expected(parts: Parts, texts: list[str]) -> dict[str, np.ndarray]:
    """Return unit vectors that a server may return: the right ones, raw, and without prompt."""
    recipe, expected = parts.recipe, {}
    for prompt in dict.fromkeys((recipe.prompt, "")):
        missing = "" if prompt == recipe.prompt else f", without the prompt {recipe.prompt!r}"
        skip = recipe.skip if prompt else (0, 0)
        raw = for_export(parts.encoder, prompt=prompt, skip=skip).transform(texts)
        expected[f"calibrated{missing}"] = unit_rows(apply(parts.steps, raw))[0]
        expected[f"raw{missing}"] = unit_rows(raw)[0]
    return expected
