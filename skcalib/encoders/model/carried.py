"""The files of a model inside a pickle."""

import shutil
import weakref
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Self

from skcalib.encoders.model.files import NOT_READ
from skcalib.process.forks import fork_safe_lock

_lock = fork_safe_lock()


class ModelFiles:
    """The files of a model that decide its vectors, by name.

    Models are loaded from folders, so the first use writes a temporary one. It is removed with
    this object, or when the process ends.
    """

    _written: Path | None = None

    def __init__(self, files: Mapping[str, bytes]):
        self.files = dict(files)

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Read the files of a folder."""
        files = (file for file in sorted(folder.iterdir()) if file.is_file())
        return cls({f.name: f.read_bytes() for f in files if not NOT_READ.fullmatch(f.name)})

    @property
    def folder(self) -> Path:
        """A folder with the files."""
        with _lock:
            # A child of this process may have removed the folder at its end.
            if self._written is None or not self._written.is_dir():
                folder = Path(mkdtemp(prefix="skcalib-model-"))
                weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
                for name, content in self.files.items():
                    if name != Path(name).name:
                        raise ValueError(
                            f"The pickled model has a file named {name!r}; expected names "
                            "without a folder. Do not use this pickle."
                        )
                    (folder / name).write_bytes(content)
                self._written = folder
            return self._written

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self.files}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # it never changes
