"""Progress bars show where work stands, and nothing where nobody asked."""

import pytest

from skcalib._base import progress


def _work(total, verbose):
    with progress(total, unit="text", desc="encode", verbose=verbose) as advance:
        advance(2)
        advance(1, "nearly done")


@pytest.mark.parametrize(("total", "shown"), [(3, "3/3"), (None, "3text")])
def test_a_bar_counts_units_and_shows_notes(total, shown, capsys):
    _work(total, verbose=True)
    error = capsys.readouterr().err
    assert error.startswith("\rencode: ")
    assert shown in error
    assert "nearly done" in error


def test_nothing_is_shown_unless_asked(capsys):
    _work(3, verbose=False)
    assert capsys.readouterr() == ("", "")
