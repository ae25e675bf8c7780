"""Texts with labels that need no network: sentences about functions, questions of customers."""

import inspect
import re
import warnings
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from skcalib.datasets._sts import bundled_rows

# Parts of scipy, and their modules in addition to the part itself. Physical constants have no
# docstrings, and fftpack repeats those of fft.
PARTS = {
    "cluster": ("hierarchy", "vq"),
    "fft": (),
    "integrate": (),
    "interpolate": (),
    "io": ("arff", "wavfile"),
    "linalg": ("interpolative",),
    "ndimage": (),
    "optimize": (),
    "signal": ("windows",),
    "sparse": ("csgraph", "linalg"),
    "spatial": ("distance", "transform"),
    "special": (),
    "stats": ("contingency", "mstats", "qmc", "sampling"),
}
FEWEST_WORDS = 5
SIGNATURE = re.compile(r"[\w.]+ ?\(")
DIRECTIVE = re.compile(r"\.\. |[=~-]{3}")
MARKUP = re.compile(r":\w+:(?=`)|`+(?:~(?:\w+\.)*)?|\*\*?(?=\S)|(?<=\S)\*\*?")


def load_docstrings(*, return_X_y: bool = False) -> Any:
    """Load sentences about functions of scipy, labeled by the part of scipy.

    Each text is the first sentence of a docstring of the installed scipy, in 13 parts such as
    ``scipy.stats``. Nothing is downloaded, and no two sentences are equal. Another version of
    scipy has slightly other sentences.

    Parameters
    ----------
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    docstrings : Bunch
        ``data``, object array of shape (n_texts,), sentences of five words or more, about
        1,500; ``target``, array of shape (n_texts,), the parts as numbers; ``target_names``,
        array of shape (13,), their names.

    Examples
    --------
    >>> from skcalib.datasets import load_docstrings
    >>> docstrings = load_docstrings()
    >>> docstrings.target_names[:4].tolist()
    ['cluster', 'fft', 'integrate', 'interpolate']
    """
    labels: dict[str, int] = {}
    for code, (part, modules) in enumerate(PARTS.items()):
        for name in (part, *(f"{part}.{module}" for module in modules)):
            for docstring in _docstrings(f"scipy.{name}"):
                sentence = first_sentence(docstring)
                if len(sentence.split()) >= FEWEST_WORDS:
                    labels.setdefault(sentence, code)
    return _bunch(list(labels), list(labels.values()), list(PARTS), return_X_y)


def load_questions(*, return_X_y: bool = False) -> Any:
    """Load a hundred questions of customers, ten for each of ten intents.

    An intent is what the customer wants, such as a new password or a refund. The questions are
    too few for published results.

    Parameters
    ----------
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    questions : Bunch
        ``data``, object array of shape (100,), the questions; ``target``, array of shape
        (100,), the intents as numbers; ``target_names``, array of shape (10,), their names.

    Examples
    --------
    >>> from skcalib.datasets import load_questions
    >>> questions = load_questions()
    >>> questions.data[0], str(questions.target_names[questions.target[0]])
    ('How do I reset my password?', 'password')
    """
    rows = bundled_rows("questions.csv")
    names = list(dict.fromkeys(row["intent"] for row in rows))
    codes = [names.index(row["intent"]) for row in rows]
    return _bunch([row["text"] for row in rows], codes, names, return_X_y)


@cache  # the docstrings are in memory anyway
def first_sentence(docstring: str) -> str:
    """Return the first sentence of a docstring without markup, "" if it has none.

    Signatures, with which many docstrings begin, are skipped.
    """
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        lines = paragraph.split("\n")
        while lines and SIGNATURE.match(lines[0]):
            lines = lines[1:]
        if lines and not any(DIRECTIVE.match(line) for line in lines):
            text = MARKUP.sub("", " ".join(" ".join(lines).split()))
            return re.split(r"(?<=[.?!]) (?=[A-Z])", text)[0]
    return ""


def _docstrings(name: str) -> Iterator[str]:
    """Yield the docstrings of what a module makes public, and of public methods."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of modules that scipy will drop
            module = import_module(name)
    except ImportError:  # another version of scipy
        return
    for public in sorted(getattr(module, "__all__", dir(module))):
        thing = getattr(module, public, None)
        if public.startswith("_") or inspect.ismodule(thing):
            continue
        members = sorted(vars(thing).items()) if inspect.isclass(thing) else []
        for owner in (thing, *(value for key, value in members if not key.startswith("_"))):
            docstring = getattr(owner, "__doc__", None)
            # A number or a list has the docstring of its class.
            if isinstance(docstring, str) and docstring != type(owner).__doc__:
                yield docstring


def _bunch(
    texts: list[str], codes: list[int], names: list[str], return_X_y: bool
) -> Bunch | tuple[np.ndarray, np.ndarray]:
    data, target = np.array(texts, dtype=object), np.array(codes)
    if return_X_y:
        return data, target
    return Bunch(data=data, target=target, target_names=np.array(names))
