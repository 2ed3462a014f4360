"""Growth of memory: the estimator on made-up readings, and real agents that leak or don't."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from mlms_predictors._run.replies import UsageReply

from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.evaluate.memory_growth import growth_between, slope_of, watch_growth
from tests.support.load_agents import open_agent
from tests.support.project import launch

MIB = 1 << 20
CALLS = np.arange(0, 2400, 100)
IMAGES = {"image": np.zeros((1, 1, 8, 8), np.float32)}


def test_a_leak_is_its_bytes_a_call_although_memory_comes_in_pages() -> None:
    pages = -(-(1000 * CALLS) // 4096) * 4096
    assert slope_of(CALLS, 50 * MIB + pages) == pytest.approx(1000, rel=0.05)


@pytest.mark.parametrize("at", range(1, 24))
def test_a_step_is_no_leak_wherever_it_is(at: int) -> None:
    assert slope_of(CALLS, np.where(np.arange(24) < at, 0, MIB)) == 0


def test_memory_that_warms_up_or_shrinks_does_not_leak() -> None:
    assert slope_of(CALLS, np.minimum(CALLS, 1000) * 4096) == 0
    assert slope_of(CALLS, -CALLS * 4096) == 0


def test_what_a_process_takes_once_is_no_growth() -> None:
    assert growth_between(MIB, MIB + 24576, 10) == 0
    assert growth_between(MIB, MIB + 1_032_768, 1000) == 1000
    assert growth_between(MIB, 0, 1000) == 0


def growth_of(folder: Path, **env: str) -> float:
    """Return the growth of the predictor ``leaky`` in an agent of its own."""
    variables = {f"LEAKY_{name.upper()}": value for name, value in env.items()}
    start = replace(launch(), env={**launch().env, **variables})
    with open_agent(folder, "leaky", start) as predictor:
        predictor.bind([IMAGES])
        return watch_growth(predictor, call_seconds=1e-5, seconds=5.0)


@pytest.mark.parametrize("by", ["python", "c"])
@pytest.mark.parametrize("size", [1000, 10_000])
def test_a_leak_of_a_kilobyte_and_more_is_found(tmp_path: Path, by: str, size: int) -> None:
    assert growth_of(tmp_path, by=by, bytes=str(size)) == pytest.approx(size, rel=0.25)


def test_a_leak_into_memory_that_was_freed_before_is_found(tmp_path: Path) -> None:
    assert growth_of(tmp_path, by="reused", bytes="1000") == pytest.approx(1000, rel=0.25)


@pytest.mark.parametrize(
    ("by", "size"), [("python", 0), ("cycles", 1000), ("steps", 1), ("warm", 4000)]
)
def test_a_clean_process_does_not_grow(tmp_path: Path, by: str, size: int) -> None:
    assert growth_of(tmp_path, by=by, bytes=str(size)) < 100


class Slow:
    """A predictor that counts its calls, and whose memory does not grow."""

    calls = 0

    def turn(self, count: int) -> None:
        self.calls += count

    def usage(self, collect: bool) -> UsageReply:
        return UsageReply(memory=MIB, device_memory=None, threads=1, descriptors=3)


@pytest.mark.parametrize(("call_seconds", "calls"), [(2.0, 6), (0.5, 10), (0.05, 120)])
def test_slow_calls_are_watched_for_few_of_them(call_seconds: float, calls: int) -> None:
    slow = Slow()
    assert watch_growth(cast(Predictor, slow), call_seconds, seconds=5.0) == 0
    assert slow.calls == calls
