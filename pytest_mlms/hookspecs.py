"""The hooks that users implement, in a conftest.py or a plugin of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest


@pytest.hookspec
def pytest_mlms_result(config: pytest.Config, result: Mapping[str, Any]) -> None:
    """Receive the result of a finished item, in the process that writes the results.

    With xdist that is the controller. ``result`` is the item's line of results.jsonl as plain
    values; docs/results.md describes it. An error is told with the item, and the run fails.
    """


@pytest.hookspec
def pytest_mlms_devices(config: pytest.Config) -> Iterable[Mapping[str, Any]] | None:
    """Return devices of this host beside its CPU and the GPUs and slices that NVML lists.

    Called on every worker. Each device is a dict of plain values: ``name``, as manifests have it
    (cuda:0), and where they are known ``kind`` (the product's name), ``uuid`` (locks the device,
    unique among hosts), ``memory`` (bytes) and ``driver``. Other keys are left out.
    """
