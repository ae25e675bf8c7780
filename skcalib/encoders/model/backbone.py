"""The frozen transformer: read, checked, and loaded once per process."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from skcalib.encoders.model.files import fingerprint
from skcalib.encoders.model.forward import ForwardPass, first_position, in_short, proof_length
from skcalib.encoders.model.tokens import tokenise
from skcalib.encoders.model.zipf import counted_weights, mapped_counts, zipf_weights
from skcalib.utils.texts import as_texts

# Kinds of encoder-decoders, as model_type in config.json, whose encoder is a model of its own.
ENCODER_OF = ("t5", "mt5", "umt5")

LONGEST = 2**20  # most tokens of a text, whatever the model

_lock = threading.Lock()

_process = os.getpid()


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
    unknown_id : int or None
        The token for words that are not in the vocabulary.
    is_causal : bool
        Each token attends only to itself and the tokens before it, as in decoders.
    """

    def __init__(
        self, folder: Path, fingerprint: str, device: torch.device, dtype: torch.dtype
    ):
        self.folder, self.fingerprint = folder, fingerprint
        self.device, self.dtype = device, dtype
        self.tokenizer, self.module = read(folder)
        self.n_embedded = _n_embedded(folder, self.tokenizer, self.module)
        self.n_layers = self.module.config.num_hidden_layers
        self.width = self.module.config.hidden_size
        self.n_positions = _n_positions(self.module)
        longest = self.tokenizer.model_max_length
        least = self.tokenizer.num_special_tokens_to_add()
        if not isinstance(longest, int | float) or not longest > least:
            raise ValueError(
                f"its tokenizer_config.json has model_max_length={longest!r}; it needs a "
                f"number above {least}, that of its special tokens"
            )
        # A tokenizer without a limit declares 1e30.
        self.max_length = int(min(longest, self.n_positions))
        beyond = range(self.n_embedded, len(self.tokenizer))
        self.special_ids = np.array(sorted({*self.tokenizer.all_special_ids, *beyond}))
        # A decoder with a vocabulary for every word may name its end-of-text token here.
        unknown = self.tokenizer.unk_token_id
        self.unknown_id = None if unknown in self.ids_of("") else unknown
        # The tokenizer counts the unknown token as special, but it replaces a word of the text.
        self.added_ids = self.special_ids[self.special_ids != self.unknown_id]
        self.words = np.setdiff1d(np.arange(len(self.tokenizer)), self.special_ids)
        if len(self.words) < 2:
            raise ValueError("its tokenizer has no vocabulary. Save it again")
        self.is_causal = self._is_causal(*self.words[:2])
        longest = min(proof_length(self.module), self.n_positions)
        drawn = np.random.default_rng(0).choice(self.words, (3, longest))
        # Models may treat padding and mask tokens, and the tokens after them, specially.
        marks = [i for i in self.tokenizer.all_special_ids if i < self.n_embedded]
        special = np.append(marks[:7], drawn[2])
        texts = [drawn[0], drawn[1, :10], special[: len(drawn[1, :10])]]
        states = [self._plain_states(text) for text in texts]
        with quiet_transformers():
            self.forward = ForwardPass(self.module, texts, states, causal=self.is_causal)
        self.forward.prepare(device, dtype)
        self.forward.check(texts, states, tolerance=0.2)

    def _is_causal(self, one: int, two: int) -> bool:
        """Whether the first token does not attend to the last."""
        first = [self._plain_states(np.array([one, one, last]))[-1, 0] for last in (one, two)]
        return torch.equal(*first)

    def _plain_states(self, ids: np.ndarray) -> torch.Tensor:
        """All hidden states of one text, of shape (n_layers + 1, length, d)."""
        with torch.inference_mode():
            output = self.module(torch.from_numpy(ids[None]), output_hidden_states=True)
        if getattr(output, "hidden_states", None) is None:
            raise ValueError("it is an encoder-decoder, or has no hidden states of tokens")
        states = [*output.hidden_states[:-1], output.last_hidden_state]
        shapes = [tuple(state.shape) for state in states]
        if shapes != [(1, len(ids), self.width)] * (self.n_layers + 1):
            raise ValueError("it does not have one hidden state per token in every layer")
        return torch.cat(states)

    def check_embedded(self, ids: Sequence[Any], rows: Any, texts: Sequence[str]) -> None:
        """Refuse windows, of the texts in these rows, with a token that is not embedded."""
        for number, row in zip(map(max, ids), rows, strict=True):
            if number >= self.n_embedded:
                text = texts[row]
                raise ValueError(
                    f"The text {text!r:.60} has the token {self._tokens()[number]!r}, which "
                    f"the model in {str(self.folder)!r} does not embed. Leave the text out, or "
                    "save the model again after resize_token_embeddings."
                )

    def ids_of(self, text: str) -> list[int]:
        """Token ids of a text, special ones included."""
        [ids], *_ = tokenise(self.tokenizer, [text], LONGEST)
        return ids

    @property
    def has_zipf(self) -> bool:
        """Whether the vocabulary is sorted by frequency."""
        try:
            return self.zipf is not None
        except ValueError:
            return False

    @cached_property
    def zipf(self) -> np.ndarray:
        """Zipf weight of every token id, of shape (vocabulary,)."""
        return zipf_weights(self._tokens(), self.special_ids.tolist())

    def weights_by(self, counts: Mapping[str, float] | Sequence[str]) -> np.ndarray:
        """Zipf weights, (vocabulary,), from counts of tokens, or from texts to count."""
        if isinstance(counts, Mapping):
            values = mapped_counts(counts, self._tokens())
        else:
            texts = as_texts(counts, caller="token_counts")
            ids, *_ = tokenise(self.tokenizer, texts, self.max_length)
            values = np.bincount(np.concatenate(ids), minlength=len(self.tokenizer))
        return counted_weights(values, self.special_ids.tolist())

    def with_zipf(self, weights: np.ndarray) -> Backbone:
        """Return the same model with other Zipf weights, and a fingerprint that covers them."""
        other = copy.copy(self)
        other.zipf = weights
        content = self.fingerprint.encode() + weights.tobytes()
        other.fingerprint = hashlib.sha256(content).hexdigest()
        return other

    def _tokens(self) -> list[str]:
        return self.tokenizer.convert_ids_to_tokens(list(range(len(self.tokenizer))))

    @property
    def precision(self) -> str:
        """The dtype; in half precision also the device, because devices round differently."""
        name = str(self.dtype).removeprefix("torch.")
        alike = self.dtype == torch.float32 or self.device.type == "cpu"
        return name if alike else f"{name} on {self.device.type}"


