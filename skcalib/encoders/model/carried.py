"""The files of a model inside a pickle."""

import shutil
import weakref
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Self

from skcalib.encoders.model.files import NOT_READ
from skcalib.process.forks import fork_safe_lock

_lock = fork_safe_lock()


class ModelFiles:
    """The files of a model that decide its vectors, by name.

    Models are loaded from folders, so where a pickle brought them, the first use writes a
    temporary one. It is removed with this object, or when the process ends.
    """

    def __init__(self, folder: Path):
        files = (file for file in sorted(folder.iterdir()) if file.is_file())
        names = {file.name: file for file in files if not NOT_READ.fullmatch(file.name)}
        self._files = {name: file.read_bytes() for name, file in names.items()}
        self._folder: Path | None = folder

    @property
    def folder(self) -> Path:
        """A folder with the files."""
        with _lock:
            # A child of this process may have removed the folder at its end.
            if self._folder is None or not self._folder.is_dir():
                folder = Path(mkdtemp(prefix="skcalib-model-"))
                weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
                for name, content in self._files.items():
                    if name != Path(name).name:
                        raise ValueError(
                            f"The pickled model has a file named {name!r}; expected names "
                            "without a folder. Do not use this pickle."
                        )
                    (folder / name).write_bytes(content)
                self._folder = folder
            return self._folder

    def __getstate__(self) -> dict[str, Any]:
        return {"_files": self._files, "_folder": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # it never changes
