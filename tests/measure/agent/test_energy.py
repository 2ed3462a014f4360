"""Energy of a run, from the counters that an agent read."""

from __future__ import annotations

from pytest_mlms.measure.agent.energy import UNTOLD, Energy


def test_energy_is_the_sum_of_its_counters() -> None:
    energy = Energy({"package-0": 3.0, "dram": 1.0}, {"package-0": 20.0, "dram": 2.5}, "")
    assert energy.total == 4.0
    assert energy.per_input(8) == 0.5
    assert energy.idle == 22.5


def test_energy_without_a_counter_is_none_and_never_zero() -> None:
    assert UNTOLD.total is None
    assert UNTOLD.per_input(8) is None
    assert UNTOLD.idle is None
    assert UNTOLD.missing
