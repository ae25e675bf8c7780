"""Layers, poolings and prompts of a `BertEncoder` to search, or another encoder as it is."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import product
from numbers import Number
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sklearn.base import clone

from skcalib.callbacks import part_task
from skcalib.compat import check_params
from skcalib.encoders.bert_encoder import BertEncoder, backbone_of
from skcalib.encoders.pipelines import as_encoder
from skcalib.encoders.recipe import POOLINGS, resolve_layers

TRIED = "mean", "cls", "max", "zipf"  # unless others are given
OF_DECODERS = ("mean_without_first",)


class State(NamedTuple):
    """Which vectors of a model are used."""

    pooling: str = "as given"
    layers: int | tuple[int, ...] | None = None
    prompt: str | None = None


def folder_for(memory: Any) -> AbstractContextManager[Any]:
    """Return where to keep vectors: ``memory``, or a temporary folder if it is None."""
    if memory is not None:
        return nullcontext(memory)
    return TemporaryDirectory(prefix="skcalib-", ignore_cleanup_errors=True)


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore warnings of parts of texts: the last fit, on all texts, repeats what holds."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?!The store)", UserWarning)
        yield


class AsGiven:
    """Any encoder of texts: its own vectors are its only state."""

    states: Sequence[State] = [State()]

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder

    def searching(self, texts: list[str]) -> AbstractContextManager[None]:
        """Do nothing: the encoder itself may keep vectors."""
        return nullcontext()

    def at(self, state: State, texts: Sequence[str]) -> Any:
        """Return an encoder to fit on texts; a ``FrozenEstimator`` stays as it is."""
        return clone(self._encoder)

    def finish(self, encoder: Any) -> None:
        """Do nothing: the encoder has its parameters."""


class HiddenStates:
    """Layers of a `BertEncoder`, each under several poolings, with each of several prompts.

    The first state is the encoder as it is given, with the first prompt. During a search, one
    pass of each text through the model for each prompt computes all states. They are kept in
    the encoder's ``memory``, or else in a temporary folder.
    """

    def __init__(self, encoder: BertEncoder, pooling: Any, layers: Any, prompt: Any) -> None:
        self._encoder = clone(encoder)
        self._given = {name: getattr(encoder, name) for name in ("memory", "verbose")}
        self._kept: set[str] = set()  # texts whose vectors a search keeps
        self._prompts = [encoder.prompt] if prompt is None else _listed(prompt)
        # Each prompt is checked against the model before any work.
        first, *_ = [clone(encoder).set_params(prompt=one).fit([""]) for one in self._prompts]
        tried = [(first.pooling_, _one_or_several(first.layers_))]
        if pooling is not None or layers is not None or not first.declared_.declares_pooling:
            usual = TRIED + OF_DECODERS * backbone_of(first).is_causal
            poolings = usual if pooling is None else _listed(pooling)
            tried += _tried(first, poolings, layers)
        states = [
            State(pooling, layer, text)
            for (pooling, layer), text in product(tried, self._prompts)
        ]
        self.states = list(dict.fromkeys(states))

    @contextmanager
    def searching(self, texts: list[str]) -> Iterator[None]:
        """Keep vectors of these texts, if any, in all states."""
        if not texts:
            yield
            return
        with folder_for(self._encoder.memory) as store:
            self._search = clone(self._encoder).set_params(memory=store)
            self._kept = set(texts)
            with quiet(), part_task("encode", n_subtasks=len(self._prompts)):
                for prompt in self._prompts:
                    encoder = _at(self.states[0]._replace(prompt=prompt), self._search)
                    with part_task("encode-prompt", encoder):
                        encoder.fit_transform(texts)
            self._search.set_params(verbose=False)  # from now on, it only reads
            yield

    def at(self, state: State, texts: Sequence[str]) -> BertEncoder:
        """Return an encoder in this state, to fit on these texts."""
        # All layers of many more texts would fill the temporary folder.
        of_search = self._kept.issuperset(texts)
        return _at(state, self._search if of_search else self._encoder)

    def finish(self, encoder: BertEncoder) -> None:
        """Give a fitted encoder the parameters of the given one."""
        encoder.set_params(**self._given)


def states_of(encoder: Any, pooling: Any, layers: Any, prompt: Any) -> AsGiven | HiddenStates:
    """Return what to search: states of a `BertEncoder`, or another encoder."""
    encoder = as_encoder(encoder)
    if isinstance(encoder, BertEncoder):
        return HiddenStates(encoder, pooling, layers, prompt)
    if any(given is not None for given in (pooling, layers, prompt)):
        raise ValueError(
            "CalibrationSearch got pooling, layers or prompt with a "
            f"{type(encoder).__name__}; only a BertEncoder has them. Leave them out."
        )
    return AsGiven(encoder)


def _at(state: State, encoder: BertEncoder) -> BertEncoder:
    """Return an unfitted copy of the encoder in this state."""
    return clone(encoder).set_params(**state._asdict())


def _listed(values: Any) -> list[Any]:
    """Values to try: those of a sequence, or a single one."""
    return [values] if isinstance(values, str | Number) else list(values)


def _one_or_several(layers: tuple[int, ...]) -> int | tuple[int, ...]:
    return layers if len(layers) > 1 else layers[0]


def _tried(
    first: BertEncoder, poolings: Sequence[str], layers: Any
) -> list[tuple[str, int | tuple[int, ...]]]:
    """Pairs of pooling and layers to try."""
    backbone = backbone_of(first)
    given = [*range(backbone.n_layers + 1)] if layers is None else _listed(layers)
    for pooling, layer in product(poolings, given):
        check_params(_at(State(pooling, layer), first))
    indices = [_one_or_several(resolve_layers(layer, backbone.n_layers)) for layer in given]
    roles = {"auto": first.pooling_} | ({"cls": "last"} if backbone.is_causal else {})
    poolings = [roles.get(name, name) for name in poolings]
    if not backbone.tokens.has_zipf:
        poolings = [name for name in poolings if not POOLINGS[name].by_frequency]
    # The embedding of a special token is the same in every text.
    return [
        (pooling, layer)
        for pooling, layer in product(poolings, indices)
        if layer or POOLINGS[pooling].token is None
    ]
