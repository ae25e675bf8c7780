"""Tables as text."""

from collections.abc import Sequence


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, its first column aligned left, the others right.

    Examples
    --------
    >>> print(markdown(["", "stsb"], [["raw", "55.6"]]))
    |     | stsb |
    |-----|-----:|
    | raw | 55.6 |
    """
    lines = [head, *body]
    first, *others = (max(map(len, column)) for column in zip(*lines, strict=True))
    row_format = " | ".join([f"{{:<{first}}}", *(f"{{:>{width}}}" for width in others)])
    rule = "|".join(["-" * (first + 2), *("-" * (width + 1) + ":" for width in others)])
    top, *rest = (f"| {row_format.format(*cells)} |" for cells in lines)
    return "\n".join([top, f"|{rule}|", *rest])
