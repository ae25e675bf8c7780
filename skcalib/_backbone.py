"""The frozen transformer: checked, loaded once per process, run layer by layer."""

from __future__ import annotations

import contextlib
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from skcalib._forks import fork_lock
from skcalib._model_files import fingerprint
from skcalib._packed_attention import NAME, register
from skcalib._packed_linear import pack_linears
from skcalib._zipf import zipf_weights

__all__ = ["Backbone", "load"]

MAX_LOADED = 4  # models kept in memory per process, least recently used out first

_lock = fork_lock()
_loaded: OrderedDict[tuple, Backbone] = OrderedDict()


def _after_fork() -> None:
    """Make the copies of a forked process usable."""
    # Threads do not survive a fork, and OpenMP waits for its own forever. One thread per
    # process is also what a pool of processes wants.
    torch.set_num_threads(1)
    for key in list(_loaded):
        if key[1].type != "cpu":
            del _loaded[key]  # a GPU cannot be used by both sides of a fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _LastLayerReached(Exception):
    """Leaves the forward pass early; what comes after is not needed."""


class Backbone:
    """A loaded encoder: tokens in, hidden states out, one layer at a time.

    Parameters
    ----------
    folder : Path
    fingerprint : str
    device : torch.device
    dtype : torch.dtype
        Of the matrix products.

    Attributes
    ----------
    n_layers : int
        Number of transformer blocks; hidden states are numbered 0 to `n_layers`.
    width : int
        Hidden size, d.
    max_length : int
        Most tokens of a text, special ones included.
    packs : bool
        Whether texts of different lengths may go together.
    """

    def __init__(
        self, folder: Path, fingerprint: str, device: torch.device, dtype: torch.dtype
    ):
        self.tokenizer, module, report = _read(folder)
        # A pooler without weights is common (it is not used here); any other weight made
        # up at random would make every vector silently wrong.
        missing = sorted(k for k in report["missing_keys"] if not k.startswith("pooler."))
        if missing:
            raise ValueError(
                f"The weights in {folder} lack {len(missing)} tensors of "
                f"{type(module).__name__}, such as {missing[0]!r}. Save the model again "
                "with save_pretrained."
            )
        _check_vocabulary(folder, self.tokenizer, module)
        self.folder = folder
        self.fingerprint = fingerprint
        self.module = module.eval().requires_grad_(False).float()
        self.dtype = dtype
        self.n_layers = module.config.num_hidden_layers
        self.width = module.config.hidden_size
        self._first_position = _first_position(module)
        self.max_length = _max_length(module, self.tokenizer, self._first_position)
        self.special_ids = np.array(sorted(self.tokenizer.all_special_ids))
        # Unknown tokens are special to the tokenizer, but stand for the text's own words.
        self.added_ids = self.special_ids[self.special_ids != self.tokenizer.unk_token_id]
        self._zipf: np.ndarray | None = None
        # One forward pass at a time: torch parallelises inside it, and the hooks below
        # serve one caller.
        self.running = fork_lock()
        self._visit: Callable[[int, torch.Tensor], None] | None = None
        if blocks := _blocks(module, self.n_layers):
            self._hook(blocks)
        self.device = torch.device("cpu")
        self._autocast = False
        self._try_out()
        self._choose_path(hooked=bool(blocks))
        self.device = device
        # In bfloat16 the hidden states stay so between the products. float16 could overflow,
        # and other models mix in float32: there only the products are in half precision.
        if self.packs and dtype == torch.bfloat16:
            for parameter in module.parameters():
                parameter.data = parameter.data.to(dtype)
        module.to(device)
        packed = device.type == "cpu" and pack_linears(module, dtype)
        own_dtype = next(module.parameters()).dtype
        self._autocast = dtype not in (torch.float32, own_dtype) and not packed

    def _try_out(self) -> None:
        """Refuse what is no encoder: one hidden state for each token, each of all tokens."""
        ids = np.setdiff1d(np.arange(len(self.tokenizer)), self.special_ids)[:2].tolist()
        if len(ids) < 2:
            raise ValueError(
                f"The tokenizer in {self.folder} has no vocabulary. Save it again."
            )
        reason = "an encoder-decoder" if self.module.config.is_encoder_decoder else ""
        firsts = []
        for last in () if reason else ids:
            with _explained(self.folder, "run on token ids"), torch.inference_mode():
                tokens = torch.tensor([[ids[0], ids[0], last]])
                output = self.module(tokens, output_hidden_states=True)
                states = [*output.hidden_states[:-1], output.last_hidden_state]
            shapes = [tuple(state.shape) for state in states]
            if shapes != [(1, 3, self.width)] * (self.n_layers + 1):
                reason = "one without a hidden state for each token in every layer"
            firsts.append(states[-1][:, 0])
        if not reason and torch.equal(*firsts):
            reason = "a decoder, whose tokens see only those before them"
        if reason:
            raise ValueError(
                f"The model is {reason} (model_type={self.module.config.model_type!r}). "
                "BertEncoder pools the hidden states of encoders, such as BERT, RoBERTa, "
                "DistilBERT, MPNet or ELECTRA; choose one."
            )

    def _choose_path(self, *, hooked: bool) -> None:
        """Take the fastest way to run the model that agrees with its plain forward pass.

        Tried on one input: the layers of a model may be elsewhere than its blocks seem to be,
        and texts may see their neighbours in a row, or even in a batch.
        """
        words = np.setdiff1d(np.arange(len(self.tokenizer)), self.special_ids)
        drawn = np.random.default_rng(0).choice(words, (3, min(8, self.max_length)))
        texts = [torch.from_numpy(ids) for ids in (drawn[0], drawn[1, :5], drawn[2, :5])]
        with _explained(self.folder, "run on token ids"), torch.inference_mode():
            plain = [self.module(t[None], output_hidden_states=True) for t in texts]
            expected = [torch.cat([*p.hidden_states[:-1], p.last_hidden_state]) for p in plain]
        usual = self.module.config._attn_implementation
        for self.packs in (True, False):
            if not _set_attention(self.module, NAME if self.packs else usual):
                continue
            for self._has_hooks in (True, False) if hooked else (False,):
                if self._agrees(texts, expected):
                    return
        raise ValueError(
            f"The hidden states that {type(self.module).__name__} gives a text depend on the "
            "texts beside it, or on chance. Choose another model."
        )

    def _agrees(self, texts: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
        """Whether texts together have the hidden states, (layers, length, d), of each alone."""
        layers = range(self.n_layers + 1)
        found: list[torch.Tensor] = []
        for batch in [texts] if self.packs else [texts[:1], texts[1:]]:
            states: dict[int, torch.Tensor] = {}
            lengths = np.array([len(text) for text in batch])
            try:
                self.hidden_states(torch.cat(batch), lengths, set(layers), states.__setitem__)
                stacked = torch.stack([states[i] for i in layers])
            except Exception:  # whatever a model makes of arguments that it does not know
                return False
            found += stacked.split(lengths.tolist(), dim=1)
        for f, e in zip(found, expected, strict=True):
            atol = 1e-4 * e.nan_to_num(0, 0, 0).abs().max().item()
            if not torch.allclose(f, e, rtol=0, atol=atol, equal_nan=True):
                return False
        return True

    def _hook(self, blocks) -> None:
        blocks[0].register_forward_pre_hook(self._before_first_block, with_kwargs=True)
        for i, block in enumerate(blocks[:-1]):
            block.register_forward_hook(self._after_block(i + 1))

    def _before_first_block(self, block, args, kwargs):
        if self._visit is not None:
            self._visit(0, args[0] if args else kwargs["hidden_states"])

    def _after_block(self, layer: int):
        def hook(block, args, output):
            if self._visit is not None:
                self._visit(layer, output[0] if isinstance(output, tuple) else output)

        return hook

    @property
    def has_zipf(self) -> bool:
        """Whether the vocabulary is sorted by frequency."""
        try:
            return self.zipf is not None
        except ValueError:
            return False

    @property
    def zipf(self) -> np.ndarray:
        """Zipf weight of every token id, of shape (vocabulary,)."""
        if self._zipf is None:
            tokens = self.tokenizer.convert_ids_to_tokens(list(range(len(self.tokenizer))))
            self._zipf = zipf_weights(tokens, self.special_ids.tolist())
        return self._zipf

    def hidden_states(
        self,
        ids: torch.Tensor,
        lengths: np.ndarray,
        layers: set[int],
        receive: Callable[[int, torch.Tensor], None],
    ) -> None:
        """Hand the hidden states of ``layers`` to ``receive``, running no further than needed.

        Parameters
        ----------
        ids : Tensor of shape (N,)
            Tokens of the texts, one text after the other.
        lengths : ndarray of shape (B,)
            Tokens of each text. Those of one length stand together; unless `packs`, all are of
            one length.
        layers : set of int
            Indices from 0, the output of the embedding layer, to `n_layers`.
        receive : callable
            Called as ``receive(layer, hidden)`` with hidden of shape (N, d).
        """
        last = max(layers)

        def give(layer, hidden):
            receive(layer, hidden.reshape(len(ids), -1))

        def visit(layer, hidden):
            if layer in layers:
                give(layer, hidden)
            if layer == last:
                raise _LastLayerReached

        if self.packs:
            inputs = {"input_ids": ids[None], **self._packing(lengths)}
        else:
            inputs = {"input_ids": ids.view(len(lengths), -1)}
        cast = torch.autocast(self.device.type, self.dtype, enabled=self._autocast)
        with self.running, torch.inference_mode(), cast:
            self._visit = visit if self._has_hooks else None
            try:
                output = self.module(**inputs, output_hidden_states=not self._has_hooks)
                for layer in sorted(layers - {self.n_layers}) if not self._has_hooks else ():
                    give(layer, output.hidden_states[layer])
                # The last one comes from the model itself, which may normalise it.
                if last == self.n_layers:
                    give(last, output.last_hidden_state)
            except _LastLayerReached:
                pass
            finally:
                self._visit = None

    def _packing(self, lengths: np.ndarray) -> dict[str, Any]:
        """Arguments that tell the texts of a row apart."""
        starts = np.cumsum(lengths) - lengths
        positions = np.arange(lengths.sum()) - np.repeat(starts, lengths)
        ends = np.flatnonzero(np.diff(lengths, append=0))  # of the runs of one length
        runs = zip(np.diff(ends, prepend=-1).tolist(), lengths[ends].tolist(), strict=True)
        positions += self._first_position
        return {
            "position_ids": torch.from_numpy(positions)[None].to(self.device),
            "packed_runs": list(runs),
        }

    def check_finite(self, vectors: np.ndarray, texts: Sequence[str], rows: np.ndarray) -> None:
        """Refuse vectors, of the texts in these rows, that are not finite."""
        finite = np.isfinite(vectors).reshape(len(rows), -1).all(axis=1)
        for row in rows[~finite]:
            raise ValueError(
                f"The vector of the text {texts[row]!r:.60} is not finite: the model in "
                f"{str(self.folder)!r} overflows dtype={str(self.dtype)[6:]!r}, or that of the "
                "VectorStore, or has weights that are not finite. Try dtype='float32'."
            )


def load(folder: Path, device: torch.device, dtype: torch.dtype) -> Backbone:
    """Return the model of a folder, loading it on the first call of this process.

    Raises
    ------
    ValueError
        If it is refused, cannot be read, or changes meanwhile.
    """
    key = (fingerprint(folder), device, dtype)
    with _lock:
        if key not in _loaded:
            backbone = Backbone(folder, key[0], device, dtype)
            if fingerprint(folder) != key[0]:
                raise ValueError(
                    f"The files in {str(folder)!r} changed while they were read. Call again "
                    "once they are complete."
                )
            _loaded[key] = backbone
            while len(_loaded) > MAX_LOADED:
                _loaded.popitem(last=False)
        _loaded.move_to_end(key)
        return _loaded[key]


def _read(folder: Path):
    """Tokenizer, module and loading report of a folder; no code of its own is run."""
    from transformers import AutoModel, AutoTokenizer

    options = {"local_files_only": True, "trust_remote_code": False}
    with _explained(folder, "loaded"), _quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(folder, **options)
        module, report = AutoModel.from_pretrained(
            folder, use_safetensors=True, output_loading_info=True, **options
        )
    return tokenizer, module, report


@contextlib.contextmanager
def _explained(folder: Path, done: str):
    """Name the model in whatever a broken, hostile or unusual one makes transformers raise."""
    try:
        yield
    except Exception as error:
        raise ValueError(
            f"The model in {str(folder)!r} could not be {done}: {type(error).__name__}: "
            f"{(str(error).strip() or 'no details').splitlines()[0].rstrip('.')}. "
            "It takes an encoder that transformers knows, with its tokenizer, as "
            "save_pretrained writes them; code that comes with a model is not run."
        ) from error


def _check_vocabulary(folder: Path, tokenizer, module) -> None:
    """Refuse a tokenizer that is not the model's, cut short, or made up without its files."""
    names = set(tokenizer.vocab_files_names.values()) - {"tokenizer.json"}
    has = {name for name in (*names, "tokenizer.json") if (folder / name).is_file()}
    whole = tokenizer.is_fast and "tokenizer.json" in has
    if tokenizer.vocab_files_names and not whole and not (names and names <= has):
        raise ValueError(
            f"The folder {str(folder)!r} lacks the vocabulary of a {type(tokenizer).__name__}, "
            f"{' and '.join(sorted(names - has)) or 'tokenizer.json'}: transformers would make "
            "one up. Save the tokenizer there, too, or fetch the whole model again."
        )
    with _explained(folder, "given tokens"):
        rows = module.get_input_embeddings().weight.shape[0]
    # Rows without a token pad the table to a multiple, of 128 as a rule, or are kept for later
    # ones: below a hundredth in the models that we know.
    if not rows - max(128, rows // 16) <= len(tokenizer) <= rows:
        raise ValueError(
            f"The tokenizer in {folder} has {len(tokenizer)} tokens, but the model embeds "
            f"{rows}: they do not belong together, or a vocabulary was cut short. Save both "
            "again into one folder, where need be after resize_token_embeddings."
        )


def _blocks(module, n_layers: int):
    """List of a model's transformer blocks; None where they are shared, as in ALBERT."""
    for child in module.modules():
        if isinstance(child, torch.nn.ModuleList) and len(child) == n_layers:
            return child
    return None


def _first_position(module) -> int:
    """Position of a text's first token; RoBERTa's relatives start after that of padding."""
    table = getattr(getattr(module, "embeddings", None), "position_embeddings", None)
    padding_idx = getattr(table, "padding_idx", None)
    return 0 if padding_idx is None else padding_idx + 1


def _max_length(module, tokenizer, first_position: int) -> int:
    """Most tokens a model has positions for, and its tokenizer allows."""
    positions = getattr(module.config, "max_position_embeddings", None)
    longest, least = tokenizer.model_max_length, tokenizer.num_special_tokens_to_add()
    if not isinstance(longest, int | float) or not longest > least:
        raise ValueError(
            f"The tokenizer's model_max_length is {longest!r}; it takes a number above "
            f"{least}, that of its special tokens. Correct it in tokenizer_config.json."
        )
    return int(min(positions - first_position if positions else longest, longest))


def _set_attention(module, name: str) -> bool:
    """Whether a model takes the attention of that name, from now on."""
    if module.config._attn_implementation == name:
        return True
    if name == NAME and not register():
        return False
    try:
        with _quiet_transformers():
            module.set_attn_implementation(name)
    except (AttributeError, ValueError, TypeError, KeyError):
        return False  # an older transformers, or a model that does not look it up
    return module.config._attn_implementation == name


@contextlib.contextmanager
def _quiet_transformers():
    """No progress bars and load reports from transformers; what matters is checked here."""
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
