"""The hooks that users implement, in a conftest.py or a plugin of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest


@pytest.hookspec
def pytest_mlms_result(config: pytest.Config, result: Mapping[str, Any]) -> None:
    """Called for each finished item, where the run's results are written (with xdist: the controller).

    ``result`` is the item's line of results.jsonl as plain values; docs/results.md describes it.
    """
