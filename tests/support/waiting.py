"""Waiting for a condition, never for a number of seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.support.project import HANG_GUARD


def wait_until(holds: Callable[[], object]) -> None:
    """Return once ``holds`` returns something true."""
    deadline = time.monotonic() + HANG_GUARD
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
