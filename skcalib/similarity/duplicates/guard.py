"""DetailGuard: numbers and codes in which two texts must agree."""

import re
import unicodedata
from functools import lru_cache
from typing import Any

from sklearn.base import BaseEstimator, clone

from skcalib.base import VersionedState, estimator

# What `_plain` returns for a letter that is no part of a code, and for a currency.
LETTER, CURRENCY = "\0", "$"
# The Arabic decimal mark and the apostrophe, which groups digits, have one meaning each.
POINT, GROUP = "\N{ARABIC DECIMAL SEPARATOR}", "'"
COMMA = ",\N{ARABIC COMMA}"  # these and the period have both meanings
ALIKE = {
    "\N{RIGHT SINGLE QUOTATION MARK}": GROUP,
    "\N{ARABIC THOUSANDS SEPARATOR}": GROUP,
    "\N{REVERSED COMMA}": ",",
    "\N{FRACTION SLASH}": "/",
    "\N{DIVISION SLASH}": "/",
    "\N{MINUS SIGN}": "-",
}
# A dash is a sign, and a mark begins a number such as ".5", if nothing is before it.
SIGN = rf"(?<![\w{LETTER}-])-"
START = rf"(?<![\w{LETTER}.{COMMA}{POINT}])[.{COMMA}{POINT}](?=[0-9])"
# Letters and digits, joined by single marks.
TOKEN = re.compile(rf"(?:{SIGN})?(?:{START})?\w+(?:[-./:^·{COMMA}{GROUP}{POINT}]\w+)*")
SIGNED_CURRENCY = re.compile(rf"({SIGN}) ?\{CURRENCY} ?(?=[.{COMMA}]?[0-9])")
# Groups of three digits after spaces: "1 200".
SPACED = re.compile(rf"(?<![\w.{COMMA}:/^'])(?<!\w-)[1-9][0-9]{{0,2}}(?: [0-9]{{3}})+(?!\w)")
# One mark before three digits: "1,000" and "1.000" may be a thousand, or one.
UNCLEAR = re.compile(rf"[1-9][0-9]{{0,2}}[.{COMMA}][0-9]{{3}}")
# Groups of three digits; or, as in India, of two before the last three.
NUMBERS = (
    re.compile(
        rf"(?P<whole>[0-9]*|[1-9][0-9]{{0,2}}(?P<mark>[.{COMMA}{GROUP}])[0-9]{{3}}"
        rf"(?:(?P=mark)[0-9]{{3}})*)(?:(?!(?P=mark))[.{COMMA}{POINT}](?P<rest>[0-9]+))?"
    ),
    re.compile(
        rf"(?P<whole>[1-9][0-9]?(?P<mark>[,{GROUP}])[0-9]{{2}}(?:(?P=mark)[0-9]{{2}})*"
        rf"(?P=mark)[0-9]{{3}})(?:[.{POINT}](?P<rest>[0-9]+))?"
    ),
)


@estimator
class DetailGuard(VersionedState, BaseEstimator):
    """Check that two texts have the same numbers and codes, which hardly affect a cosine.

    Parameters
    ----------
    numbers : bool, default=True
        Whether both must have the same numbers, each as often, in any order and notation:
        digits of any script, "3,5" as "3.5", ".5" as "0.5", "1,000,000" and "1 000 000" as
        "1000000", "-$5" as "-5 $", "1/2" as "½". A single mark before three digits, as in
        "1,000", is a thousand in some countries and one in others, so it agrees only with
        itself. The same holds for digits with other marks between them: "10:30", "2.1.3",
        "2024-05-01".
    codes : bool, default=True
        Whether both must have the same words that mix letters and digits: "v2.1", "SKU-42A",
        "stockpile-1". Upper case counts as lower case. Letters of scripts without case, such as
        Chinese, end a code.

    Notes
    -----
    Ignored: units, currencies, "%", "am" and "pm"; numbers in words ("two"), negations ("not")
    and operators ("<"); codes, addresses and paths without a digit; any other context of a
    number.

    Different, although they may mean the same: "5 kg" and "5kg", a number and a code; "0.5" and
    "½"; "05" and "5", since leading zeros distinguish codes. Equal: "3.10" and "3.1", even as
    versions, and "1 200" and "1200", even as two neighboring numbers.

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

    def details(self, text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the numbers and the codes of a text, equal for texts that agree.

        Parameters
        ----------
        text : str

        Returns
        -------
        details : tuple
            The numbers in one notation, and the codes, both sorted.
        """
        numbers, codes = [], []
        plain = "".join(map(_plain, unicodedata.normalize("NFC", text)))
        plain = SIGNED_CURRENCY.sub(r"\1", plain)
        plain = SPACED.sub(lambda spaced: spaced[0].replace(" ", GROUP), plain)
        for token in TOKEN.findall(plain):
            if any(map(str.isalpha, token)):
                if any(map(str.isnumeric, token)):
                    codes.append(token.casefold())
            elif any(map(str.isnumeric, token)):
                numbers.append(_in_one_notation(token))
        return (
            tuple(sorted(numbers)) if self.numbers else (),
            tuple(sorted(codes)) if self.codes else (),
        )


@lru_cache(4096)
def _plain(char: str) -> str:
    """Return digits as ASCII, equivalent marks as one mark, invisible characters as ""."""
    if char.isascii():
        return char
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    if char in ALIKE:
        return ALIKE[char]
    kind, (form, *_) = (
        unicodedata.category(char),
        [*unicodedata.decomposition(char).split(), ""],
    )
    if form in ("<wide>", "<small>"):
        return "".join(map(_plain, unicodedata.normalize("NFKC", char)))
    if form == "<fraction>":  # beside a whole number, "1½" is as "1 1/2"
        return f" {unicodedata.normalize('NFKC', char).replace(chr(0x2044), '/')} "
    if form == "<super>" and char.isdigit():
        return f"^{unicodedata.digit(char)}"
    if kind == "Pd":
        return "-"
    if kind in ("Zs", "Sc", "Cf"):
        return {"Zs": " ", "Sc": CURRENCY, "Cf": ""}[kind]
    # Letters without case, and marks that belong to them.
    uncased = kind[0] == "M" or (char.isalpha() and char.lower() == char.upper())
    return LETTER if uncased else char


def guard_of_fit(estimator: Any) -> Any:
    """Return the guard of an estimator of texts, which parameters set later do not change."""
    guard, name = estimator.guard, type(estimator).__name__
    if guard is not None and estimator.encoder is None:
        raise ValueError(
            f"{name} got a guard, which reads texts, but no encoder; expected both. Set the "
            f"encoder, as in {name}(encoder, guard=...), and pass texts."
        )
    return clone(guard) if isinstance(guard, BaseEstimator) else guard


def _in_one_notation(token: str) -> str:
    """Return a number without grouping marks and final zeros, if its value is clear."""
    sign, digits = ("-", token[1:]) if token[0] == "-" else ("", token)
    if UNCLEAR.fullmatch(digits):
        return token
    for pattern in NUMBERS:
        if number := pattern.fullmatch(digits):
            whole = "".join(filter(str.isdigit, number["whole"])) or "0"
            rest = (number["rest"] or "").rstrip("0")
            return f"{sign}{whole}.{rest}" if rest else sign + whole
    return token
