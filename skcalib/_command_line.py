"""What the commands of the command line share."""

from __future__ import annotations

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from pathlib import Path

__all__ = ["integers", "lines_of", "names"]


def names(value: str) -> list[str]:
    """Names of a list that is separated by commas."""
    return [name.strip() for name in value.split(",")]


def integers(value: str) -> list[int]:
    """Integers of a list that is separated by commas."""
    return [int(number) for number in value.split(",")]


def lines_of(file: str) -> list[str]:
    """Read the lines of a text file that are not empty; refuse one without, or not in UTF-8."""
    path = Path(file).expanduser()
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no file {file!r}; give one with a text per line, in UTF-8."
        )
    content = path.read_bytes()
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or b"\0" in content:
        line = content.count(b"\n", 0, max(content.find(b"\0"), 0)) + 1
        raise ValueError(
            f"{file} is not UTF-8: line {line} holds a NUL byte or the mark of UTF-16. Convert "
            "a text by: iconv -f utf-16 -t utf-8"
        )
    try:
        # `splitlines` would also break a text at U+2028, U+0085 and form feeds.
        lines = re.split(r"[\r\n]", content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{file} is not UTF-8: line {line} holds the byte 0x{content[error.start]:02x}. "
            "Convert it, for instance with: iconv -f latin1 -t utf-8"
        ) from None
    texts = [text for line in lines if (text := line.strip())]
    if not texts:
        raise ValueError(f"{file} holds no text; give a file with one per line.")
    return texts
