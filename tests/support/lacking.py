"""Parts that a machine may lack: tests of them are skipped, and fail where they were promised."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

__all__ = ["lack"]

REQUIRED = "MLMS_TESTS_REQUIRE"
"""The variable with the names of what must be there, as CI sets it, with blanks between."""


def lack(name: str, reason: str) -> NoReturn:
    """Skip the test for a reason; fail it where MLMS_TESTS_REQUIRE has this name."""
    if name in os.environ.get(REQUIRED, "").split():
        pytest.fail(f"{reason}; {REQUIRED} says that {name} is here", pytrace=False)
    pytest.skip(reason)
