"""Tests of the records that packages hand each other."""

from __future__ import annotations

import pytest

from pytest_mlms.core.records import Comparison, Verdict, device_name, regressed_comparison


@pytest.mark.parametrize(
    ("device", "name"),
    [("cpu", "cpu"), ("cuda", "cuda:0"), ("cuda:0", "cuda:0"), ("cuda:1", "cuda:1")],
)
def test_a_device_without_an_index_is_the_first_one(device: str, name: str) -> None:
    assert device_name(device) == name


def comparison(quantity: str, verdict: Verdict = Verdict.REGRESSED) -> Comparison:
    of = "outputs" if quantity == "agreement" else "rounds"
    return Comparison(quantity, 1.0, 2.0, "s", 0.03, True, 3, of, verdict=verdict)


@pytest.mark.parametrize(
    ("regressed", "decided"),
    [
        (["peak_memory", "latency", "agreement"], "agreement"),
        (["peak_memory", "latency"], "latency"),
        (["peak_memory", "load_time"], "peak_memory"),
    ],
)
def test_outputs_make_an_upgrade_regress_before_times_do(
    regressed: list[str], decided: str
) -> None:
    compared = [comparison("cpu_time", Verdict.PASSED), *map(comparison, regressed)]
    found = regressed_comparison(compared)
    assert found is not None
    assert found.quantity == decided


def test_an_upgrade_without_a_regression_has_no_such_comparison() -> None:
    assert regressed_comparison([comparison("latency", Verdict.PASSED)]) is None
