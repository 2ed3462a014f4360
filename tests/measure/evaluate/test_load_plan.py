"""Tests of the plan of an item under load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Place
from pytest_mlms.manifest.scenarios import Load, ScenarioEntry
from pytest_mlms.measure.evaluate.load_plan import LoadItemPlan

SECOND = 1_000_000_000


def load_of(name: str, **keys: Any) -> Load:
    load = ScenarioEntry.model_validate({name: keys}).load
    assert load is not None
    return load


def plan_of(load: Load, **changes: Any) -> LoadItemPlan:
    plan = LoadItemPlan(
        load=load,
        place=Place(Path("m.yaml"), 7),
        batch_size=1,
        processes=2,
        duration=1.0,
        budget=20.0,
        limits=(),
    )
    return replace(plan, **changes)


def server(**keys: Any) -> Load:
    return load_of("server", **{"rate": "100 /s", "latency": "15 ms", **keys})


def test_a_server_runs_twice_as_long_each_time_within_its_share() -> None:
    runs = list(plan_of(server()).runs(0, samples=8))
    seconds = [run.scheduled[-1] / SECOND for run in runs if run.scheduled is not None]
    assert seconds == pytest.approx([4.59, 9.18], abs=0.5)
    assert all(run.longest > second for run, second in zip(runs, seconds, strict=True))


def test_a_first_run_lasts_a_hundred_times_the_limit() -> None:
    first = next(plan_of(server(latency="80 ms")).runs(0, samples=8))
    assert first.scheduled is not None
    assert first.scheduled[-1] / SECOND == pytest.approx(8, abs=0.5)
    capped = next(plan_of(server(latency="60 s")).runs(0, samples=8))
    assert capped.scheduled is not None
    assert capped.scheduled[-1] / SECOND == pytest.approx(10, abs=0.5)


def test_a_longer_run_begins_as_the_one_before() -> None:
    first, second = plan_of(server()).runs(0, samples=8)
    assert first.scheduled is not None
    assert second.scheduled is not None
    count = len(first.scheduled)
    np.testing.assert_array_equal(first.scheduled, second.scheduled[:count])
    np.testing.assert_array_equal(first.samples, second.samples[:count])


def test_each_process_has_its_own_arrivals() -> None:
    plan = plan_of(server())
    first = next(plan.runs(0, samples=8))
    other = next(plan.runs(1, samples=8))
    assert first.scheduled is not None
    assert other.scheduled is not None
    assert first.scheduled[1] != other.scheduled[1]


def test_a_percentile_that_takes_too_many_queries_is_an_error_with_their_number() -> None:
    with pytest.raises(MlmsError) as error:
        plan_of(server(rate="1 /s", percentile=99.9)).check()
    assert str(error.value) == (
        "m.yaml:7: p99.9 takes 4,603 queries in each process, 4,603 s at 1 /s, and a process has "
        "10 s; raise --mlms-budget or the rate, or write a lower percentile"
    )
    plan_of(server(percentile=90, rate="5 /s")).check()


def test_a_stream_has_the_queries_of_loadgens_estimate() -> None:
    (run,) = plan_of(load_of("multi_stream", samples_per_query=4)).runs(0, samples=3)
    assert run.scheduled is None
    assert (run.least, run.samples_per_query, run.seconds) == (662, 4, 1.0)
    assert len(run.samples) == 662 * 4
    assert set(run.samples.tolist()) == {0, 1, 2}


def replay(**changes: Any) -> LoadItemPlan:
    load = load_of("replay", arrivals="t.csv", latency="1 s")
    arrivals = (np.arange(500) * 0.01 * SECOND).astype(np.int64)
    return plan_of(load, **{"arrivals": arrivals, **changes})


def test_a_replay_is_run_once_as_it_is() -> None:
    plan = replay()
    plan.check()
    (run,) = plan.runs(0, samples=8)
    assert run.scheduled is plan.arrivals


def test_a_replay_without_the_queries_or_the_time_is_an_error() -> None:
    with pytest.raises(MlmsError, match="p99 takes 459 queries .*, and the file has 100; replay"):
        replay(arrivals=np.arange(100)).check()
    with pytest.raises(MlmsError, match="the arrivals take 5 s, and a process has 2 s; raise"):
        replay(budget=4.0).check()
