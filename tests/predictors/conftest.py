"""Fixtures of the tests of the agent side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.closing import ClosingAgent


@pytest.fixture
def closing(tmp_path: Path) -> Iterator[ClosingAgent]:
    """An agent whose predictor notes which models it loads and closes."""
    closing = ClosingAgent(tmp_path)
    yield closing
    closing.agent.kill()
