"""Files and folders that are written whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["written_whole"]


@contextmanager
def written_whole(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a path to write a file or a folder to; it is renamed once all is written.

    An error, a kill or a full disk leaves nothing at ``path``. A path that holds more than an
    empty folder is refused, and so is one next to which nothing can be written.
    """
    target = Path(path).expanduser().resolve()  # a link, or ".", could not be replaced
    _check_free(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as beside:
        yield Path(beside) / target.name
        _set_modes(Path(beside) / target.name)
        _check_free(target)  # another process may have written there meanwhile
        if target.is_dir():
            target.rmdir()  # it is empty
        (Path(beside) / target.name).rename(target)


def _set_modes(written: Path) -> None:
    """Give all files the mode of a new one; files of safetensors are private to their owner."""
    new = written.with_name(f"{written.name}~")
    new.touch()
    for path in (written, *written.rglob("*")):
        if path.is_file():
            path.chmod(new.stat().st_mode)


def _check_free(target: Path) -> None:
    above = next(path for path in target.parents if path.exists())
    if not above.is_dir():
        raise NotADirectoryError(
            f"{target} cannot be written: {above} is a file. Give a path in a folder."
        )
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise FileExistsError(
            f"{target} exists already. Give a new path, or remove what is there."
        )
