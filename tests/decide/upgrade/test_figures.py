"""Quantities of one round."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from mlms_predictors._run.replies import DeviceBytes

from pytest_mlms.core.serialization import from_plain, to_plain
from pytest_mlms.decide.upgrade.figures import Figure, clock_step, figures_of, slow_calls
from pytest_mlms.decide.upgrade.rounds import Clock, Round, RoundInputs, Side
from pytest_mlms.measure.evaluate.timed_inputs import Mix
from tests.support.upgrades import CALLS, PAIRS, random_side

RNG = np.random.default_rng(3)
SIDE = random_side(RNG)
SLOWER = random_side(RNG, 2.0)
NEVER_ADVANCED = np.zeros((PAIRS, CALLS))


def compare(b: Side, a: Side = SIDE, clock: Clock = "adj") -> dict[str, Figure]:
    """Return the figures of a round with batches of eight."""
    return figures_of(Round(a, b), clock, batch_size=8)


@pytest.mark.parametrize(
    "name", ["latency", "cpu_time", "wall_time", "latency_p90", "latency_p95", "load_time"]
)
def test_a_side_that_is_slower_takes_more_of_every_time(name: str) -> None:
    figure = compare(SLOWER)[name]
    assert math.exp(figure.value) == pytest.approx(2, rel=0.05)


def test_slow_calls_are_counted_by_side_in_their_group_and_neighbours_once() -> None:
    wall = np.full((6, 4), 0.001)
    wall[4:] = 0.005
    late = wall.copy()
    late[0, :2] *= 1.2
    late[5, 3] *= 1.2
    late[1, 0] *= 1.05
    groups = np.array([0, 1])
    inputs = RoundInputs(
        np.array([[0] * 4] * 4 + [[1] * 4] * 2), groups, Mix(("s", "l"), (0.7, 0.3))
    )
    sides = (random_side(RNG, wall=each, wait=None) for each in (wall, late))
    assert slow_calls(Round(*sides), inputs) == (0, 2)


def test_slow_calls_that_are_as_many_on_both_sides_but_slower_on_b_are_more_of_b() -> None:
    slow = np.full((40, 1), 0.001)
    slow[::10] *= 1.5
    slower = np.where(slow > 0.001, 1.9 / 1.5, 1.0) * slow
    inputs = RoundInputs(np.zeros((40, 1), int), np.array([0]), Mix(("all",), (1.0,)))
    a, b = (random_side(RNG, wall=each, wait=None) for each in (slow, slower))
    assert slow_calls(Round(a, b), inputs) == (0, 4)
    assert slow_calls(Round(b, a), inputs) == (4, 0)


def test_throughput_is_inputs_a_second() -> None:
    throughput = compare(SLOWER)["throughput"]
    assert throughput.a == pytest.approx(8000, rel=0.02)
    assert math.exp(throughput.value) == pytest.approx(0.5, rel=0.05)


def test_quantities_that_are_equal_have_no_change() -> None:
    figures = compare(SLOWER)
    assert figures["first_inference"].value == 0
    assert figures["peak_memory"].value == 0


@pytest.mark.parametrize("name", ["load_time", "latency_p90"])
def test_quantities_whose_samples_are_the_rounds_have_no_error_of_their_own(name: str) -> None:
    assert compare(SLOWER)[name].error == 0


def test_quantities_of_calls_have_an_error_and_their_number() -> None:
    latency = compare(SLOWER)["latency"]
    assert 0 < latency.error < 0.01
    assert latency.calls == PAIRS * CALLS


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        ({"pool": 100, "NVML": 600}, {"pool": 200, "NVML": 700}, (100, 200)),
        ({"pool": 100, "NVML": 600}, {"NVML": 700}, (600, 700)),
        ({"NVML": 600}, {"pool": 200, "NVML": 700}, (600, 700)),
        ({"pool": 100}, {"NVML": 700}, None),
        ({"pool": 100}, {}, None),
    ],
)
def test_memory_of_a_gpu_is_that_of_a_counter_that_both_sides_have(
    a: dict[str, int], b: dict[str, int], found: tuple[int, int] | None
) -> None:
    sides = [replace(SIDE, device_memory=DeviceBytes(counters, "none")) for counters in (a, b)]
    figure = compare(sides[1], sides[0]).get("device_memory")
    assert (figure and (figure.a, figure.b)) == found


def test_a_peak_that_the_kernel_cannot_measure_is_left_out() -> None:
    unknown = random_side(RNG, peak_bytes=None)
    assert "peak_memory" not in compare(unknown)


def test_short_start_up_times_are_compared_with_a_base_added() -> None:
    short = random_side(RNG, load_seconds=0.001)
    longer = random_side(RNG, load_seconds=0.004)
    figure = compare(longer, short)["load_time"]
    assert math.exp(figure.value) == pytest.approx(0.054 / 0.051)


def test_a_start_up_that_was_all_wait_for_a_core_is_left_out() -> None:
    waited = random_side(RNG, load_seconds=-0.06)
    figures = figures_of(Round(random_side(RNG), waited), "wall", 1)
    assert "load_time" not in figures
    assert "first_inference" in figures


def test_percentiles_are_by_wall_time_where_the_clock_is_cpu_time() -> None:
    by_cpu = compare(SLOWER, clock="cpu")
    by_wall = compare(SLOWER, clock="wall")
    assert by_cpu["latency_p90"] == by_wall["latency_p90"]
    assert by_cpu["latency"] != by_wall["latency"]


def test_a_clock_that_stands_still_has_an_infinite_error_and_no_percentiles() -> None:
    still = random_side(RNG, device=NEVER_ADVANCED)
    figures = compare(still, still, clock="device")
    assert figures["latency"] == Figure(0.0, 0.0, 0.0, math.inf, PAIRS * CALLS)
    assert "latency_p90" not in figures


def test_a_figure_is_a_list_in_json_and_an_infinite_error_is_null() -> None:
    figure = Figure(0.001, 0.002, 0.7, math.inf, 40)
    plain = to_plain(figure)
    assert plain == [0.001, 0.002, 0.7, None, 40]
    assert from_plain(Figure, plain) == figure


def test_the_memory_of_a_model_is_above_that_of_the_imports() -> None:
    """As Python 3.13 imports more than 3.11, and the model itself takes less."""
    rng = np.random.default_rng(5)
    mib = 1 << 20
    a = random_side(rng, peak_bytes=51 * mib, import_bytes=42 * mib)
    b = random_side(rng, peak_bytes=61 * mib, import_bytes=53 * mib)
    found = figures_of(Round(a, b), "wall", 8)
    assert (found["peak_memory"].a, found["peak_memory"].b) == (9 * mib, 8 * mib)
    assert (found["import_memory"].a, found["import_memory"].b) == (42 * mib, 53 * mib)
    earlier = figures_of(Round(replace(a, import_bytes=None), b), "wall", 8)
    assert "import_memory" not in earlier


def ticking(seconds: float, step: float, calls: int = 100) -> Side:
    """Return a side whose calls take so long by a clock that advances in steps."""
    rng = np.random.default_rng(1)
    ends = np.cumsum(seconds * np.exp(rng.normal(0, 0.01, (PAIRS, calls))), axis=1)
    ends += rng.uniform(0, step, (PAIRS, 1))
    wall = step * np.diff(np.floor(ends / step), axis=1, prepend=0)
    return random_side(rng, wall=wall, wait=np.zeros(wall.shape), cpu=wall.mean(axis=1))


@pytest.mark.parametrize("step", [1e-6, 0.5e-6])
def test_by_a_coarse_clock_the_means_of_turns_are_compared(step: float) -> None:
    a = ticking(20.3e-6, step)
    figures = compare(ticking(1.03 * 20.3e-6, step), a)
    assert clock_step(a.wall) == pytest.approx(step)
    assert math.exp(figures["latency"].value) == pytest.approx(1.03, abs=0.002)
    assert figures["latency"].a == pytest.approx(20.3e-6, rel=0.002)
    assert "latency_p90" not in figures


def test_a_clock_whose_step_is_large_beside_a_turn_tells_nothing() -> None:
    figure = compare(ticking(20.3e-6, 20e-6, calls=4), ticking(20.3e-6, 20e-6, calls=4))["latency"]
    assert math.isinf(figure.error)


def test_a_fine_clock_has_no_step() -> None:
    assert clock_step(SIDE.wall) == 0
    assert clock_step(np.full((PAIRS, CALLS), 0.001)) == 0
