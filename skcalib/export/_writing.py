"""Files and folders that are compared with the pipeline, and written whole or not at all."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from skcalib.calibration.neighbors import NeighborSmoothing
from skcalib.encoders.bert_encoder import for_export
from skcalib.export._parts import Parts, apply
from skcalib.process.devices import plain_torch

# Largest difference of a vector from that of the pipeline, relative to its length.
TOLERANCE = 1e-5
TOO_LONG = 1024  # tokens: a longer limit is not tried, since such a text takes seconds


def some_texts(parts: Parts) -> list[str]:
    """Texts of the model's own vocabulary, including an empty one and one that is too long."""
    tokens, most = parts.backbone().tokens, parts.recipe.max_length
    drawn = np.random.default_rng(0).choice(tokens.words, 2 * min(most, TOO_LONG))
    words = [drawn[i : i + min(n, most)] for i, n in enumerate((1, 3, 5, 8))]
    if most <= TOO_LONG:
        words.append(drawn)
    return ["", *map(tokens.tokenizer.decode, words)]


def probes(parts: Parts, without_token: bool) -> tuple[list[str], np.ndarray]:
    """Texts and their vectors; an empty text only if it has a token, or ``without_token``."""
    from skcalib.encoders.model.forward import by_longest

    module, tokens = parts.backbone().module, parts.backbone().tokens
    fault = ""
    if by_longest(module):
        fault = "rope_type='longrope', by which the longest text of a batch changes the others"
    elif tokens.tokenizer.pad_token_id is None:
        fault = "a tokenizer without pad_token, which padded batches need"
    if fault:
        raise ValueError(
            f"This {type(module).__name__} has {fault}. Encode with the pipeline itself."
        )
    texts = some_texts(parts)
    if not (without_token or tokens.frame(parts.recipe.prompt).n):
        texts.remove("")
    encoder = for_export(parts.encoder, windows=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that these are cut off
        return texts, apply(parts.steps, encoder.transform(texts))


def write_checked(
    path: str | os.PathLike,
    parts: Parts,
    expected: np.ndarray,
    *ways: Callable[[Path], np.ndarray],
    is_file: bool = False,
) -> None:
    """Write a file or folder by the first way that gives the expected vectors to `TOLERANCE`.

    A way writes to a path, reads it back, and returns its vectors.
    """
    import torch

    from skcalib.encoders.model.forward import in_short
    from skcalib.encoders.model.load import quiet_transformers

    lengths = np.linalg.norm(expected, axis=1)
    accepted = TOLERANCE * np.maximum(lengths, np.median(lengths))
    smooths = any(isinstance(step, NeighborSmoothing) for step in parts.steps)
    # Rounding may decide which of two equally near texts is a neighbor.
    most = np.median if smooths else np.max
    plain = plain_torch(torch.device("cpu"))  # autocast would be in a graph
    with written_whole(path, is_file=is_file) as target, quiet_transformers(), plain:
        for write in ways:
            try:
                errors = np.linalg.norm(write(target) - expected, axis=1)
                if most(errors - accepted) <= 0:
                    return
                fault = "padding changes them, or the calibration amplifies rounding errors"
                raise ValueError(fault)
            except Exception as error:  # torch and the formats' libraries raise many kinds
                cause = error
        raise ValueError(
            f"The export of this {type(parts.backbone().module).__name__} does not give the "
            f"expected vectors: {in_short(cause)}. Encode with the pipeline itself."
        ) from cause


@contextmanager
def written_whole(path: str | os.PathLike, *, is_file: bool = False) -> Iterator[Path]:
    """Yield a path to write a file or a folder to; it is renamed once all is written.

    An error, a kill or a full disk leaves nothing at ``path``. A path that exists is refused,
    except an empty folder for a folder.
    """
    target = Path(path).expanduser().resolve()  # a link, or ".", could not be replaced
    _check_free(target, is_file)
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        written, new = Path(scratch) / target.name, Path(scratch) / f"{target.name}~"
        yield written
        # Files of safetensors are private to their owner; all get the mode of a new file.
        new.touch()
        for path in (written, *written.rglob("*")):
            if path.is_file():
                path.chmod(new.stat().st_mode)
        # Another process may have written there meanwhile.
        _check_free(target, written.is_file())
        if target.is_dir():
            target.rmdir()  # it is empty
        written.rename(target)


def _check_free(target: Path, is_file: bool) -> None:
    if target.exists() and (is_file or not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} exists already. Give a new path, or remove it.")
