"""Quantities of one round."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_mlms.serialization import from_plain, to_plain
from pytest_mlms.upgrade.figures import Figure, figures_of
from pytest_mlms.upgrade.rounds import Round
from tests.support.upgrades import CALLS, PAIRS, random_side

RNG = np.random.default_rng(3)
SIDE = random_side(RNG)
SLOWER = random_side(RNG, 2.0)


def test_every_quantity_of_a_round_is_computed() -> None:
    figures = figures_of(Round(SIDE, SLOWER), "adj", batch_size=8)
    doubled = ["latency", "cpu_time", "wall_time", "latency_p90", "latency_p95", "load_time"]
    for name in doubled:
        assert math.exp(figures[name].value) == pytest.approx(2, rel=0.05), name
    assert math.exp(figures["throughput"].value) == pytest.approx(0.5, rel=0.05)
    assert figures["throughput"].a == pytest.approx(8000, rel=0.02)
    assert figures["first_inference"].value == figures["peak_memory"].value == 0


def test_quantities_of_the_process_have_no_error_and_those_of_calls_have_one() -> None:
    figures = figures_of(Round(SIDE, SLOWER), "adj", batch_size=1)
    assert figures["load_time"].error == 0
    assert 0 < figures["latency"].error < 0.01
    assert figures["latency"].calls == PAIRS * CALLS


def test_a_peak_that_the_kernel_cannot_measure_is_left_out() -> None:
    unknown = random_side(RNG, peak_bytes=None)
    assert "peak_memory" not in figures_of(Round(SIDE, unknown), "adj", batch_size=1)


def test_short_start_up_times_are_compared_with_a_base_added() -> None:
    short = random_side(RNG, load_seconds=0.001)
    longer = random_side(RNG, load_seconds=0.004)
    figure = figures_of(Round(short, longer), "adj", batch_size=1)["load_time"]
    assert math.exp(figure.value) == pytest.approx(0.054 / 0.051)


def test_percentiles_are_by_wall_time_where_the_clock_is_cpu_time() -> None:
    by_cpu = figures_of(Round(SIDE, SLOWER), "cpu", batch_size=1)
    by_wall = figures_of(Round(SIDE, SLOWER), "wall", batch_size=1)
    assert by_cpu["latency_p90"] == by_wall["latency_p90"]
    assert by_cpu["latency"] != by_wall["latency"]


def test_a_clock_that_stands_still_has_no_percentiles_and_an_infinite_error() -> None:
    still = random_side(RNG, device=np.zeros((PAIRS, CALLS)))
    figures = figures_of(Round(still, still), "device", batch_size=1)
    assert figures["latency"].error == math.inf
    assert "latency_p90" not in figures


def test_a_figure_is_a_list_in_json_and_an_infinite_error_is_null() -> None:
    figure = Figure(0.001, 0.002, 0.7, math.inf, 40)
    plain = to_plain(figure)
    assert plain == [0.001, 0.002, 0.7, None, 40]
    assert from_plain(Figure, plain) == figure
