"""Read the tokenizer and the weights of a folder, and refuse those that would be wrong."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from skcalib.encoders.model.forward import first_position
from skcalib.encoders.model.tokens import LONGEST

# Kinds of encoder-decoders, as model_type in config.json, whose encoder can be used alone.
ENCODER_OF = ("t5", "mt5", "umt5")

# Endings of tensors that go with quantized weights.
SCALES = re.compile(r"(scales?|zeros|zero_points?|scale_inv|absmax|qweight)$")

# First parts of the names of weights that a model without its head leaves out.
HEADS = re.compile(
    r"head|classif|predict|pool|score|logits|cls|qa_|qass|vocab_|decoder|out(put)?|proj|pred_"
    r"|summary|lm_|dense|linear|answer"
)
NUMBER = re.compile(r"\.\d+(?=\.)")  # of a block
BUFFERS = {"position_ids", "token_type_ids", "inv_freq", "masked_bias"}  # once saved as weights
FORMER = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def read(folder: Path) -> tuple[Any, Any]:
    """Read tokenizer and module of a folder, in float32, without running code from it.

    For an encoder-decoder of texts, such as T5, the module is its encoder.
    """
    from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding, AutoTokenizer

    # Threads of the tokenizers library save little and disturb forks. The user's setting wins.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with quiet_transformers():
        config = AutoConfig.from_pretrained(folder, **local)
        config.use_cache = False  # only generation needs the keys and values of tokens
        config.return_dict = True
        if getattr(config, "add_cross_attention", False) and not config.is_decoder:
            raise ValueError(
                "its config.json declares add_cross_attention, which only decoders have in "
                "transformers. Delete the entry, or declare is_decoder, as it was trained"
            )
        auto = AutoModelForTextEncoding if config.model_type in ENCODER_OF else AutoModel
        # Load in float32, so that no constant is rounded.
        options = local | {"dtype": torch.float32, "output_loading_info": True}
        options |= {"config": config, "use_safetensors": True}
        module, report = auto.from_pretrained(folder, **options)
        if (name := module.main_input_name) != "input_ids":
            raise ValueError(f"its input is {name}, not texts")
        tokenizer = AutoTokenizer.from_pretrained(folder, **local)
    _check_weights(module, report)
    _refuse_twice(folder, module.base_model_prefix)
    return tokenizer, module.eval().requires_grad_(False)


def _check_weights(module: Any, report: dict[str, Any]) -> None:
    """Refuse weights that are quantized, missing, left over inside the model, or not finite."""
    # Quantized weights are read as plain numbers, and their scales are left over.
    scales = [k for k in report["unexpected_keys"] if SCALES.search(k)]
    if scales:
        raise ValueError(
            f"its weights are quantized, since they have the scale {scales[0]!r}. Save it in "
            "float32"
        )
    # A pooler without weights is common (it is not used here). Any other missing weight would
    # be drawn at random and make every vector silently wrong.
    missing = sorted(k for k in report["missing_keys"] if not k.startswith("pooler."))
    if missing:
        raise ValueError(
            f"its weights lack {len(missing)} tensors of {type(module).__name__}, such as "
            f"{missing[0]!r}. Save it again"
        )
    if unread := _unread(report["unexpected_keys"], module):
        raise ValueError(
            f"it has weights that {type(module).__name__} of transformers does not read, such "
            f"as {unread[0]!r} ({len(unread)} in all); expected only its own and those of a "
            "head, such as a classifier. If they belong to the model, use the release of "
            "transformers that wrote it, or correct its config.json; otherwise load it by "
            "AutoModel, and save it to another folder"
        )
    kind = getattr(module.config, "position_embedding_type", None) or ""
    names = [name for name, _ in module.named_parameters()]
    if kind.startswith("relative_key") and not any("distance" in name for name in names):
        raise ValueError(
            f"its config.json declares position_embedding_type={kind!r}, which this release of "
            "transformers does not compute. Use the release that wrote it"
        )
    # NaN in a weight of attention can lead to vectors that are finite and wrong.
    named = module.named_parameters()
    if bad := [name for name, weight in named if not _is_finite(weight)]:
        raise ValueError(
            f"its weight {bad[0]!r} has entries that are not finite. Save it again"
        )


def _unread(names: Iterable[str], module: Any) -> list[str]:
    """Return the weights that a model does not read, except buffers and those of heads.

    No weight of a head has the name of a weight inside the model, or of one in further blocks.
    """
    parts = {name for name, _ in module.named_children()}
    used = (f".{name}" for name, _ in module.named_parameters() if name.count(".") > 1)
    own = tuple({NUMBER.sub(".0", name) for name in used})
    inner = [name.removeprefix(f"{module.base_model_prefix}.") for name in names]
    return sorted(
        name
        for name in inner
        if name.rpartition(".")[2] not in BUFFERS
        and (
            (first := name.partition(".")[0]) in parts
            or not HEADS.search(first)
            or NUMBER.sub(".0", name).endswith(own)
        )
    )


def _refuse_twice(folder: Path, prefix: str) -> None:
    """Refuse two tensors for one weight, of which transformers would read the last."""
    names: dict[str, str] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        with safe_open(file, "pt") as stored:
            for name in stored.keys():  # noqa: SIM118, it is no dict
                plain = name.removeprefix(f"{prefix}.")
                for former, today in FORMER.items():
                    plain = plain.replace(former, today)
                if (other := names.setdefault(plain, name)) != name:
                    raise ValueError(
                        f"it has two tensors for one weight, {other!r} and {name!r}; expected "
                        "one. Delete the one that does not belong to it, or save it again"
                    )


def lowercase(tokenizer: Any) -> None:
    """Let a tokenizer lowercase texts first, as sentence-transformers does."""
    if not tokenizer.is_fast:
        raise ValueError(
            "its folder declares do_lower_case, which needs a fast tokenizer. Save it with a "
            "tokenizer.json"
        )
    from tokenizers.normalizers import Lowercase, Sequence

    inner = tokenizer.backend_tokenizer
    some = [] if inner.normalizer is None else [inner.normalizer]
    inner.normalizer = Sequence([Lowercase(), *some])


def _is_finite(weight: torch.Tensor) -> bool:
    # A sum takes a tenth of the time of a maximum, which decides if the sum overflows.
    total = weight.sum(dtype=torch.float32)
    return bool(torch.isfinite(total) or torch.isfinite(weight.abs().max()))


def n_embedded(folder: Path, tokenizer: Any, module: Any) -> int:
    """Count the tokens that the model embeds; refuse an incomplete or made-up tokenizer."""
    names = set(tokenizer.vocab_files_names.values()) - {"tokenizer.json"}
    has = {name for name in (*names, "tokenizer.json") if (folder / name).is_file()}
    whole = tokenizer.is_fast and "tokenizer.json" in has
    if tokenizer.vocab_files_names and not whole and not (names and names <= has):
        raise ValueError(
            f"it lacks the vocabulary of a {type(tokenizer).__name__}, "
            f"{' and '.join(sorted(names - has)) or 'tokenizer.json'}, so transformers would "
            "make one up. Save the tokenizer to this folder too, or download the model again"
        )
    rows = module.get_input_embeddings().weight.shape[0]
    # Rows without a token pad the table, usually to a multiple of 128, or are reserved for
    # later tokens: less than a hundredth of the rows in the models that we know.
    # Tokens that were added later may have no row; texts with these tokens are refused.
    if not rows - max(128, rows // 16) <= len(tokenizer) or tokenizer.vocab_size > rows:
        raise ValueError(
            f"its tokenizer has {len(tokenizer)} tokens, but the model embeds {rows}. Save "
            "both to one folder again, after resize_token_embeddings if necessary"
        )
    return rows


def limit_of(tokenizer: Any) -> int:
    """Return the most tokens of a text by the tokenizer; without a limit it declares 1e30."""
    longest, least = tokenizer.model_max_length, tokenizer.num_special_tokens_to_add()
    if not isinstance(longest, int | float) or not longest > least:
        raise ValueError(
            f"its tokenizer_config.json has model_max_length={longest!r}; expected a number "
            f"above {least}, the number of its special tokens"
        )
    return int(min(longest, LONGEST))


def n_positions(module: Any) -> int:
    """Return the number of positions of a model, at most a million."""
    config = module.config
    positions = getattr(config, "max_position_embeddings", None) or -1  # XLNet has -1
    if getattr(config, "attention_type", None) == "block_sparse":
        # Up to this length BigBird attends to all tokens of a text. After one such text it
        # does so for all texts.
        positions = min(positions, (5 + 2 * config.num_random_blocks) * config.block_size)
    return min(positions - first_position(module), LONGEST) if positions > 0 else LONGEST


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence the progress bars and load reports of transformers; this module checks itself."""
    from transformers.utils import logging as hf_logging

    verbosity, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity(logging.ERROR)
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(verbosity)
        if bars:
            hf_logging.enable_progress_bar()
