"""Load a model: its tokenizer, its weights, and the forward pass that runs it.

A folder whose vectors would be wrong is refused. A model whose texts may share a row is run
that way; this is tried once, on a few texts.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import safe_open

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

# Endings of tensors that go with quantized weights.
SCALES = re.compile(r"(scales?|zeros|zero_points?|scale_inv|absmax|qweight)$")
NUMBER = re.compile(r"\.\d+(?=\.)")  # of a block
BUFFERS = {"position_ids", "token_type_ids", "inv_freq", "masked_bias"}  # once saved as weights
FORMER = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}

TRIAL = 520  # most tokens of a text that is tried: more than most windows of encoders


def load(folder: Path, device: str, dtype: str, *, lower_case: bool = False) -> Backbone:
    """Return a model; this process loads it once for each state of its files.

    With ``lower_case``, its tokenizer lowercases texts first.
    """
    key, place = fingerprint(folder), resolve_device(device)
    return caches.model_of(_loaded, folder, key, place, getattr(torch, dtype), lower_case)


def _loaded(
    folder: Path,
    key: str,
    device: torch.device,
    dtype: torch.dtype,
    lower_case: bool,
) -> Backbone:
    """Load the model of a folder whose fingerprint is ``key``."""
    try:
        with plain_torch(device):
            tokenizer, module = read(folder)
            name = key
            if lower_case:
                lowercase(tokenizer)
                name = hashlib.sha256(f"{key} in lower case".encode()).hexdigest()
            backbone = Backbone(folder, name, tokenizer, module, device, dtype)
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
    """A loaded model.

    Attributes
    ----------
    tokens : Tokens
        Its tokenizer.
    forward : ForwardPass
        The forward pass, with matrix products in ``dtype`` on ``device``.
    n_layers, width, n_positions, max_length : int
        Number of transformer blocks; hidden size d; most tokens of a text, special ones
        included, that the model has positions for; the smaller of this and the tokenizer's
        limit.
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
        self.module = module
        self.n_layers, self.width = module.config.num_hidden_layers, module.config.hidden_size
        self.n_positions = n_positions(module)
        self.max_length = min(limit_of(tokenizer), self.n_positions)
        self.tokens = Tokens(tokenizer, n_embedded(folder, tokenizer, module))
        trial = _trial_of(module, self.tokens, self.n_positions)
        self.is_causal = trial.is_causal
        with quiet_transformers():
            self.forward = _forward_pass(module, trial)
        self.forward.move(device, dtype)
        _compare(self.forward, trial, tolerance=0.2)
        self.precision = str(dtype).removeprefix("torch.")
        if dtype != torch.float32 and device.type != "cpu":
            self.precision += f" on {device.type}"


class _Trial(NamedTuple):
    """Three texts, the last two of equal length, and the hidden states of each text alone."""

    texts: list[np.ndarray]  # token ids
    states: list[torch.Tensor]  # hidden states, (n_layers + 1, length, d), in float32
    is_causal: bool  # each token attends only to itself and the tokens before it


def _trial_of(module: Any, tokens: Tokens, n_positions: int) -> _Trial:
    """Draw texts of words and special tokens, and run each alone."""
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
    return _Trial(texts, [_states_of(module, text) for text in texts], torch.equal(*first))


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


def _forward_pass(module: Any, trial: _Trial) -> ForwardPass:
    """Return the forward pass in which texts share a row, if each has the states it has alone.

    Otherwise a batch has texts of one length. Models whose texts mix there, too, are refused.
    """
    longest: float = 0
    if attention_of(module):
        # Windows longer than the first text are not tried. Some begin at half their length.
        untried = min(
            (n for n in windows_of(module) if n >= len(trial.texts[0])), default=np.inf
        )
        longest = max(untried / 2, len(trial.texts[0]))
    forward = ForwardPass(module, longest, trial.is_causal)
    if longest and _fault_of(forward, trial):
        longest, forward.hooked = 0, False
    if longest < np.inf:  # some texts share no row
        forward.longest_packed = 0
        if fault := _fault_of(forward, trial):
            raise ValueError(
                "its hidden states of a text depend on other texts or on chance, or cannot be "
                f"computed: {fault}"
            )
        forward.longest_packed = longest
    return forward


def _fault_of(forward: ForwardPass, trial: _Trial) -> str:
    """Return what is wrong with a way to run a model, or ""."""
    try:
        _compare(forward, trial, tolerance=1e-4)
        if forward.longest_packed:
            _check_row(forward, trial)
    except Exception as error:  # any kind, if the model does not accept the arguments
        return in_short(error)
    return ""


def _check_row(forward: ForwardPass, trial: _Trial) -> None:
    """Refuse a model that depends on the whole row, which a few short texts do not show."""
    if by_longest(forward.module):
        raise ValueError(
            "rotations of rope_type='longrope' depend on the longest text of a row"
        )
    # Some models cannot embed a row that has more tokens than they have positions.
    positions = getattr(forward.module.config, "max_position_embeddings", None) or 0
    if not forward.hooked and positions > 4096:
        raise ValueError("without hooks a row as long as its positions takes too long")
    text, states = trial.texts[0], trial.states[0]
    n_texts = min(max(0, positions), 2**16) // len(text) + 1
    row = trial._replace(texts=[text] * n_texts, states=[states[:1]] * n_texts)
    _compare(forward, row, tolerance=1e-4)


def _compare(forward: ForwardPass, trial: _Trial, *, tolerance: float) -> None:
    """Raise a ValueError unless texts that are run together get their hidden states.

    The states may be those of the first layers alone. An entry may deviate by ``tolerance``
    times the largest entry of its text.
    """
    texts, layers = trial.texts, range(len(trial.states[0]))
    computed: list[torch.Tensor] = []
    for batch in [texts] if forward.longest_packed else [texts[:1], texts[1:]]:
        lengths = np.array([len(text) for text in batch])
        kept: dict[int, torch.Tensor] = {}
        forward(np.concatenate(batch), lengths, layers, kept.__setitem__)
        stacked = torch.stack([kept[layer] for layer in layers]).float().cpu()
        computed += stacked.split(lengths.tolist(), dim=1)
    for c, e in zip(computed, trial.states, strict=True):
        atol = tolerance * e.nan_to_num(0, 0, 0).abs().max().item()
        if not torch.allclose(c, e, rtol=0, atol=atol, equal_nan=True):
            raise ValueError(
                "its hidden states differ from those of a text alone with dtype='float32'"
            )


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
    """Return the weights inside a model that it does not read; others are those of a head.

    No weight of a head has the name of a weight inside the model, or of one in further blocks.
    """
    parts = {name for name, _ in module.named_children()}
    used = (f".{name}" for name, _ in module.named_parameters() if name.count(".") > 1)
    endings = tuple({NUMBER.sub(".0", name) for name in used})
    prefix = f"{module.base_model_prefix}."
    return sorted(
        name
        for name in names
        if name.rpartition(".")[2] not in BUFFERS
        and (
            name.startswith(prefix)
            or name.partition(".")[0] in parts
            or NUMBER.sub(".0", name).endswith(endings)
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
    others = [] if inner.normalizer is None else [inner.normalizer]
    inner.normalizer = Sequence([Lowercase(), *others])


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
