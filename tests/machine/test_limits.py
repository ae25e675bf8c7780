"""What fits into this machine."""

import os

import pytest

from skcalib._machine.limits import check_size, rows_within


def test_what_four_matrices_do_not_fit_into_is_refused(monkeypatch):
    memory = {"SC_PHYS_PAGES": 4 * 100**2, "SC_PAGE_SIZE": 8}
    monkeypatch.setattr(os, "sysconf", memory.__getitem__, raising=False)
    check_size(100, "Whitening")
    with pytest.raises(ValueError, match=r"101 features; Whitening needs four matrices of 101"):
        check_size(101, "Whitening")
    monkeypatch.delattr(os, "sysconf")
    check_size(10**9, "Whitening")  # where nobody tells


def test_rows_of_a_buffer_fill_it_but_are_never_few():
    assert rows_within(8 * 2**20, 768) == 2**20 // 768
    assert rows_within(8 * 2**20, 768, itemsize=4) == 2**21 // 768
    assert rows_within(1000, 768) == 64
