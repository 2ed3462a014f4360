"""Analysis A1."""

from __future__ import annotations

import pytest

from pytest_mlms.measure.trace.analyses.models import optimal_batch_size
from tests.support.analysis_rows import rows_of
from tests.support.traced_models import traced_model


@pytest.mark.parametrize(
    ("throughputs", "best"),
    [
        ({1: 100, 2: 190, 4: 200, 8: 209}, 4),
        ({4: 400, 1: 100, 2: 200}, 4),
        ({1: 100, 2: 105}, 1),
        ({8: 5}, 8),
    ],
)
def test_the_optimal_batch_size_is_that_of_the_last_doubling_that_gains_more_than_5_percent(
    throughputs: dict[int, float], best: int
) -> None:
    assert optimal_batch_size(throughputs) == best


def test_each_batch_size_has_its_latency_and_throughput() -> None:
    traces = [traced_model(4, 236), traced_model(1, 100), traced_model(2, 120)]
    rows = rows_of("model", *traces)
    assert [row["batch_size"] for row in rows] == [1, 2, 4]
    assert [row["latency_us"] for row in rows] == [100, 120, 236]
    assert [row["optimal"] for row in rows] == [False, True, False]
    assert rows[0]["inputs_per_s"] == pytest.approx(10_000)


def test_devices_have_series_of_their_own() -> None:
    traces = [traced_model(1, 100), traced_model(2, 300, device="cuda:0")]
    rows = rows_of("model", *traces)
    assert [row["optimal"] for row in rows] == [True, True]


def test_stacks_have_series_of_their_own_whose_batch_sizes_are_joined() -> None:
    traces = [
        traced_model(size, 100 * size, case=f"{stack}-cpu-b{size}")
        for stack in ("old", "new")
        for size in (1, 2)
    ]
    rows = rows_of("model", *traces)
    assert [(row["case"], row["batch_size"]) for row in rows] == [
        ("old-cpu", 1),
        ("old-cpu", 2),
        ("new-cpu", 1),
        ("new-cpu", 2),
    ]
