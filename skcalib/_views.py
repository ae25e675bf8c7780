"""Two views of one text: parts of it that a good encoder finds in each other.

A text that has lost half of its words, and the two halves of a text, are made from the text
alone, in any language. How well vectors find one from the other, among those of all texts,
says without a label what they are good for.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from skcalib._texts import distinct

__all__ = ["FEWEST_UNITS", "Views"]

# Units that a text must have, so that half of it still says something.
FEWEST_UNITS = 6

# Scripts that put no spaces between words: Thai to Tibetan, Burmese, Khmer, kana, Chinese
# characters. There a character is the unit, elsewhere what stands between spaces.
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
UNIT = re.compile(rf"(?:[{UNSPACED}]|[^\s{UNSPACED}]+)\s*")


def units_of(text: str) -> list[str]:
    """Words of a text, or characters where a script has no spaces; joined they are the text."""
    units: list[str] = []
    for unit in UNIT.findall(text):
        if units and unicodedata.category(unit[0]).startswith("M"):
            units[-1] += unit  # a vowel sign or tone mark belongs to the letter before it
        else:
            units.append(unit)
    return units
