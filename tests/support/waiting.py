"""Wait for a condition, not for a time that is enough on one machine and not on another."""

import time


def wait_until(condition, seconds=300):
    """Return when ``condition()`` holds; an AssertionError after so long is a hang."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} seconds in vain"
        time.sleep(0.01)
