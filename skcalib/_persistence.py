"""Versioned pickles: an estimator refuses a state it does not understand."""

from typing import Any

__all__ = ["VersionedState"]


class VersionedState:
    """Mixin that stamps an estimator's pickled state with the version of its layout.

    A class raises ``_state_version`` when the meaning of its fitted attributes changes.
    Older layouts are refused rather than guessed at: silently wrong vectors cost more
    than a refit.
    """

    _state_version = 1

    def __getstate__(self):
        state: Any = super().__getstate__()
        return {**state, "_state_version": self._state_version}

    def __setstate__(self, state):
        state = dict(state)
        version = state.pop("_state_version", None)
        if version != self._state_version:
            raise ValueError(
                f"This pickled {type(self).__name__} has state version {version!r}; the "
                f"installed skcalib reads version {self._state_version}. Load it with the "
                "skcalib release that wrote it, or fit again and pickle anew."
            )
        self.__dict__.update(state)
