"""Hidden states of plain transformers, a text at a time."""

from functools import lru_cache

import torch
from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding


@lru_cache(maxsize=4)
def _model(folder):
    is_t5 = AutoConfig.from_pretrained(folder).model_type in ("t5", "mt5", "umt5")
    auto = AutoModelForTextEncoding if is_t5 else AutoModel
    model = auto.from_pretrained(folder, torch_dtype=torch.float32).eval()
    model.config.use_cache = False  # that of Gemma 2 in old releases is too short
    return model


def all_states(folder, ids):
    """All hidden states of a row of tokens, (n_layers + 1, n_tokens, d)."""
    with torch.inference_mode():
        output = _model(str(folder))(torch.tensor([ids]), output_hidden_states=True)
    return torch.cat([*output.hidden_states[:-1], output.last_hidden_state]).numpy()


def states_of(folder, ids, layer=-1):
    """Hidden states of one layer, (n_tokens, d)."""
    return all_states(folder, ids)[layer]
