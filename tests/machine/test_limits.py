"""What fits into this machine."""

import os

import pytest

from skcalib._machine.limits import check_size, rows_within


def test_four_matrices_have_to_fit_and_few_rows_fill_a_buffer(monkeypatch):
    memory = {"SC_PHYS_PAGES": 4 * 100**2, "SC_PAGE_SIZE": 8}
    monkeypatch.setattr(os, "sysconf", memory.__getitem__, raising=False)
    check_size(100, "Whitening")
    with pytest.raises(ValueError, match=r"101 features; Whitening needs four matrices of 101"):
        check_size(101, "Whitening")
    assert (rows_within(8 * 2**20, 768), rows_within(1000, 768)) == (2**20 // 768, 64)
