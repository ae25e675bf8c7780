"""DetailGuard: numbers and codes in which two texts must agree."""

import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal

from sklearn.base import BaseEstimator

from skcalib.utils.base import VersionedState

# Letters and digits, joined by single marks; a dash before them, if nothing is before it.
TOKEN = re.compile(r"(?<!\w)-?\w+(?:[-./:,']\w+)*")
PLAIN = re.compile(r"-?[0-9]+(?:[.,][0-9]+)?")
# One mark before three digits: "1,000" and "1.000" may be a thousand, or one.
UNCLEAR = re.compile(r"-?[1-9][0-9]{0,2}[.,][0-9]{3}")
GROUPED = re.compile(
    r"(?P<whole>-?[1-9][0-9]{0,2}(?P<mark>[.,'])[0-9]{3}(?:(?P=mark)[0-9]{3})*)"
    r"(?:(?!(?P=mark))[.,](?P<rest>[0-9]+))?"
)


@dataclass(eq=False, repr=False)
class DetailGuard(VersionedState, BaseEstimator):
    """Tell whether two texts have the same numbers and codes, which a cosine hardly sees.

    Parameters
    ----------
    numbers : bool, default=True
        Whether both must have the same numbers, each as often, in any order and notation:
        digits of any script, "3,5" as "3.5", and "1,000,000" as "1000000". A single mark before
        three digits, as in "1,000", is a thousand in some countries and one in others, so it
        agrees only with itself.
    codes : bool, default=True
        Whether both must have the same words that contain digits and are no number: "v2.1",
        "SKU-42A", "stockpile-1", "10:30", "2.1.3". Upper case counts as lower case. Letters of
        scripts without case, such as Chinese, end a code.

    Notes
    -----
    Numbers in words ("two"), negations ("not") and operators ("<") are not seen. "5 kg" and
    "5kg" are a number and a code, and do not agree.

    Examples
    --------
    >>> from skcalib import DetailGuard
    >>> guard = DetailGuard()
    >>> guard.compatible("Delete stockpile-1", "Delete stockpile-2")
    False
    >>> guard.compatible("It costs 3.50 euros", "The price is 3,5 euros")
    True
    """

    numbers: bool = True
    codes: bool = True

    def compatible(self, a: str, b: str) -> bool:
        """Whether two texts agree in their details.

        Parameters
        ----------
        a, b : str

        Returns
        -------
        compatible : bool
            ``details(a) == details(b)``.
        """
        return self.details(a) == self.details(b)

    def details(self, text: str) -> tuple[tuple[Decimal, ...], tuple[str, ...]]:
        """Return the numbers and the codes of a text, equal for texts that agree.

        Parameters
        ----------
        text : str

        Returns
        -------
        details : tuple
            The numbers as `decimal.Decimal`, and the codes as str, both sorted.
        """
        numbers, codes = [], []
        plain = "".join(map(_plain, unicodedata.normalize("NFC", text)))
        for token in TOKEN.findall(plain):
            if not any(map(str.isnumeric, token)):
                continue
            if (number := _value(token)) is not None:
                numbers.append(number)
            else:
                codes.append(token.casefold())
        return (
            tuple(sorted(numbers)) if self.numbers else (),
            tuple(sorted(codes)) if self.codes else (),
        )


def _plain(char: str) -> str:
    """Digits of any script as ASCII, dashes as "-", letters without case as spaces."""
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    if unicodedata.category(char) == "Pd" or char == "\N{MINUS SIGN}":
        return "-"
    return " " if char.isalpha() and char.lower() == char.upper() else char


def _value(token: str) -> Decimal | None:
    """Return the number that a token is in every notation, or None."""
    if UNCLEAR.fullmatch(token):
        return None
    if PLAIN.fullmatch(token):
        return Decimal(token.replace(",", "."))
    if found := GROUPED.fullmatch(token):
        return Decimal(re.sub("[.,']", "", found["whole"]) + "." + (found["rest"] or "0"))
    return None
