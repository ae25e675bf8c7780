"""The frozen transformer with its tokenizer: read, checked, ready to run."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from skcalib.encoders.model.forward import ForwardPass, first_position, moved
from skcalib.encoders.model.proof import check, fastest_way, proof_of
from skcalib.encoders.model.tokens import (
    CONTINUES,
    SPACES,
    Frame,
    empty_ids,
    frame_of,
    tokenize,
)
from skcalib.encoders.model.zipf import zipf_weights
from skcalib.process.forks import cached_property

# Kinds of encoder-decoders, as model_type in config.json, whose encoder can be used alone.
ENCODER_OF = ("t5", "mt5", "umt5")

# Endings of tensors that go with quantized weights.
SCALES = re.compile(r"(scales?|zeros|zero_points?|scale_inv|absmax|qweight)$")

# Weights that change those of a model. Heads, which are left out, have other names.
ADAPTERS = re.compile(r"(^|[._])(lora|adapter)")

NUMBER = re.compile(r"\.\d+(?=\.)")  # of a block
BUFFERS = {"position_ids", "token_type_ids", "inv_freq", "masked_bias"}
LONGEST = 2**20  # most tokens of a text, for any model


class Backbone:
    """A loaded encoder with its tokenizer: tokens in, hidden states out.

    Attributes
    ----------
    forward : ForwardPass
        The forward pass, with matrix products in ``dtype`` on ``device``.
    n_layers, width, n_positions, max_length : int
        Number of transformer blocks; hidden size d; most tokens of a text, special ones
        included, that the model has positions for; the smaller of this and the tokenizer's
        limit.
    n_embedded : int
        Number of tokens that the model embeds. A text with any other token is refused.
    special_ids, added_ids, words : ndarray of int
        Special tokens, and tokens that the model does not embed; the same without the unknown
        token; all other tokens.
    empty_ids : ndarray of int
        Tokens that are no content of a text.
    unknown_id : int or None
        The token for words that are not in the vocabulary.
    is_causal : bool
        Each token attends only to itself and the tokens before it, as in decoders.
    precision : str
        The dtype; in half precision also the device, because devices round differently.
    """

    def __init__(
        self,
        folder: Path,
        fingerprint: str,
        tokenizer: Any,
        module: Any,
        device: torch.device,
        dtype: torch.dtype,
    ):
        self.folder, self.fingerprint, self.device = folder, fingerprint, device
        self.tokenizer, self.module = tokenizer, module
        self.n_embedded = _n_embedded(folder, tokenizer, module)
        self.n_layers = module.config.num_hidden_layers
        self.width = module.config.hidden_size
        self.n_positions = _n_positions(module)
        self.max_length = min(_limit_of(tokenizer), self.n_positions)
        if (added := max(self.ids_of(""))) >= self.n_embedded:
            raise ValueError(
                f"its tokenizer puts the token number {added} around each text, but the model "
                f"embeds {self.n_embedded} tokens. Save both to one folder again"
            )
        beyond = range(self.n_embedded, len(tokenizer))
        self.special_ids = np.array(sorted({*tokenizer.all_special_ids, *beyond}))
        # A decoder with a vocabulary for every word may name its end-of-text token here.
        unknown = tokenizer.unk_token_id
        self.unknown_id = None if unknown in self.ids_of("") else unknown
        self.empty_ids = empty_ids(tokenizer)
        # The tokenizer counts the unknown token as special, but it replaces a word of the text.
        self.added_ids = self.special_ids[self.special_ids != self.unknown_id]
        self.words = np.setdiff1d(np.arange(len(tokenizer)), self.special_ids)
        if len(self.words) < 2:
            raise ValueError("its tokenizer has no vocabulary. Save it again")
        self.precision = str(dtype).removeprefix("torch.")
        if dtype != torch.float32 and device.type != "cpu":
            self.precision += f" on {device.type}"
        marks = [i for i in tokenizer.all_special_ids if i < self.n_embedded]
        proof = proof_of(module, self.words, marks, self.n_positions)
        self.is_causal = proof.is_causal
        with quiet_transformers():
            way = fastest_way(module, proof)
        self.forward = ForwardPass(module, way, device, moved(module, way, device, dtype))
        check(self.forward, proof, tolerance=0.2)

    def not_embedded(self, token: int, text: str) -> ValueError:
        """Error for a text with a token that the model does not embed."""
        return ValueError(
            f"The text {text!r:.60} has the token {self._tokens()[token]!r}, which the model "
            f"in {str(self.folder)!r} does not embed. Leave the text out, or save the model "
            "again after resize_token_embeddings."
        )

    def ids_of(self, text: str) -> list[int]:
        """Token ids of a text, special ones included."""
        return tokenize(self.tokenizer, [text], LONGEST).ids[0]

    def frame(self, prompt: str) -> Frame:
        """Tokens around each text: those of a prompt, and special ones."""
        return frame_of(self.tokenizer, prompt)

    def require_zipf(self) -> None:
        """Raise a ValueError if the vocabulary is not sorted by frequency."""
        self.zipf  # noqa: B018, computed here

    @property
    def has_zipf(self) -> bool:
        """Whether the vocabulary is sorted by frequency."""
        try:
            self.require_zipf()
        except ValueError:
            return False
        return True

    @cached_property
    def zipf(self) -> np.ndarray:
        """Zipf weight of every token id, of shape (vocabulary,)."""
        return zipf_weights(self._tokens(), self.special_ids.tolist())

    @cached_property
    def marks_continuations(self) -> bool:
        """Whether tokens that continue a word are marked, rather than those that begin one."""
        tokens = self.tokenizer.get_vocab()
        # A vocabulary may have a few tokens with the marks of the other kind.
        n_continue, n_begin = (
            sum(token.startswith(mark) for token in tokens) for mark in (CONTINUES, SPACES)
        )
        return n_continue > n_begin

    def _tokens(self) -> list[str]:
        return self.tokenizer.convert_ids_to_tokens(list(range(len(self.tokenizer))))


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
                "its config.json declares add_cross_attention, which transformers gives to "
                "decoders alone. Delete the entry, or declare is_decoder, as it was trained"
            )
        auto = AutoModelForTextEncoding if config.model_type in ENCODER_OF else AutoModel
        # Load in float32, so that no constant is rounded. transformers 4.56 renamed the option.
        options = local | {
            "dtype" if hasattr(config, "dtype") else "torch_dtype": torch.float32
        }
        options |= {"config": config, "use_safetensors": True, "output_loading_info": True}
        module, report = auto.from_pretrained(folder, **options)
        if (name := module.main_input_name) != "input_ids":
            raise ValueError(f"its input is {name}, not texts")
        tokenizer = AutoTokenizer.from_pretrained(folder, **local)
    _check_weights(module, report)
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
    if dropped := _dropped(report["unexpected_keys"], module):
        raise ValueError(
            f"it has weights that {type(module).__name__} of transformers does not use, such "
            f"as {dropped[0]!r} ({len(dropped)} in all), so its vectors would be others. Use "
            "the release of transformers that wrote it, or correct its config.json"
        )
    kind = getattr(module.config, "position_embedding_type", None) or ""
    names = [name for name, _ in module.named_parameters()]
    if kind.startswith("relative_key") and not any("distance" in name for name in names):
        raise ValueError(
            f"its config.json declares position_embedding_type={kind!r}, which this release of "
            "transformers does not compute. Use the release that wrote it"
        )
    # In a weight of attention, NaN can give vectors that are finite and wrong.
    named = module.named_parameters()
    if bad := [name for name, weight in named if not _is_finite(weight)]:
        raise ValueError(
            f"its weight {bad[0]!r} has entries that are not finite. Save it again"
        )


def _dropped(names: Iterable[str], module: Any) -> list[str]:
    """Return the weights inside the parts of a model that it does not use, or of more blocks.

    Heads for other tasks lie outside these parts. Some buffers were once saved as weights.
    """
    parts = {name for name, _ in module.named_children()}
    inner = [name.removeprefix(f"{module.base_model_prefix}.") for name in names]
    used = (f".{name}" for name, _ in module.named_parameters() if NUMBER.search(name))
    in_blocks = tuple({NUMBER.sub(".0", name) for name in used})
    return sorted(
        name
        for name in inner
        if (name.partition(".")[0] in parts and name.rpartition(".")[2] not in BUFFERS)
        or NUMBER.sub(".0", f".{name}").endswith(in_blocks)  # under any prefix
        or ADAPTERS.search(name)
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
    # A sum costs a tenth of the time; only if it overflows, the maximum decides.
    total = weight.sum(dtype=torch.float32)
    return bool(torch.isfinite(total) or torch.isfinite(weight.abs().max()))


def _n_embedded(folder: Path, tokenizer: Any, module: Any) -> int:
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


def _limit_of(tokenizer: Any) -> int:
    """Return the most tokens of a text by the tokenizer; without a limit it declares 1e30."""
    longest, least = tokenizer.model_max_length, tokenizer.num_special_tokens_to_add()
    if not isinstance(longest, int | float) or not longest > least:
        raise ValueError(
            f"its tokenizer_config.json has model_max_length={longest!r}; expected a number "
            f"above {least}, the number of its special tokens"
        )
    return int(min(longest, LONGEST))


def _n_positions(module: Any) -> int:
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
