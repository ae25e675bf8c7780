"""What `calibrate` searches: layers and poolings of a `BertEncoder`, or another encoder."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import product
from numbers import Number
from tempfile import TemporaryDirectory
from typing import Any

from sklearn.base import clone

from skcalib.encoders.any_encoder import fitted_on
from skcalib.encoders.bert_encoder import BertEncoder, resolve_layers
from skcalib.encoders.recipe import POOLINGS
from skcalib.encoders.text_encoder import TextEncoder
from skcalib.utils.base import warn
from skcalib.utils.sklearn_compat import check_params

TRIED = "mean", "cls", "max", "zipf"  # unless others are given

State = tuple[str, int | tuple[int, ...] | None]  # pooling and layers


def folder_for(memory: Any) -> AbstractContextManager[Any]:
    """Return where to keep vectors: ``memory``, or a temporary folder if it is None."""
    if memory is not None:
        return nullcontext(memory)
    return TemporaryDirectory(prefix="skcalib-", ignore_cleanup_errors=True)


class AsGiven:
    """Any encoder of texts: its own vectors are its only state."""

    states: Sequence[State] = [("as given", None)]
    is_declared = True
    verbose = False
    own: Mapping[str, Any] = {}  # parameters that a search changes

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder

    @contextmanager
    def searching(self, texts: list[str], given: list[str]) -> Iterator[None]:
        """Warn how many texts the model will encode if its store has all given ones."""
        if isinstance(self._encoder, TextEncoder) and self._encoder.memory is not None:
            lacking = self._encoder._n_lacking
            if not lacking(given) and (n := lacking(texts)):
                warn(
                    "The store has all texts, but calibrate also needs fragments of them, of "
                    f"which the store lacks {n}: the model will encode these. Set a smaller "
                    "n_texts for fewer fragments."
                )
        yield

    def fitted(self, state: State, texts: Sequence[str]) -> Any:
        """Return an encoder fitted on texts."""
        return fitted_on(self._encoder, texts)


class HiddenStates:
    """The layers of a `BertEncoder`, each under every pooling.

    If the folder declares a pooling and no others are given, its last layer with this pooling
    is the only state, since the model was fine-tuned for it. During a search, one pass of each
    text through the model computes all states. They are kept in the encoder's ``memory``, or
    else in a temporary folder.
    """

    def __init__(
        self, encoder: BertEncoder, pooling: Any, layers: Any, memory: Any, verbose: bool | None
    ) -> None:
        self._encoder = clone(encoder)
        if memory is not None:
            self._encoder.set_params(memory=memory)
        self.own = {name: getattr(self._encoder, name) for name in ("memory", "verbose")}
        shows = sys.stderr.isatty() if verbose is None else verbose
        self.verbose = bool(shows or encoder.verbose)
        declared = clone(encoder).fit([""]).declared_
        # If the folder has unsupported modules, the user must have chosen a pooling.
        first = "auto" if declared.pooling in POOLINGS else encoder.pooling
        shipped = _at((first, -1), encoder).fit([""])
        self.states = [(shipped.pooling_, shipped.layers_[0])]
        self.is_declared = pooling is None and layers is None and declared.declares_pooling
        if not self.is_declared:
            others = _states(shipped, TRIED if pooling is None else _listed(pooling), layers)
            self.states = list(dict.fromkeys([*self.states, *others]))

    @contextmanager
    def searching(self, texts: list[str], given: list[str]) -> Iterator[None]:
        """Keep vectors of these texts under all layers and poolings."""
        with folder_for(self._encoder.memory) as store:
            self._search = clone(self._encoder).set_params(memory=store, verbose=self.verbose)
            self._kept = set(texts)
            _at(self.states[0], self._search).fit_transform(texts)
            yield

    def fitted(self, state: State, texts: Sequence[str]) -> BertEncoder:
        """Return a fitted encoder with this layer and pooling, for these texts."""
        # All layers of many more texts would fill the temporary folder.
        of_search = self._kept.issuperset(texts)
        encoder = _at(state, self._search if of_search else self._encoder)
        return encoder.set_params(verbose=self.verbose and not of_search).fit(list(texts))


def _at(state: State, encoder: BertEncoder) -> BertEncoder:
    """Return an unfitted copy of the encoder with this layer and pooling."""
    pooling, layers = state
    return clone(encoder).set_params(pooling=pooling, layers=layers)


def _listed(values: Any) -> list[Any]:
    """Values to try: those of a sequence, or a single one."""
    return [values] if isinstance(values, str | Number) else list(values)


def _states(shipped: BertEncoder, poolings: Sequence[str], layers: Any) -> list[State]:
    """Pairs of pooling and layer to try."""
    backbone = shipped._backbone()
    n_layers = backbone.n_layers
    asked = [*range(n_layers + 1)] if layers is None else _listed(layers)
    for state in product(poolings, asked):
        check_params(_at(state, shipped))
    resolved = [resolve_layers(layer, n_layers) for layer in asked]
    indices = [several if len(several) > 1 else several[0] for several in resolved]
    roles = {"auto": shipped.pooling_} | ({"cls": "last"} if backbone.is_causal else {})
    named = (roles.get(name, name) for name in poolings)
    poolings = [name for name in named if backbone.has_zipf or not POOLINGS[name].by_frequency]
    # The embedding of a special token is the same in every text.
    return [s for s in product(poolings, indices) if s[1] or POOLINGS[s[0]].token is None]
