"""Limits that users' own tests set on quantities of their own."""

from __future__ import annotations

import pytest

from pytest_mlms.keep.results.recorder import RECORDER
from pytest_mlms.session import SESSION


def judge_own_limits(item: pytest.Item) -> None:
    """Settle a test that has limited what it recorded; it fails where a limit is broken."""
    recorder = item.stash.get(RECORDER, None)
    if recorder is not None:
        recorder.settle_own(item.config.stash[SESSION].config.strict)
