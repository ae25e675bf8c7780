"""Modules that belong to no package: examples, and scripts of the pages."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def load(path):
    """Return the module in a file under the root of the repository."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
