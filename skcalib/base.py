"""What estimators share: pickles with a version, dtypes, progress, warnings, imports."""

import contextlib
import functools
import inspect
import os
import warnings
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import sklearn
from sklearn.base import TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import TransformerTags, get_tags
from sklearn.utils.validation import check_is_fitted

from skcalib.compat import CallbackSupportMixin

# Warnings skip frames in these files: packages, cached properties.
INNER = (
    str(Path(__file__).parent) + os.sep,
    *(str(Path(str(package.__file__)).parent) + os.sep for package in (sklearn, joblib, np)),
    contextlib.__file__,
    functools.__file__,
)

# For ``skops.io.load(trusted=)`` and ``mlflow.sklearn.log_model(skops_trusted_types=)``.
# Estimators enter themselves; the others are what they keep when fitted.
TRUSTED_TYPES = [
    "scipy.sparse._csc.csc_array",
    "scipy.sparse._csc.csc_matrix",
    "scipy.sparse._csr.csr_array",
    "scipy.sparse._csr.csr_matrix",
    "skcalib.calibration.map.LinearMap",
    "skcalib.calibration.moments.Moments",
    "skcalib.calibration.strength.Strength",
    "skcalib.calibration.whitening.Axes",
    "skcalib.encoders.model.declared.Declared",
    "skcalib.encoders.recipe.Recipe",
    "skcalib.encoders.store.VectorStore",
    "skcalib.model_selection.self_retrieval.SelfRetrieval",
    "skcalib.similarity.classifier._Scope",
    "skcalib.similarity.null.PairCounts",
    "skcalib.similarity.space.TextSpace",
]


class VersionedState(CallbackSupportMixin):
    """Mixin that refuses a pickle whose fitted attributes have another meaning.

    A class raises ``_state_version`` when that changes.
    """

    _state_version = 1
    # scikit-learn shows what a parameter does only beside a link to a site; there is none yet.
    _doc_link_module = "skcalib"
    _doc_link_template = "#{estimator_name}"
    _learned: tuple[str, ...] = ()  # private attributes that `fit` learns, for `forget`

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("skcalib."):
            TRUSTED_TYPES.append(f"{cls.__module__}.{cls.__qualname__}")

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {**state, "_state_version": self._state_version}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        version = state.pop("_state_version", None)
        if version != self._state_version:
            raise ValueError(
                f"This pickled {type(self).__name__} has state version {version!r}; the "
                f"installed skcalib reads version {self._state_version}. Load it with the "
                "skcalib release that wrote it, or fit and pickle it again."
            )
        self.__dict__.update(state)


def forget(estimator: Any) -> None:
    """Drop the fitted attributes of an estimator."""
    public = [name for name in vars(estimator) if name.endswith("_") and name[0] != "_"]
    for name in [*public, *getattr(estimator, "_learned", ())]:
        vars(estimator).pop(name, None)


@dataclass(slots=True)
class CalibratorTags(TransformerTags):
    """Tags of a transformer of vectors, in addition to those of scikit-learn.

    A step of your own sets them in ``__sklearn_tags__``, as ``tags.transformer_tags``.

    Parameters
    ----------
    calibrates : bool, default=False
        Whether the cosines of its output need no whitening.
    not_linear : str, default=""
        Why exports that need a linear map refuse the step, and what to do instead. A linear
        step has a method ``linear_map`` in place of it, which returns a `LinearMap`.
    """

    calibrates: bool = False
    not_linear: str = ""


class FloatTransformer(TransformerMixin):
    """Mixin of a transformer that returns float32 for float32, with `CalibratorTags`."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags = CalibratorTags(preserves_dtype=["float64", "float32"])
        return tags


def calibrator_tags(step: Any) -> CalibratorTags:
    """Return the tags of a step, those of scikit-learn's steps with the defaults."""
    tags = get_tags(step).transformer_tags if hasattr(step, "__sklearn_tags__") else None
    return tags if isinstance(tags, CalibratorTags) else CalibratorTags()


def is_fitted(estimator: Any) -> bool:
    """Whether an estimator is fitted; for a pipeline or a union, whether every step is."""
    if isinstance(estimator, FeatureUnion | Pipeline):
        union = isinstance(estimator, FeatureUnion)
        steps = estimator.transformer_list if union else estimator.steps
        return all(is_fitted(step) for _, step in steps if not isinstance(step, str | None))
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


def progress(total: int, *, unit: str, desc: str, verbose: bool | int) -> Any:
    """Return a progress bar, which is shown if ``verbose``."""
    module = import_module("tqdm.auto" if verbose else "tqdm")  # that of notebooks may warn
    return module.tqdm(total=total, unit=unit, desc=desc, disable=not verbose)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's code that led here."""
    frame, level = inspect.currentframe(), 1
    while frame and frame.f_code.co_filename.startswith(INNER):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def import_package(packages: str, module: str) -> Any:
    """Import a module; the error explains how to install the packages that it needs."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"The module {module} cannot be imported ({error}). Install what it needs: pip "
            f"install {packages}"
        ) from error
