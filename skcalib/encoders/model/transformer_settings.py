"""What a folder of sentence-transformers declares of its transformer: read, or refused by name.

Every entry that the library looks for has a place here, since an overlooked entry would
silently change vectors. `tests/encoders/test_transformer_settings.py` compares with its source.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from skcalib.encoders.model.entries import COUNT, checked, entries, is_count
from skcalib.encoders.model.files import TRANSFORMER

BUCKETS = "processing_kwargs", "processor_kwargs", "tokenizer_args"  # of further entries
SIDES = ["left", "right"]
FORWARD = {"method": "forward", "method_output_name": "last_hidden_state"}


def _any(value: Any) -> bool:
    return True


def _is_of_texts(modalities: Any) -> bool:
    """Whether a text goes through the model as it is, and not as a message of a chat."""
    return (
        isinstance(modalities, dict)
        and modalities.get("text") == FORWARD
        and "message" not in modalities
    )


def _only(*names: str) -> Callable[[Any], bool]:
    """Whether a dict has no other entries."""
    return lambda value: isinstance(value, dict) and value.keys() <= set(names)


READ = None  # marks an entry that is read; others say whether a value changes no vector
OF_MODEL = _only(
    "trust_remote_code",
    "use_safetensors",
    "dtype",
    "torch_dtype",
    "attn_implementation",
    "add_pooling_layer",
    "device_map",
)
Entries = dict[str, Callable[[Any], bool] | None]
ENTRIES: Entries = {
    "max_seq_length": READ,
    "do_lower_case": READ,
    "transformer_task": lambda value: value == "feature-extraction",
    "modality_config": _is_of_texts,
    "module_output_name": lambda value: value == "token_embeddings",
    "unpad_inputs": _any,
    "query_length": lambda value: value is None,
    "document_length": lambda value: value is None,
    "query_expansion": lambda value: value is None,
    "tokenizer_name_or_path": lambda value: not value,
    "model_kwargs": OF_MODEL,
    "model_args": OF_MODEL,
    "config_kwargs": _only("trust_remote_code"),
    "config_args": _only("trust_remote_code"),
}
# The same of the entries for the tokenizer: when it is loaded, and when it is called.
LOADED: Entries = dict.fromkeys(("trust_remote_code", "use_fast", "padding_side"), _any)
LOADED |= dict.fromkeys(("model_max_length", "truncation_side"), READ)
CALLED: Entries = {"max_length": READ}
CALLED |= dict.fromkeys(("padding", "return_tensors", "pad_to_multiple_of"), _any)
CALLED |= {"truncation": lambda value: value is True or value == "longest_first"}
CALLED |= {"add_special_tokens": lambda value: value is True}


class TransformerSettings(NamedTuple):
    """What a folder declares of its transformer."""

    max_length: int | None = None  # most tokens of a text
    lower_case: bool = False  # texts are lowercased before they are tokenized
    truncation_side: str | None = None  # the side on which long texts are cut


def transformer_settings(folder: Path) -> TransformerSettings:
    """Read the first of the files that declares something; refuse unsupported entries."""
    for name in TRANSFORMER:
        if content := entries(folder, name):
            return _settings(folder / name, content)
    return TransformerSettings()


def _settings(file: Path, content: dict[str, Any]) -> TransformerSettings:
    read: dict[str, Any] = {}
    for name, value in content.items():
        if name == "processing_kwargs" and isinstance(value, dict):
            for kind in ("common", "text"):  # the others are of other inputs
                _collect(file, f"{name}.{kind}", value.get(kind) or {}, CALLED, read)
        elif name in BUCKETS:
            _collect(file, name, value or {}, LOADED, read)
        else:
            _collect(file, "", {name: value}, ENTRIES, read)
    lengths = ("max_length", "model_max_length", "max_seq_length")
    named = next((name for name in lengths if read.get(name) is not None), lengths[-1])
    return TransformerSettings(
        checked(file, read, named, is_count, COUNT),
        bool(checked(file, read, "do_lower_case", lambda v: v in (True, False), "a boolean")),
        checked(file, read, "truncation_side", SIDES.__contains__, "'left' or 'right'"),
    )


def _collect(
    file: Path, where: str, content: Any, known: Entries, read: dict[str, Any]
) -> None:
    """Collect entries that are read; refuse one that may change vectors."""
    for name, value in content.items() if isinstance(content, dict) else [(where, content)]:
        is_harmless = known.get(name, lambda _: False)
        if is_harmless is None:  # READ
            read[name] = value
        elif not is_harmless(value):
            raise ValueError(
                f"{file} declares {where and where + '.'}{name}={value!r:.80}, which may "
                "change vectors, but BertEncoder does not support it. Delete the entry to "
                "encode without it, or wrap the SentenceTransformer in a TextEncoder."
            )
