"""The fastest way to run a model that gives the right hidden states.

A way is right if it reproduces the plain forward pass on a few texts. Not every way does:
layers may not be the blocks of a model, and texts may attend to other texts of a row, or even
of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch

from skcalib.compat import attention_of
from skcalib.encoders.model.forward import ForwardPass, Way, by_longest, in_short, windows_of
from skcalib.encoders.model.packed import pack_mpnet

# Most tokens of the text that shows how a model attends: more than most windows of encoders.
LONGEST = 520


class Proof(NamedTuple):
    """Three texts, the last two of equal length, and the hidden states of each text alone."""

    texts: list[np.ndarray]  # token ids
    states: list[torch.Tensor]  # hidden states, (n_layers + 1, length, d), in float32
    is_causal: bool  # each token attends only to itself and the tokens before it


def proof_of(module: Any, words: np.ndarray, marks: Sequence[int], n_positions: int) -> Proof:
    """Draw texts from the ids of words and of special tokens, and run each alone."""
    # The first text exceeds the windows of the model, unless they are long.
    windows = [n + 8 for n in windows_of(module) if n + 8 <= LONGEST]
    drawn = np.random.default_rng(0).choice(words, (3, min(max([16, *windows]), n_positions)))
    # Models may treat padding and mask tokens, and the tokens after them, specially.
    special = np.append(marks[:7], drawn[2])
    texts = [drawn[0], drawn[1, :10], special[: len(drawn[1, :10])]]
    # In a decoder the first token does not attend to the last.
    one, two = words[:2]
    first = [_plain_states(module, np.array([one, one, last]))[-1, 0] for last in (one, two)]
    states = [_plain_states(module, text) for text in texts]
    return Proof(texts, states, torch.equal(*first))


def _plain_states(module: Any, ids: np.ndarray) -> torch.Tensor:
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


def fastest_way(module: Any, proof: Proof) -> Way:
    """Return the fastest way to run a module that is right; replace parts of an MPNet."""
    attention, n_proved = attention_of(module), len(proof.texts[0])
    # Windows longer than the first text are not proved. Some begin at half their length.
    unproved = min((n for n in windows_of(module) if n >= n_proved), default=np.inf)
    packings = (max(unproved / 2, n_proved), 0) if attention else (0,)
    if attention:
        pack_mpnet(module)
    faults = []
    for longest, hooked in product(packings, (True, False)):
        way, fault = Way(longest, hooked, attention, proof.is_causal), ""
        if 0 < longest < np.inf:  # some texts are packed and others are not
            fault = _fault_of(module, way._replace(longest_packed=0), proof)
        if not (fault := fault or _fault_of(module, way, proof)):
            return way
        faults.append(fault)
    raise ValueError(
        "its hidden states of a text depend on other texts or on chance. Each way to run it "
        f"failed: {'; '.join(dict.fromkeys(faults))}"
    )


def _fault_of(module: Any, way: Way, proof: Proof) -> str:
    """Return what is wrong with a way to run a model, or ""."""
    forward = ForwardPass(module, way, torch.device("cpu"))
    try:
        check(forward, proof, tolerance=1e-4)
        if forward.longest_packed:
            _check_row(forward, proof)
    except Exception as error:  # any kind, if the model does not accept the arguments
        return in_short(error)
    return ""


def _check_row(forward: ForwardPass, proof: Proof) -> None:
    """Refuse a model that depends on the whole row, which a few short texts do not show."""
    if by_longest(forward.module):
        raise ValueError(
            "rotations of rope_type='longrope' depend on the longest text of a row"
        )
    # Some models cannot embed a row that has more tokens than they have positions.
    positions = getattr(forward.module.config, "max_position_embeddings", None) or 0
    if not forward.hooked and positions > 4096:
        raise ValueError("without hooks a row as long as its positions takes too long")
    text, states = proof.texts[0], proof.states[0]
    n_texts = min(max(0, positions), 2**16) // len(text) + 1
    row = proof._replace(texts=[text] * n_texts, states=[states[:1]] * n_texts)
    check(forward, row, tolerance=1e-4)


def check(forward: ForwardPass, proof: Proof, *, tolerance: float) -> None:
    """Raise a ValueError unless texts that are run together get their hidden states.

    The states may be those of the first layers alone. An entry may deviate by ``tolerance``
    times the largest entry of its text.
    """
    texts, layers = proof.texts, range(len(proof.states[0]))
    computed: list[torch.Tensor] = []
    for batch in [texts] if forward.longest_packed else [texts[:1], texts[1:]]:
        lengths = np.array([len(text) for text in batch])
        kept: dict[int, torch.Tensor] = {}
        forward(np.concatenate(batch), lengths, layers, kept.__setitem__)
        stacked = torch.stack([kept[layer] for layer in layers]).float().cpu()
        computed += stacked.split(lengths.tolist(), dim=1)
    for c, e in zip(computed, proof.states, strict=True):
        atol = tolerance * e.nan_to_num(0, 0, 0).abs().max().item()
        if not torch.allclose(c, e, rtol=0, atol=atol, equal_nan=True):
            raise ValueError(
                "its hidden states differ from those of a text alone with dtype='float32'"
            )
