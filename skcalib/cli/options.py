"""Arguments of the command for models and texts, and the files that it reads."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from skcalib.encoders.bert_encoder import BertEncoder
from skcalib.inputs.files import TABLES, rows_of, text_of


def add_model_and_texts(add: Callable[..., Any]) -> None:
    """Add the arguments for an encoder, and for texts and their labels."""
    add("model", metavar="MODEL", help="hub id, folder, or minilm (of the demo extra)")
    texts = (
        "UTF-8 file, a text per line or a table (CSV, TSV, JSON, JSON lines, Parquet); - for"
    )
    add("texts", metavar="TEXTS", help=f"{texts} standard input")
    add("--column", metavar="NAME", help="column of texts, if the file is a table")
    labels = "label of each text, which no calibration sees: a column of the table, or a file"
    add("--labels", metavar="LABELS", help=f"{labels} with a line for each line of TEXTS")
    declared = "default: what the model's folder declares"
    add("--pooling", default="auto", help=f"such as mean, cls, max or zipf; {declared}")
    several = "such as --layers=3, 0+3 for the mean of two, or first_last; default: the last"
    add("--layers", type=layers, default=-1, help=several)
    add("--prompt", help=f"words before each text, or around {{text}}; {declared}")
    add("--memory", help="folder that keeps vectors, so that each text is encoded only once")


def layers(name: str) -> str | tuple[int, ...]:
    """Return the `layers` of `BertEncoder` for an int, ints joined by "+", or a name."""
    try:
        return tuple(map(int, name.split("+")))
    except ValueError:
        return name  # such as "first_last"; BertEncoder checks it


def encoder_of(options: argparse.Namespace) -> BertEncoder:
    """Return the encoder of the options."""
    return BertEncoder(
        options.model, pooling=options.pooling, layers=options.layers, prompt=options.prompt
    )


def with_labels(
    file: str, column: str | None = None, labels: str | None = None
) -> dict[str, str]:
    """Return the texts of a file and their labels, which are the texts without ``labels``.

    Both are columns of a table, or lines of two files. A text counts once, with its first
    label. Blank texts are left out, and so are those with a blank label.
    """
    path = Path(file).expanduser()
    if column is not None:
        names = [column] if labels is None else [column, labels]
        rows = [row for _, row in rows_of(path, names)]
        columns = [[row[name] for row in rows] for name in names]
    elif path.suffix.lower() in TABLES:
        raise ValueError(
            f"{file!r} is a table. Set --column to its column of texts, one of "
            f"{', '.join(next(rows_of(path))[1])}; or give a file with one text per line."
        )
    else:
        files = [path] if labels is None else [path, Path(labels).expanduser()]
        columns = [text_of(one).removesuffix("\n").split("\n") for one in files]
    if len(columns[0]) != len(columns[-1]):
        raise ValueError(
            f"{file!r} has {len(columns[0])} lines, and {labels!r} has {len(columns[-1])}. "
            "Give both a line for each text, in the same order."
        )
    texts, of_texts = (
        ["" if cell is None else str(cell).strip() for cell in cells]
        for cells in (columns[0], columns[-1])
    )
    label_of: dict[str, str] = {}
    for text, label in zip(texts, of_texts, strict=True):
        if text and label:
            label_of.setdefault(text, label)
    if not label_of:
        raise ValueError(f"{file!r} has no text; give a file with one text per line.")
    return label_of
