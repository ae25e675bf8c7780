"""The two sides of a search, as a model declares them: its prompts of queries and documents."""

from dataclasses import dataclass
from typing import Any

from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from skcalib.base import is_fitted
from skcalib.encoders.any_encoder import as_encoder
from skcalib.encoders.bert_encoder import BertEncoder
from skcalib.encoders.model.declared import declared
from skcalib.encoders.model.files import locate
from skcalib.encoders.text_encoder import TextEncoder

# Names of the prompts of each side, as sentence-transformers looks for them.
PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}


@dataclass
class SideOf:
    """The queries' or documents' side of a model, such as a ``SentenceTransformer``."""

    model: Any
    side: str

    def encode(self, texts: list[str]) -> Any:
        """Call ``encode_query`` or ``encode_document``."""
        return getattr(self.model, f"encode_{self.side}")(texts)


def of_side(encoder: Any, side: str) -> Any:
    """Return an encoder of texts as its model declares it for a side, "query" or "document".

    The encoder is returned as it is if it is fitted, has a prompt, or its model declares none.
    """
    encoder = as_encoder(encoder)
    if isinstance(encoder, Pipeline):
        if is_fitted(encoder):
            return encoder
        (name, first), *later = encoder.steps
        own = of_side(first, side)
        return encoder if own is first else Pipeline([(name, own), *later])
    if isinstance(encoder, BertEncoder) and encoder.prompt is None and not is_fitted(encoder):
        prompts = _prompts(encoder)
        names = [name for name in PROMPTS[side] if name in prompts]
        return clone(encoder).set_params(prompt=names[0]) if names else encoder
    if isinstance(encoder, TextEncoder) and hasattr(encoder.model, f"encode_{side}"):
        kept = encoder.name and f"{encoder.name}, {side}"
        return clone(encoder).set_params(model=SideOf(encoder.model, side), name=kept)
    return encoder


def first_of_queries(encoder: Any) -> Any:
    """Return the first step of an encoder for queries, or None if its model has no sides."""
    sides = as_encoder(encoder), of_side(encoder, "query"), of_side(encoder, "document")
    first, query, document = (
        one.steps[0][1] if isinstance(one, Pipeline) else one for one in sides
    )
    return None if query is first and document is first else query


def ignores_sides(encoder: Any) -> bool:
    """Whether a fitted encoder encodes both sides alike although its model has two."""
    first = encoder.steps[0][1] if isinstance(encoder, Pipeline) else encoder
    is_ours = isinstance(first, BertEncoder | TextEncoder)
    return is_ours and first_of_queries(clone(first)) is not None


def after_query_encoder(encoder: Any, documents: Any) -> Any:
    """Return an encoder of queries, followed by the later steps of that of documents.

    These are fitted and stay as they are. A pipeline is used as a whole, so it must be fitted:
    otherwise its vectors would not be comparable.
    """
    first, own = (
        one.estimator if isinstance(one, FrozenEstimator) else one
        for one in (encoder, documents)
    )
    if isinstance(first, Pipeline) and not is_fitted(first):
        raise ValueError(
            "query_encoder is a pipeline that is not fitted, so its vectors would not be "
            "comparable with those of the documents. Give only its first step, which the later "
            "steps of `encoder` then follow, or a FrozenEstimator of a fitted pipeline."
        )
    if isinstance(first, Pipeline) or not isinstance(own, Pipeline):
        return encoder
    later = [
        (name, step if isinstance(step, str | None) else FrozenEstimator(step))
        for name, step in own.steps[1:]
    ]
    return Pipeline([("encode", encoder), *later])


def _prompts(encoder: BertEncoder) -> dict[str, str]:
    """Return the prompts that the folder of an encoder declares, by name."""
    return declared(locate(encoder.model)).prompts
