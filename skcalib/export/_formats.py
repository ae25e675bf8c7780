"""The table of formats: what each cannot hold, and the name of its file or folder."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sklearn.preprocessing import Normalizer

from skcalib.base import import_package
from skcalib.encoders.model.tokens import TEXT, around
from skcalib.encoders.poolings import POOLINGS, SLOTS
from skcalib.encoders.recipe import Recipe
from skcalib.export._steps import not_linear

# What the command assumes before its search: the mean of the last layer, long texts cut off.
PLAIN = Recipe("", (-1,), "mean", "mean", "", (0, 0), 512, 384, False, "float32")


class Format(NamedTuple):
    """How a fitted pipeline is saved."""

    # Name in the folder of `skcalib calibrate`, "" for the folder itself; None if not offered.
    file: str | None
    loader: str
    packages: str  # to install
    modules: tuple[str, ...]  # that must be importable
    save: str = ""  # the function of skcalib.export
    # Why it cannot hold an encoder and its steps, and what to set instead; or "".
    refused: Callable[[Recipe, Sequence[Any]], str] = lambda *_: ""
    refusal: str = ""  # the sentence that gives this reason

    def package(self) -> Any:
        """Import what it needs, and return the last of these modules."""
        return [import_package(self.packages, name) for name in self.modules][-1]

    def checked(self, recipe: Recipe, steps: Sequence[Any]) -> Any:
        """Refuse what it cannot hold, and name a format that can; return its package."""
        if reason := self.refused(recipe, steps):
            others = [
                f.save for f in FORMATS.values() if f.save and not f.refused(recipe, steps)
            ]
            instead = f"; or use {' or '.join(others)}" if others else ""
            raise ValueError(f"{self.refusal.format(reason)}, and fit again{instead}.")
        return self.package()


def _not_modules(recipe: Recipe, steps: Sequence[Any]) -> str:
    slot = SLOTS[recipe.slot]
    if recipe.windows:
        return "windows of long texts, which it cuts off. Set overflow='cut'"
    if recipe.concatenates:
        return "layers side by side. Set layer_merge='mean'"
    if not (slot.st_names or slot.by_word):
        return f"pooling={recipe.pooling!r}. Set pooling='mean'"
    before, *between, after = around(recipe.prompt)
    if between:
        return (
            f"the prompt {recipe.prompt!r:.60}, since it cannot pool a part of the tokens. Set "
            f"a prompt without {TEXT}"
        )
    if after:
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
    return _not_linear(steps)


def _not_one_graph(recipe: Recipe, steps: Sequence[Any]) -> str:
    """Return what a graph with its clients cannot compute."""
    if len(around(recipe.prompt)) > 2:
        return (
            f"cannot find the second text of the prompt {recipe.prompt!r:.60} in its inputs. "
            f"Set a prompt with one {TEXT}"
        )
    reason = _not_joined(recipe, steps)
    return reason and (
        "leaves windows to clients, which combine them by a weighted mean; this is not the "
        f"vector of a long text with {reason}, or set overflow='cut'"
    )


def _not_joined(recipe: Recipe, steps: Sequence[Any]) -> str:
    """Return what keeps a client from combining vectors of windows into that of the text."""
    how = POOLINGS[recipe.pooling]
    if not recipe.windows:
        return ""
    if how.by_root or how.by_frequency or how.maximum:
        return f"pooling={recipe.pooling!r}. Set pooling='mean'"
    if any(isinstance(step, Normalizer) for step in steps):
        return "vectors of unit length. Set normalize=False, without a Normalizer"
    return _not_linear(steps)


def _not_word_vectors(recipe: Recipe, steps: Sequence[Any]) -> str:
    slot = SLOTS[recipe.slot]
    if set(recipe.layers) != {0} or recipe.concatenates:
        return f"layers={recipe.layers}. Set layers=0"
    if not (POOLINGS[recipe.pooling].by_word and slot.own):
        return f"pooling={recipe.pooling!r}. Set pooling='zipf' or 'mean_own'"
    if recipe.prompt:
        return f"the prompt {recipe.prompt!r:.60}. Set prompt=''"
    if any(isinstance(step, Normalizer) for step in steps[:-1]):
        return "a Normalizer before the last step. Leave that step out"
    return _not_linear(steps)


def _not_linear(steps: Sequence[Any]) -> str:
    return not_linear([step for step in steps if not isinstance(step, Normalizer)])


_SENTENCE_TRANSFORMERS = (
    "sentence-transformers>=5.4",
    ("sentence_transformers", "sentence_transformers.sentence_transformer.modules"),
)
FORMATS = {
    "joblib": Format("pipeline.joblib", "joblib.load", "joblib", ("joblib",)),
    "sentence-transformers": Format(
        "",
        "SentenceTransformer",
        *_SENTENCE_TRANSFORMERS,
        "save_sentence_transformer",
        _not_modules,
        "sentence-transformers has no module for {}",
    ),
    "onnx": Format(
        "model.onnx",
        "InferenceSession",
        "onnx onnxscript onnxruntime",
        ("onnx", "onnxscript", "onnxruntime"),
        "save_onnx",
        _not_one_graph,
        "A graph of save_onnx {}",
    ),
    "static": Format(
        None,
        "SentenceTransformer",
        *_SENTENCE_TRANSFORMERS,
        "save_static",
        _not_word_vectors,
        "A table of word vectors cannot hold {}",
    ),
}
