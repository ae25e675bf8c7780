"""Files and folders that are written whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["check_free", "written_whole"]


def check_free(path: str | os.PathLike) -> Path:
    """Return the path, ``~`` expanded; refuse one where there is more than an empty folder."""
    target = Path(path).expanduser()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise FileExistsError(
            f"{os.fspath(path)}: there is something of that name already. Give a new one, or "
            "remove what is there."
        )
    return target


@contextmanager
def written_whole(path: str | os.PathLike) -> Iterator[Path]:
    """Yield where to write a file or a folder; it gets its name once all is written.

    An error, a kill or a full disk leaves nothing at ``path``.
    """
    target = check_free(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as beside:
        yield Path(beside) / target.name
        check_free(target)  # another process may have written there meanwhile
        if target.is_dir():
            target.rmdir()  # it is empty
        (Path(beside) / target.name).rename(target)
