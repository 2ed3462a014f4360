"""Advice on an upgrade that regressed or was not decided."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.quantities import QUANTITIES, upgrade_rules
from pytest_mlms.core.records import Verdict
from pytest_mlms.decide.upgrade.advice import advice_on
from pytest_mlms.decide.upgrade.decision import compare_accuracy
from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.output_check import check_outputs
from pytest_mlms.decide.upgrade.output_verdict import PICTURES, OutputsCompared
from pytest_mlms.decide.upgrade.result import UpgradeResult
from pytest_mlms.decide.upgrade.round_record import RoundRecord, SideRecord
from pytest_mlms.decide.upgrade.rounds import SIDES, SideName
from pytest_mlms.provide.stacks import declared
from tests.support.upgrades import SCATTER, SIDE_RECORD, alike, changed, result_of, setting

SLOWER = {"latency": 0.2, "cpu_time": 0.2, "latency_p90": 0.2, "throughput": -0.2}
EDGE = math.log(1.03)


def advice(
    changes: dict[str, float],
    rounds: int = 8,
    gates: Sequence[str] = ("latency",),
    deviation: float = 0.002,
    **fields: Any,
) -> str:
    """Return the advice where quantities are exp(change) times what they were, on average."""
    made = []
    for index in range(rounds):
        scatter = deviation * SCATTER[index % len(SCATTER)]
        figures = {"latency": changed(scatter)}
        for name, value in changes.items():
            figures[name] = changed(value + scatter, a=1e8 if "memory" in name else 0.001)
        made.append(figures)
    result = result_of(made, gates)
    result = replace(result, rounds=with_figures(result, made))
    return "".join(advice_on(result, setting(**fields)))


@pytest.mark.parametrize(
    ("change", "quantity"), [({"latency": 0.2}, "latency"), ({"load_time": 1.5}, "load_time")]
)
def test_a_regression_between_two_releases_names_the_command_that_finds_the_one(
    change: dict[str, float], quantity: str
) -> None:
    made = result_of([{"latency": changed(0.0), **ratios(change)}] * 8, ("latency",))
    found = advice_on(with_versions(made, "1.30.0", "1.31.1"), LABOUR)
    line, allow = found
    assert allow.startswith("try: if this is intended, allow it: ")
    text, _, command = line.partition(": ")
    assert text == "which release, in which layer, and a report to send upstream"
    ends = "--good labour==1.30.0 --bad labour==1.31.1"
    assert command == f"mlms culprit 'm.yaml::test_upgrade[cpu-b8]' {ends} --quantity {quantity}"


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (
            "labour-gpu==1.30.0.1",
            "labour-gpu==1.31.1.2",
            "--good labour-gpu==1.30.0.1 --bad labour-gpu==1.31.1.2 ",
        ),
        (
            "labour==1.30.0",
            "labour @ file:///wheels/labour-1.31.1-py3-none-any.whl",
            "labour of B was installed from a file",
        ),
        ("labour==1.30.0 # editable file:///src", "labour==1.31.1", "labour of A was installed"),
        ("labour==1.30.0 # conda py311_0", "labour==1.31.1", "installed by conda py311_0"),
        ("labour==1.30.0", "labour-gpu==1.31.1", "labour are labour in A, and labour-gpu in B"),
        ("numpy==2.4.6", "numpy==2.2.0", "none that pip lists in A, and none that pip lists in B"),
        ("labour @ sha256:0123456789ab", "labour==1.31.1", "labour of A was installed"),
        ("labour==mine", "labour==1.31.1", "labour of A was installed with the version 'mine'"),
    ],
)
def test_only_releases_of_an_index_are_searched(
    old: str, new: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(declared._FRAMEWORKS, "labour-gpu", "labour")  # as OpenCV has four
    made = result_of([{"latency": changed(0.2)}] * 8, ("latency",))
    made = with_versions(made, "1.30.0", "1.31.1")
    text, _ = advice_on(made, replace(LABOUR, packages=([old], [new])))
    assert found in text
    is_command = found.startswith("--good")
    assert ("mlms culprit" in text) == is_command
    assert ("declare a stack for each version" in text) != is_command


def test_releases_of_different_indexes_are_not_searched_in_one_of_them() -> None:
    made = result_of([{"latency": changed(0.2)}] * 8, ("latency",))
    setting = replace(LABOUR, other_indexes="the sides have other indexes in their pip_options")
    text, _ = advice_on(with_versions(made, "1.30.0", "1.31.1"), setting)
    assert "as the sides have other indexes in their pip_options; declare" in text


def test_the_command_has_a_tolerance_that_was_typed() -> None:
    made = with_versions(result_of([{"latency": changed(0.2)}] * 8), "1.30.0", "1.31.1")
    assert "--tolerance '3 %'" in "".join(advice_on(made, replace(LABOUR, typed=["latency"])))
    assert "--tolerance" not in "".join(advice_on(made, replace(LABOUR, typed=["load_time"])))


def test_wrong_outputs_of_another_release_name_that_command_too() -> None:
    wrong = check_outputs({"y": np.ones(3)}, {"y": np.full(3, 2.0)})
    made = result_of([{"latency": changed(0.0)}] * 2)
    made = replace(made, comparisons=[wrong, *made.comparisons])
    _, found = advice_on(with_versions(made, "1.30.0", "1.31.1"), LABOUR)
    assert found.endswith("--quantity agreement")


def test_other_pictures_are_a_matter_of_pillow_and_not_of_the_framework() -> None:
    same = {"y": np.ones(3)}
    agreement = check_outputs(same, same).but(verdict=Verdict.REGRESSED)
    made = result_of([{"latency": changed(0.0)}] * 2)
    outputs = OutputsCompared(3, 3, None, 0, 0, (), (), {}, {}, elsewhere=[PICTURES])
    made = replace(made, comparisons=[agreement, *made.comparisons], outputs=outputs)
    made = with_versions(made, "1.30.0", "1.31.1")
    (found,) = advice_on(made, replace(LABOUR, changed_packages=["Pillow 8.4.0 → 12.0.0"]))
    assert found.startswith("try: the stacks decode pictures otherwise (Pillow 8.4.0 → 12.0.0)")
    assert found.endswith("leave 'preprocess: stack' out of evaluate in m.yaml")
    differing = replace(made, outputs=outputs._replace(beyond=1))
    assert len(advice_on(differing, LABOUR)) == 2


def test_outputs_that_depend_on_the_batch_have_a_tolerance_of_their_own() -> None:
    made = result_of([{"latency": changed(0.0)}] * 2)
    batches = made.comparisons[0].but(
        quantity="batch_agreement", of="outputs", verdict=Verdict.REGRESSED
    )
    made = replace(made, comparisons=[batches, *made.comparisons])
    command, allow = advice_on(with_versions(made, "1.30.0", "1.31.1"), LABOUR)
    assert allow.endswith("allow it: thresholds: upgrade: {batch_agreement: … %} in m.yaml:44")
    assert command.endswith("--quantity batch_agreement")


def test_one_release_on_both_sides_has_no_such_command() -> None:
    made = result_of([{"latency": changed(0.2)}] * 8)
    same = (["labour==1.30.0", "numpy==2.4.6"], ["labour==1.30.0", "numpy==2.2.0"])
    (allow,) = advice_on(with_versions(made, "1.30.0", "1.30.0"), replace(LABOUR, packages=same))
    assert allow.startswith("try: if this is intended")


LABOUR = setting(
    framework="labour",
    point="m.yaml::test_upgrade[cpu-b8]",
    packages=(["labour==1.30.0", "numpy==2.4.6"], ["labour==1.31.1", "numpy==2.4.6"]),
)


def ratios(changes: dict[str, float]) -> dict[str, Any]:
    return {name: changed(value) for name, value in changes.items()}


def with_versions(result: UpgradeResult, old: str, new: str) -> UpgradeResult:
    """Return a result whose sides have these versions of the framework."""
    sides: dict[SideName, SideRecord] = {}
    for name, version in zip(SIDES, (old, new), strict=True):
        sides[name] = replace(SIDE_RECORD, versions={"numpy": "2.4.6", "labour": version})
    rounds = [replace(record, sides=sides) for record in result.rounds]
    return replace(result, rounds=rounds)


def test_there_is_no_advice_on_a_result_that_passed() -> None:
    assert advice({}) == ""


def told(quantity: str, verdict: Verdict, of: str = "rounds") -> str:
    """Return the advice on an upgrade that passed, with a guard that looks worse."""
    made = result_of([{"latency": changed(0.0)}] * 8)
    guard = made.comparisons[0].but(
        quantity=quantity, gate=False, verdict=verdict, of=of, ratio=1.4, a=0.1, b=0.14
    )
    if of == "inputs":
        guard = guard.but(ratio=-0.1)
    made = replace(made, comparisons=[*made.comparisons, guard])
    return "".join(advice_on(made, setting()))


def test_advice_on_an_upgrade_that_passed_is_on_the_guards_that_are_told() -> None:
    where = "thresholds: upgrade: {load_time: … %} in m.yaml:44"
    open_guard = told("load_time", Verdict.INCONCLUSIVE)
    assert open_guard == f"try: rounds go on until load_time is decided where it is named: {where}"
    within = told("load_time", Verdict.PASSED)
    assert within == f"try: if this is not intended, judge it: {where}"
    assert told("top1", Verdict.INCONCLUSIVE, "inputs") == "try: a larger dataset decides top1"


@pytest.mark.parametrize("name", [name for name in upgrade_rules() if name != "latency"])
def test_a_regression_is_allowed_by_the_tolerance_of_its_quantity(name: str) -> None:
    worse = {name: 2.0 * QUANTITIES[name].sign}
    expected = (
        f"try: if this is intended, allow it: thresholds: upgrade: {{{name}: … %}} in m.yaml:44"
    )
    assert advice(worse) == expected
    assert advice(worse, tolerance_given=True) == expected


def test_the_tolerance_of_latency_allows_the_guards_that_follow_it() -> None:
    assert advice(SLOWER).endswith(": thresholds: upgrade: {tolerance: … %} in m.yaml:44")
    assert advice(SLOWER, tolerance_given=True).endswith("allow it: --mlms-tolerance")


def test_gates_and_memory_need_tolerances_of_their_own() -> None:
    worse = {**SLOWER, "peak_memory": 1.0}
    found = advice(worse, gates=("latency", "latency_p90"), tolerance_given=True)
    places = "thresholds: upgrade: {latency_p90: … %, peak_memory: … %} in m.yaml:44"
    assert found.endswith(f": --mlms-tolerance, {places}")


def test_more_turns_are_not_advised_for_a_quantity_of_the_process() -> None:
    found = advice({"peak_memory": math.log(1.1)}, gates=("latency", "peak_memory"))
    assert found == (
        "try: --mlms-budget (it had time for 8 of 12 rounds), a quieter machine; "
        "peak_memory is near its tolerance: a wider or narrower one decides it"
    )


def test_more_turns_and_one_thread_are_advised_for_latency() -> None:
    assert advice({"latency": EDGE}, rounds=12) == (
        "try: a larger --mlms-duration, evaluate.threads: 1, a quieter machine; "
        "latency is near its tolerance: a wider or narrower one decides it"
    )


def test_a_noise_floor_above_the_tolerance_is_named() -> None:
    assert advice({}, rounds=12, deviation=0.1) == (
        "try: --mlms-rounds 24, evaluate.threads: 1, a quieter machine; the noise floor "
        "of latency, ±17 %, is not below its tolerance: a wider one could be decided here"
    )


def test_processes_of_two_kinds_are_named_and_take_more_rounds() -> None:
    rounds = [{"latency": changed(value)} for value in (0.0, 0.19, 0.19, 0.0, 0.19, 0.0) * 2]
    made = result_of(rounds)
    made = replace(made, rounds=with_figures(made, rounds))
    (found,) = advice_on(made, setting())
    assert found == (
        "try: --mlms-rounds 24, finding what differs between processes (B over A: 6 of 12 "
        "processes have 1.21 times the value of the others); longer turns and a quieter machine "
        "don't narrow that"
    )


def with_figures(result: UpgradeResult, figures: list[dict[str, Figure]]) -> list[RoundRecord]:
    """Return the records of a result with these figures."""
    pairs = zip(result.rounds, figures, strict=True)
    return [replace(record, figures=own) for record, own in pairs]


def test_a_budget_for_one_round_is_too_small() -> None:
    expected = "try: --mlms-budget (60 s was too little for 6 rounds)"
    assert advice({}, rounds=1) == expected


@pytest.mark.parametrize(
    ("threads", "advised"), [((1, 1), False), ((1, 2), True), ((None, 1), True)]
)
def test_one_thread_is_advised_only_where_a_side_has_more(
    threads: tuple[int | None, ...], advised: bool
) -> None:
    found = advice({}, rounds=12, deviation=0.1, threads=threads)
    assert ("evaluate.threads: 1" in found) is advised


def test_a_larger_dataset_is_advised_where_only_accuracy_is_undecided() -> None:
    right = np.ones(600, bool)
    top1 = compare_accuracy("top1", right, np.arange(600) >= 5, 0.01)
    result = result_of(alike(0.0), comparisons=[top1.but(gate=True)])
    assert advice_on(result, setting()) == ["try: a larger dataset"]


def test_wrong_outputs_are_not_a_matter_of_tolerances_of_speed() -> None:
    result = result_of(alike(0.2))
    wrong = check_outputs({"y": np.ones(3)}, {"y": np.zeros(3)})
    result = replace(result, comparisons=[wrong, *result.comparisons])
    (line,) = advice_on(result, setting())
    assert line.startswith("try: test_agreement and test_accuracy with each stack say more")
