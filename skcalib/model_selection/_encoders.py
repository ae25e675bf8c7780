"""What `calibrate` searches: layers and poolings of a `BertEncoder`, or another encoder."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import product
from numbers import Number
from tempfile import TemporaryDirectory
from typing import Any

from sklearn.base import clone

from skcalib._base import is_fitted, warn
from skcalib._encoder.any_encoder import fitted_on
from skcalib._encoder.declared import declared
from skcalib._encoder.estimator import BertEncoder, resolve_layers
from skcalib._encoder.text_encoder import TextEncoder
from skcalib._sklearn_compat import check_params
from skcalib._store.poolings import POOLINGS

TRIED = "mean", "cls", "max", "zipf"  # unless others are asked for

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

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder
        self.learns = not (isinstance(encoder, TextEncoder) or is_fitted(encoder))

    def announce(self, texts: list[str], with_fragments: list[str]) -> None:
        """Warn how many fragments a client will be asked for, whose store has all texts."""
        if not isinstance(self._encoder, TextEncoder) or self._encoder.memory is None:
            return
        lacking = self._encoder._n_lacking
        if not lacking(texts) and (n := lacking(with_fragments)):
            warn(
                f"The store has all texts, but calibrate also encodes fragments of them, of "
                f"which the store lacks {n}: the model will be asked for these. A smaller "
                "n_texts asks for fewer."
            )

    @contextmanager
    def searching(self, texts: Sequence[str]) -> Iterator[None]:
        """Prepare for a search on these texts."""
        yield

    def fitted(self, state: State, texts: Sequence[str]) -> Any:
        """Return an encoder fitted on texts."""
        return fitted_on(self._encoder, texts)

    def finish(self, encoder: Any) -> Any:
        """Return the encoder unchanged."""
        return encoder


class HiddenStates:
    """The layers of a `BertEncoder`, each under every pooling.

    A folder that declares its pooling holds a model that was fine-tuned for it: unless layers
    or poolings are asked for, its own are the only state.

    During a search, one pass of each text through the model computes all of them. They are kept
    in the encoder's ``memory``, or in a temporary folder if it has none.
    """

    def __init__(
        self, encoder: BertEncoder, pooling: Any, layers: Any, memory: Any, verbose: bool | None
    ) -> None:
        self.learns = False
        self._encoder = clone(encoder)
        if memory is not None:
            self._encoder.set_params(memory=memory)
        shows = sys.stderr.isatty() if verbose is None else verbose
        self.verbose = bool(shows or encoder.verbose)
        self.is_declared = pooling is None and layers is None and _declares(self._encoder)
        poolings = TRIED if pooling is None else _listed(pooling)
        states = _states(self._encoder, poolings, layers)
        self.states = states[:1] if self.is_declared else states

    @contextmanager
    def searching(self, texts: Sequence[str]) -> Iterator[None]:
        """Keep vectors of these texts under all layers and poolings."""
        with folder_for(self._encoder.memory) as store:
            self._search = clone(self._encoder).set_params(memory=store, verbose=self.verbose)
            self._kept = set(texts)
            _at(self.states[0], self._search).fit_transform(list(texts))
            yield

    def fitted(self, state: State, texts: Sequence[str]) -> BertEncoder:
        """Return a fitted encoder with this layer and pooling, for these texts."""
        # All layers of many more texts would fill the temporary folder.
        of_search = self._kept.issuperset(texts)
        encoder = _at(state, self._search if of_search else self._encoder)
        return encoder.set_params(verbose=self.verbose and not of_search).fit(list(texts))

    def finish(self, encoder: BertEncoder) -> BertEncoder:
        """Reset the parameters of an encoder that the search changed."""
        kept = self._encoder
        return encoder.set_params(memory=kept.memory, verbose=kept.verbose)


def _at(state: State, encoder: BertEncoder) -> BertEncoder:
    """Return an unfitted copy of the encoder with this layer and pooling."""
    pooling, layers = state
    return clone(encoder).set_params(pooling=pooling, layers=layers)


def _listed(values: Any) -> list[Any]:
    """Values to try: those of a sequence, or a single one."""
    return [values] if isinstance(values, str | Number) else list(values)


def _declares(encoder: BertEncoder) -> bool:
    """Whether the folder of a model declares its pooling."""
    return declared(clone(encoder).fit([""])._backbone().folder).declares_pooling


def _states(template: BertEncoder, poolings: Sequence[str], layers: Any) -> list[State]:
    """Pairs of pooling and layer to try, the raw model's pair first."""
    # A folder whose other modules nobody applies leaves the choice of a pooling to the user.
    told = declared(clone(template).fit([""])._backbone().folder).pooling
    chosen = "auto" if told in POOLINGS else template.pooling
    shipped = _at((chosen, -1), template).fit([""])
    backbone = shipped._backbone()
    n_layers = backbone.n_layers
    asked = [*range(n_layers + 1)] if layers is None else _listed(layers)
    for state in product(poolings, asked):
        check_params(_at(state, template))
    resolved = [resolve_layers(layer, n_layers) for layer in asked]
    indices = [several if len(several) > 1 else several[0] for several in resolved]
    roles = {"auto": shipped.pooling_} | ({"cls": "last"} if backbone.is_causal else {})
    named = (roles.get(name, name) for name in poolings)
    poolings = [name for name in named if backbone.has_zipf or not POOLINGS[name].by_frequency]
    # The embedding of a special token is the same in every text.
    states = [s for s in product(poolings, indices) if s[1] or POOLINGS[s[0]].token is None]
    return list(dict.fromkeys([(shipped.pooling_, n_layers), *states]))
