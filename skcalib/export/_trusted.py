"""The classes that a fitted estimator of skcalib may keep."""

import re
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
ROOMS = "calibration", "encoders", "model_selection", "similarity"
CLASS = re.compile(r"^class ([A-Z]\w+)", re.MULTILINE)


# Arrays of numbers, in which the words of texts are counted.
SPARSE = ("_csr.csr_array", "_csr.csr_matrix", "_csc.csc_array", "_csc.csc_matrix")


@cache
def trusted_types() -> list[str]:
    """Dotted names of the classes in these packages, read from their sources."""
    names = [f"scipy.sparse.{name}" for name in SPARSE]
    for path in sorted(path for room in ROOMS for path in (PACKAGE / room).rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        names += [f"{module}.{name}" for name in CLASS.findall(path.read_text("utf-8"))]
    return names