def load(folder: Path, device: torch.device, dtype: torch.dtype) -> Backbone:
    """Return the model of a folder; this process loads it once for each state of its files."""
    global _process
    if _process != os.getpid():
        # Threads do not survive a fork, and OpenMP would wait for its threads forever. In a
        # pool of processes, one thread per process is also the best choice.
        torch.set_num_threads(1)
        _process = os.getpid()
    with _lock:
        return _load(folder, fingerprint(folder), device, dtype)


@lru_cache(maxsize=4)
def _load(folder: Path, key: str, device: torch.device, dtype: torch.dtype) -> Backbone:
    try:
        backbone = Backbone(folder, key, device, dtype)
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
        auto = AutoModelForTextEncoding if config.model_type in ENCODER_OF else AutoModel
        # Load in float32, so that no constant is rounded. transformers 4.56 renamed the option.
        options = local | {
            "dtype" if hasattr(config, "dtype") else "torch_dtype": torch.float32
        }
        options |= {"config": config, "use_safetensors": True, "output_loading_info": True}
        module, report = auto.from_pretrained(folder, **options)
        if (name := module.main_input_name) != "input_ids":
            raise ValueError(f"its input is {name}, such as images or sound, not texts")
        tokenizer = AutoTokenizer.from_pretrained(folder, **local)
    # A pooler without weights is common (it is not used here). Any other missing weight would
    # be drawn at random and make every vector silently wrong.
    missing = sorted(k for k in report["missing_keys"] if not k.startswith("pooler."))
    if missing:
        raise ValueError(
            f"its weights lack {len(missing)} tensors of {type(module).__name__}, such as "
            f"{missing[0]!r}. Save it again"
        )
    # In a weight of attention, NaN can give vectors that are finite and wrong.
    named = module.named_parameters()
    if bad := [name for name, weight in named if not _is_finite(weight)]:
        raise ValueError(
            f"its weight {bad[0]!r} has entries that are not finite. Save it again"
        )
    return tokenizer, module.eval().requires_grad_(False)


def _is_finite(weight: torch.Tensor) -> bool:
    # A sum costs a tenth; only where it overflows, a closer look decides.
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


def _n_positions(module: Any) -> int:
    """Most tokens that a model has positions for, and at most a million."""
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
