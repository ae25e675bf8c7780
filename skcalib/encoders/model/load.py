"""Load a model: its tokenizer, its weights, and the forward pass that runs it.

A folder whose vectors would be wrong is refused. A model whose texts may share a row is run
that way; this is tried once, on a few texts.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from skcalib.compat import attention_of
from skcalib.encoders.model.folder import fingerprint
from skcalib.encoders.model.forward import (
    ForwardPass,
    by_longest,
    first_position,
    in_short,
    windows_of,
)
from skcalib.encoders.model.tokens import LONGEST, Tokens
from skcalib.process import caches
from skcalib.process.devices import plain_torch, resolve_device

# Kinds of encoder-decoders, as model_type in config.json, whose encoder can be used alone.
ENCODER_OF = ("t5", "mt5", "umt5")
BUFFERS = {"position_ids", "token_type_ids", "inv_freq", "masked_bias"}  # once saved as weights
TRIAL = 520  # most tokens of a text that is tried: more than most windows of encoders


def load(folder: Path, device: str, dtype: str) -> Backbone:
    """Return a model; this process loads it once for each state of its files."""
    key, place = fingerprint(folder), resolve_device(device)
    return caches.model_of(_loaded, folder, key, place, getattr(torch, dtype))


def _loaded(folder: Path, key: str, device: torch.device, dtype: torch.dtype) -> Backbone:
    """Load the model of a folder whose fingerprint is ``key``."""
    try:
        with plain_torch(device):
            tokenizer, module = read(folder)
            backbone = Backbone(folder, key, tokenizer, module, device, dtype)
        if fingerprint(folder) != key:
            raise ValueError("its files changed while they were read. Call again")
    except (MemoryError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:  # transformers raises any kind for a broken or hostile model
        raise ValueError(
            f"The model in {str(folder)!r} cannot be used in {dtype} on {device.type}: "
            f"{in_short(error)}. BertEncoder accepts encoders such as BERT or RoBERTa, "
            "decoders such as GPT-2 or Llama, and the encoder of T5, with tokenizer and "
            "safetensors weights, as save_pretrained writes them. Code that comes with a model "
            "is never run."
        ) from error
    return backbone


class Backbone:
    """A loaded model, with matrix products in ``dtype`` on ``device``."""

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
        self.module = module
        self.n_layers, self.width = module.config.num_hidden_layers, module.config.hidden_size
        self.n_positions = n_positions(module)  # most tokens of a text, special ones included
        # Without a limit a tokenizer declares 1e30.
        self.max_length = int(min(tokenizer.model_max_length, self.n_positions))
        self.tokens = Tokens(tokenizer, n_embedded(folder, tokenizer, module))
        texts, states, self.is_causal = _trial_of(module, self.tokens, self.n_positions)
        with quiet_transformers():
            self.forward = _forward_pass(module, texts, states, self.is_causal)
        self.forward.move(device, dtype)
        _compare(self.forward, texts, states, tolerance=0.2)
        self.precision = str(dtype).removeprefix("torch.")
        # Devices round half precision differently.
        if dtype != torch.float32 and device.type != "cpu":
            self.precision += f" on {device.type}"


def _trial_of(
    module: Any, tokens: Tokens, n_positions: int
) -> tuple[list[np.ndarray], list[torch.Tensor], bool]:
    """Return ids and states of three texts run alone, and whether the model is causal."""
    # The first text exceeds the windows of the model, unless they are long.
    windows = [n + 8 for n in windows_of(module) if n + 8 <= TRIAL]
    shape = 3, min(max([16, *windows]), n_positions)
    drawn = np.random.default_rng(0).choice(tokens.words, shape)
    # Models may treat padding and mask tokens, and the tokens after them, specially.
    marks = [i for i in tokens.tokenizer.all_special_ids if i < tokens.n_embedded]
    special = np.append(marks[:7], drawn[2])
    texts = [drawn[0], drawn[1, :10], special[: len(drawn[1, :10])]]
    # In a decoder the first token does not attend to the last.
    one, two = tokens.words[:2]
    first = [_states_of(module, np.array([one, one, last]))[-1, 0] for last in (one, two)]
    return texts, [_states_of(module, text) for text in texts], torch.equal(*first)


def _states_of(module: Any, ids: np.ndarray) -> torch.Tensor:
    """All hidden states of one text, of shape (n_layers + 1, length, d)."""
    with torch.inference_mode():
        output = module(torch.from_numpy(ids[None]), output_hidden_states=True)
    if getattr(output, "hidden_states", None) is None:
        raise ValueError("it is an encoder-decoder, or has no hidden states of tokens")
    states = [*output.hidden_states[:-1], output.last_hidden_state]
    n_layers, d = module.config.num_hidden_layers, module.config.hidden_size
    if [tuple(state.shape) for state in states] != [(1, len(ids), d)] * (n_layers + 1):
        raise ValueError("it does not have one hidden state per token in every layer")
    return torch.cat(states)


def _forward_pass(
    module: Any, texts: list[np.ndarray], states: list[torch.Tensor], is_causal: bool
) -> ForwardPass:
    """Return a pass in which texts share a row, or else one of batches of a single length."""
    longest: float = 0
    if attention_of(module) and not by_longest(module):
        # Windows longer than the first text are not tried. Some begin at half their length.
        untried = [n for n in windows_of(module) if n >= len(texts[0])]
        longest = max(min(untried, default=np.inf) / 2, len(texts[0]))
    forward = ForwardPass(module, longest, is_causal)
    if longest:
        # A row may have more tokens than the model has positions.
        n = max(0, getattr(module.config, "max_position_embeddings", None) or 0)
        n_texts = min(n, 2**16) // len(texts[0]) + 1
        row = [texts[0]] * n_texts, [states[0][:1]] * n_texts
        with contextlib.suppress(Exception):  # any kind, if it does not accept the arguments
            _compare(forward, texts, states)
            _compare(forward, *row)
            return forward
    forward.longest_packed, forward.hooked = 0, False
    _compare(forward, texts, states)
    return forward


def _compare(
    forward: ForwardPass,
    texts: list[np.ndarray],
    states: list[torch.Tensor],
    tolerance: float = 1e-4,
) -> None:
    """Refuse a pass unless each text gets its states, to a share of the largest entry."""
    layers = range(len(states[0]))
    computed: list[torch.Tensor] = []
    for batch in [texts] if forward.longest_packed else [texts[:1], texts[1:]]:
        lengths = np.array([len(text) for text in batch])
        kept: dict[int, torch.Tensor] = {}
        forward(np.concatenate(batch), lengths, layers, kept.__setitem__)
        stacked = torch.stack([kept[layer] for layer in layers]).float().cpu()
        computed += stacked.split(lengths.tolist(), dim=1)
    for c, e in zip(computed, states, strict=True):
        atol = tolerance * e.nan_to_num(0, 0, 0).abs().max().item()
        if not torch.allclose(c, e, rtol=0, atol=atol, equal_nan=True):
            raise ValueError(
                "its hidden states of a text differ from those of the text alone in float32, "
                "since they depend on other texts, on chance, or on the dtype"
            )


def read(folder: Path) -> tuple[Any, Any]:
    """Read tokenizer and module of a folder, in float32, without running code from it."""
    from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding, AutoTokenizer

    # Threads of the tokenizers library save little and disturb forks. The user's setting wins.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with quiet_transformers():
        config = AutoConfig.from_pretrained(folder, **local)
        if (n_layers := getattr(config, "num_hidden_layers", 0)) > 1000:  # fills the memory
            raise ValueError(f"its config.json has {n_layers} layers; expected up to 1,000")
        config.use_cache = False  # only generation needs the keys and values of tokens
        config.return_dict = True
        auto = AutoModelForTextEncoding if config.model_type in ENCODER_OF else AutoModel
        # Load in float32, so that no constant is rounded.
        options = local | {"dtype": torch.float32, "output_loading_info": True}
        options |= {"config": config, "use_safetensors": True}
        module, report = auto.from_pretrained(folder, **options)
        if (name := module.main_input_name) != "input_ids":
            raise ValueError(f"its input is {name}, not texts")
        tokenizer = AutoTokenizer.from_pretrained(folder, **local)
    _check_weights(module, report)
    return tokenizer, module.eval().requires_grad_(False)


def _check_weights(module: Any, report: dict[str, Any]) -> None:
    """Refuse weights that are missing, or left over inside the model."""
    # A pooler without weights is common (it is not used here). Any other missing weight would
    # be drawn at random and make every vector silently wrong.
    missing = sorted(k for k in report["missing_keys"] if not k.startswith("pooler."))
    if missing:
        raise ValueError(
            f"its weights lack {len(missing)} tensors of {type(module).__name__}, such as "
            f"{missing[0]!r}. Save it again"
        )
    parts = {module.base_model_prefix, *(name for name, _ in module.named_children())}
    unread = sorted(
        name
        for name in report["unexpected_keys"]
        if name.partition(".")[0] in parts and name.rpartition(".")[2] not in BUFFERS
    )
    if unread:
        raise ValueError(
            f"it has weights that {type(module).__name__} of transformers does not read, such "
            f"as {unread[0]!r} ({len(unread)} in all); expected only its own and those of a "
            "head, such as a classifier. If they belong to the model, use the release of "
            "transformers that wrote it, or correct its config.json; otherwise load it by "
            "AutoModel, and save it to another folder"
        )


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
    # Rows without a token pad the table, or are reserved for later tokens: in the models that
    # we know, less than a hundredth. Tokens that were added later may have no row.
    if not rows - max(128, rows // 16) <= len(tokenizer) or tokenizer.vocab_size > rows:
        raise ValueError(
            f"its tokenizer has {len(tokenizer)} tokens, but the model embeds {rows}. Save "
            "both to one folder again, after resize_token_embeddings if necessary"
        )
    return rows


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
