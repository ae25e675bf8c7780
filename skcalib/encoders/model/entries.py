"""JSON files in the folder of a model."""

import json
from pathlib import Path
from typing import Any

CONFIG = "config.json"


def entries(file: Path, kind: type = dict) -> Any:
    """Top level of a JSON file, of one kind; an empty one if there is no such file."""
    try:
        content = json.loads(file.read_bytes())
    except FileNotFoundError:
        return kind()
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, kind):
        raise unreadable(file)
    return content


def unreadable(file: Path) -> ValueError:
    """Error for a file without the expected content."""
    return ValueError(
        f"{file} is missing, incomplete or invalid. Download the model again, or save it again."
    )
