"""What a person is told of an upgrade, and of the layers that moved: worked by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_mlms.upgrade.decision import TOLERANCES, Figure, compare_rounds
from pytest_mlms.upgrade.explanation import explain_upgrade, layer_lines
from pytest_mlms.upgrade.layer_diff import changed_layers

TERMS = {"place": "m.yaml:44", "asked": False, "budget": 60, "threads": [None, None]}
ROUND = {"pairs": 40, "calls": 1, "cores": [0], "turns_exclusive": True, "steady": True}


def profile(**micros: float) -> list[Any]:
    """One call, whose layers took so many microseconds one after the other."""
    return [
        0.0,
        1.0,
        [[name, "Conv", 0.0, seconds * 1e-6, None, None] for name, seconds in micros.items()],
    ]


def test_a_layer_is_worth_its_median_call_and_what_one_side_only_has_moves_by_all_of_it() -> None:
    a = [profile(first=10, fused=4), profile(first=10, fused=4), profile(first=99, fused=4)]
    b = [profile(first=16, apart=2)] * 3
    first, fused, apart, whole = changed_layers(a, b)
    assert (first.name, first.a, first.b, first.change) == pytest.approx(
        ("first", 1e-5, 1.6e-5, 6e-6)
    )
    assert (fused.b, fused.change, apart.a, apart.change) == pytest.approx(
        (None, -4e-6, None, 2e-6)
    )
    assert (whole.name, whole.change) == ("all layers", pytest.approx(4e-6))
    assert [one.share for one in (first, fused, apart)] == pytest.approx([1.5, -1.0, 0.5])


def test_layers_beyond_the_most_are_summed_up() -> None:
    a = [profile(**{f"l{index}": 10 for index in range(5)})]
    b = [profile(**{f"l{index}": 10 + index for index in range(5)})]
    found = changed_layers(a, b, most=2)
    assert [one.name for one in found] == ["l4", "l3", "3 others", "all layers"]
    assert [one.change for one in found] == pytest.approx([4e-6, 3e-6, 3e-6, 10e-6])
    assert changed_layers([], []) == []


def test_the_table_leaves_out_what_stood_still() -> None:
    lines = layer_lines(changed_layers([profile(still=5, slower=2)], [profile(still=5, slower=4)]))
    assert [line.split() for line in lines] == [
        ["layer", "A", "B", "Δ", "share"],
        ["slower", "(Conv)", "2.0", "4.0", "+2.0", "100", "%"],
        ["all", "layers", "7.0", "9.0", "+2.0", "100", "%"],
    ]


def test_layers_that_got_faster_do_not_explain_what_got_slower() -> None:
    rounds = [{"latency": Figure(1e-3, 1.1e-3, 0.1, 0.001, 40)}] * 2
    for after, explained in ((9, True), (4, False)):
        layers = [list(one) for one in changed_layers([profile(conv=5)], [profile(conv=after)])]
        facts = {
            "a": "old",
            "b": "new",
            "clock": "adj",
            "rounds": [ROUND] * 2,
            "layers": layers,
            **TERMS,
        }
        text = explain_upgrade(compare_rounds(rounds, {}), facts)
        assert "REGRESSED in latency" in text
        assert ("traced, B takes no longer" not in text) is explained


def test_what_is_added_to_both_sides_of_a_start_up_time_is_told_with_its_ratio() -> None:
    figures = {
        "latency": Figure(1e-3, 1e-3, 0.0, 0.001, 40),
        "first_inference": Figure(7e-4, 5e-4, -0.018, 0.0),
    }
    facts = {"a": "old", "b": "new", "clock": "adj", "rounds": [ROUND] * 2, **TERMS}
    text = explain_upgrade(compare_rounds([figures] * 2, {}), facts)
    assert "first_inference: A 700 µs, B 500 µs, ×0.982" in text
    assert ") with 10.0 ms added to both, tolerance 50 %" in text


def advice(
    rounds: int = 2,
    gates: tuple[str, ...] = ("latency",),
    error: float = 0.0,
    facts: Any = (),
    **changes: float,
) -> str:
    """Return what is advised where these quantities are exp(change) times what they were, and
    latency as it was.
    """
    figures = {
        name: Figure(1.0, math.exp(x), x, error, 400)
        for name, x in {"latency": 0.0, **changes}.items()
    }
    facts = {
        "a": "old",
        "b": "new",
        "clock": "adj",
        "rounds": [ROUND] * rounds,
        **TERMS,
        **dict(facts),
    }
    return (
        explain_upgrade(compare_rounds([figures] * rounds, {}, gates), facts)
        .splitlines()[-1]
        .strip()
    )


@pytest.mark.parametrize("name", [name for name in TOLERANCES if name != "latency"])
def test_what_allows_a_regression_is_the_tolerance_of_what_regressed(name: str) -> None:
    wanted = f"try: if this is meant, allow it: thresholds: upgrade: {{{name}: … %}} in m.yaml:44"
    change = {name: 2.0 * TOLERANCES[name].sign}
    assert advice(**change) == advice(facts={"asked": True}, **change) == wanted


def test_a_tolerance_of_latency_is_one_of_all_that_goes_with_it_but_what_has_its_own() -> None:
    slower = {"latency": 0.2, "cpu_time": 0.2, "latency_p90": 0.2, "throughput": -0.2}
    assert advice(**slower).endswith(": thresholds: upgrade: {tolerance: … %} in m.yaml:44")
    assert advice(facts={"asked": True}, **slower).endswith("allow it: --mlms-tolerance")
    more = advice(
        facts={"asked": True}, gates=("latency", "latency_p90"), peak_memory=1.0, **slower
    )
    assert more.endswith(
        ": --mlms-tolerance, thresholds: upgrade: {latency_p90: … %, peak_memory: … %} in m.yaml:44"
    )


def test_what_decides_an_open_gate_is_what_tells_more_of_it() -> None:
    at_edge = advice(gates=("latency", "peak_memory"), peak_memory=math.log(1.1))
    assert at_edge == (
        "try: --mlms-budget (it had time for 2 of 6 rounds), a quieter machine; "
        "peak_memory is near its tolerance: a wider or narrower one decides it"
    )
    assert advice(6, latency=math.log(1.03)) == (
        "try: a larger --mlms-duration, evaluate.threads: 1, a quieter machine; "
        "latency is near its tolerance: a wider or narrower one decides it"
    )
    assert advice(6, error=0.1) == (
        "try: a larger --mlms-duration, evaluate.threads: 1, a quieter machine; "
        "the noise floor of latency, ±15 %, is not below its tolerance: a wider one could be decided here"
    )
    assert advice(1) == "try: --mlms-budget (60 s was too little for 2 rounds)"
    assert advice().startswith("machine: ")


@pytest.mark.parametrize(
    ("threads", "advised"), [([1, 1], False), ([1, 2], True), ([None, 1], True)]
)
def test_one_thread_is_advised_only_to_who_has_more(
    threads: list[int | None], advised: bool
) -> None:
    assert ("evaluate.threads: 1" in advice(6, error=0.1, facts={"threads": threads})) is advised
