"""Helpers for tests of probes."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from mlms_predictors._run.probe import Probe, ProbeUnavailable
from mlms_predictors._run.probes import open_probe

linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="Linux's /proc and perf_event_open"
)


def values(probe: Probe, name: str) -> list[float]:
    """Return the values that a probe read of one counter."""
    for series in probe.series:
        if series.name == name:
            return list(series.values)
    raise AssertionError(f"{name} was not read, but {[series.name for series in probe.series]}")


def refusal(name: str, device: str = "cpu", level: str = "hardware", **options: Any) -> str:
    """Return the reason why a probe cannot observe."""
    with pytest.raises(ProbeUnavailable) as raised, open_probe(name, device, level, options):
        pass
    return str(raised.value)
