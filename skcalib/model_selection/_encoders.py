"""Layers and poolings of a `BertEncoder` to search, or another encoder as it is."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import product
from numbers import Number
from tempfile import TemporaryDirectory
from typing import Any

from sklearn.base import clone

from skcalib.compat import check_params
from skcalib.encoders.bert_encoder import BertEncoder, backbone_of
from skcalib.encoders.pipelines import as_encoder
from skcalib.encoders.recipe import POOLINGS, resolve_layers

TRIED = "mean", "cls", "max", "zipf"  # unless others are given
OF_DECODERS = ("mean_without_first",)

State = tuple[str, int | tuple[int, ...] | None]  # pooling and layers


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

    states: Sequence[State] = [("as given", None)]
    verbose = False

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder

    def searching(self, texts: list[str]) -> AbstractContextManager[None]:
        """Do nothing: the encoder itself may keep vectors."""
        return nullcontext()

    def fitted(self, state: State, texts: Sequence[str]) -> Any:
        """Return an encoder fitted on texts; a ``FrozenEstimator`` stays as it is."""
        return clone(self._encoder).fit(texts, None)

    def finished(self, encoder: Any) -> Any:
        """Return the fitted encoder."""
        return encoder


class HiddenStates:
    """The layers of a `BertEncoder`, each under every pooling.

    If the folder declares a pooling and no others are given, its last layer with this pooling
    is the only state, since the model was fine-tuned for it. During a search, one pass of each
    text through the model computes all states. They are kept in the encoder's ``memory``, or
    else in a temporary folder.
    """

    def __init__(self, encoder: BertEncoder, pooling: Any, layers: Any, verbose: bool) -> None:
        self._encoder = clone(encoder)
        self._own = {name: getattr(encoder, name) for name in ("memory", "verbose")}
        self._kept: set[str] = set()  # texts whose vectors a search keeps
        self.verbose = bool(verbose or encoder.verbose)
        declared = clone(encoder).fit([""]).declared_
        # If the folder has unsupported modules, the user must have chosen a pooling.
        first = "auto" if declared.pooling in POOLINGS else encoder.pooling
        shipped = _at((first, -1), encoder).fit([""])
        self.states = [(shipped.pooling_, shipped.layers_[0])]
        if pooling is not None or layers is not None or not declared.declares_pooling:
            tried = TRIED + OF_DECODERS * backbone_of(shipped).is_causal
            others = _states(shipped, tried if pooling is None else _listed(pooling), layers)
            self.states = list(dict.fromkeys([*self.states, *others]))

    @contextmanager
    def searching(self, texts: list[str]) -> Iterator[None]:
        """Keep vectors of these texts, if any, under all layers and poolings."""
        if not texts:
            yield
            return
        with folder_for(self._encoder.memory) as store:
            self._search = clone(self._encoder).set_params(memory=store, verbose=self.verbose)
            self._kept = set(texts)
            with quiet():
                _at(self.states[0], self._search).fit_transform(texts)
            yield

    def fitted(self, state: State, texts: Sequence[str]) -> BertEncoder:
        """Return a fitted encoder with this layer and pooling, for these texts."""
        # All layers of many more texts would fill the temporary folder.
        of_search = self._kept.issuperset(texts)
        encoder = _at(state, self._search if of_search else self._encoder)
        return encoder.set_params(verbose=self.verbose and not of_search).fit(list(texts))

    def finished(self, encoder: BertEncoder) -> BertEncoder:
        """Return the fitted encoder with the parameters of the given one."""
        return encoder.set_params(**self._own)


def states_of(encoder: Any, pooling: Any, layers: Any, verbose: bool) -> AsGiven | HiddenStates:
    """Return what to search: layers and poolings of a `BertEncoder`, or another encoder."""
    encoder = as_encoder(encoder)
    if isinstance(encoder, BertEncoder):
        return HiddenStates(encoder, pooling, layers, verbose)
    if pooling is not None or layers is not None:
        raise ValueError(
            f"CalibrationSearch got pooling or layers with a {type(encoder).__name__}; only a "
            "BertEncoder has them. Leave them out."
        )
    return AsGiven(encoder)


def _at(state: State, encoder: BertEncoder) -> BertEncoder:
    """Return an unfitted copy of the encoder with this layer and pooling."""
    pooling, layers = state
    return clone(encoder).set_params(pooling=pooling, layers=layers)


def _listed(values: Any) -> list[Any]:
    """Values to try: those of a sequence, or a single one."""
    return [values] if isinstance(values, str | Number) else list(values)


def _states(shipped: BertEncoder, poolings: Sequence[str], layers: Any) -> list[State]:
    """Pairs of pooling and layer to try."""
    backbone = backbone_of(shipped)
    n_layers = backbone.n_layers
    listed = [*range(n_layers + 1)] if layers is None else _listed(layers)
    for state in product(poolings, listed):
        check_params(_at(state, shipped))
    resolved = [resolve_layers(layer, n_layers) for layer in listed]
    indices = [several if len(several) > 1 else several[0] for several in resolved]
    roles = {"auto": shipped.pooling_} | ({"cls": "last"} if backbone.is_causal else {})
    named = (roles.get(name, name) for name in poolings)
    poolings = [
        name for name in named if backbone.tokens.has_zipf or not POOLINGS[name].by_frequency
    ]
    # The embedding of a special token is the same in every text.
    return [s for s in product(poolings, indices) if s[1] or POOLINGS[s[0]].token is None]
