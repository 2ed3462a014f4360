"""The hooks that users implement, in a conftest.py or a plugin of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest


@pytest.hookspec
def pytest_mlms_result(config: pytest.Config, result: Mapping[str, Any]) -> None:
    """Called for each finished item, where the run's results are written (with xdist: the
    controller).

    ``result`` is the item's line of results.jsonl as plain values; docs/results.md describes it.
    """


@pytest.hookspec
def pytest_mlms_devices(config: pytest.Config) -> Iterable[Mapping[str, Any]] | None:
    """Return devices that this host has beside its CPU and the GPUs that nvidia-smi lists; called
    on every worker.

    Each is a dict of plain values: ``name`` (as manifests say: cuda:0), and where known ``kind``
    (its name), ``uuid`` (what locks it, among all hosts), ``memory`` (bytes) and ``driver``.
    """
