"""Ranks of a new score among others: the promised rate, and what too few scores cannot give."""

import re
from fractions import Fraction

import pytest

from skcalib.statistics.conformal import n_above, n_needed


@pytest.mark.parametrize("new", [1, 2, 10])
@pytest.mark.parametrize("rate", [0.5, 0.3, 0.05, 1 / 49, 0.01, 1e-3])
def test_the_largest_number_that_keeps_the_rate(rate, new):
    """Also where the product of a rate and a number is whole but for rounding."""
    exact = Fraction(rate).limit_denominator(1000)
    least = n_needed(rate, new)
    for n in {least, least + 1, least + 2, 3 * least, 10 * least + 9}:
        above = n_above(n, rate, "scores", new=new)
        assert Fraction(above + new, n + 1) <= exact < Fraction(above + new + 1, n + 1)
    with pytest.raises(ValueError, match=rf"^false_positive_rate=.* needs {least:,} scores; "):
        n_above(least - 1, rate, "scores", new=new)


@pytest.mark.parametrize("new", [1, 2])
def test_the_rate_that_an_error_names_is_accepted(new):
    named = r"^share=0.0001 needs .* scores; got \d+. Give more, or set share=(\S+) or more\. "
    for n in range(2, 500):
        with pytest.raises(ValueError, match=named) as error:
            n_above(n, 1e-4, "scores", new=new, name="share", hint=" Wait.")
        rate = float(re.search(named, str(error.value))[1])
        assert n_above(n, rate, "scores", new=new) >= 0
        assert new / (n + 1) <= rate < 1.11 * new / (n + 1)
        assert str(error.value).endswith(". Wait.")


def test_no_rate_is_named_where_none_below_1_is_enough():
    with pytest.raises(ValueError, match=r"needs 9,999 scores; got 0\. Give more\.$"):
        n_above(0, 1e-4, "scores")
