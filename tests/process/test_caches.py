"""What a process keeps: models that are loaded once, and moments that nobody can change."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from skcalib import Whitening, clear_caches
from skcalib.process import caches


def test_a_model_in_memory_waits_for_no_other_that_is_being_loaded():
    started, go_on = threading.Event(), threading.Event()

    def load(name):
        if name == "slow":
            started.set()
            assert go_on.wait(60)
        return object()

    ready = caches.model_of(load, "ready")
    with ThreadPoolExecutor(1) as executor:
        slow = executor.submit(caches.model_of, load, "slow")
        assert started.wait(60)
        assert caches.model_of(load, "ready") is ready  # while the other loads
        go_on.set()
        assert caches.model_of(load, "slow") is slow.result(60)  # loaded once
    clear_caches()
    assert caches.model_of(load, "ready") is not ready


def test_moments_that_fits_share_are_read_only():
    X = np.random.default_rng(0).normal(size=(50, 4))
    moments = Whitening().fit(X).moments_
    for array in (moments.mean, moments.scatter, *moments.spectrum):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    expected = Whitening().fit(X.copy()).transform(X)
    np.testing.assert_array_equal(Whitening().fit(X).transform(X), expected)
