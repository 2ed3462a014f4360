"""Every quantity that can be limited: its limit holds once and is broken once.

The quantities are those of the registry, so that a new one without such a case fails here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.quantities import QUANTITIES, Quantity, quantities_of, upgrade_rules
from pytest_mlms.core.records import Limit, Place, Verdict
from pytest_mlms.decide.upgrade.decision import compare_rounds
from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.paired_evidence import compare_evidence
from pytest_mlms.manifest.scenarios import measures
from pytest_mlms.manifest.thresholds import Thresholds, UpgradeThresholds, value_of
from pytest_mlms.measure.evaluate.limits import judge
from pytest_mlms.measure.evaluate.scoring import estimate_evidence
from pytest_mlms.measure.evaluate.soak import estimate_soak
from pytest_mlms.measure.evaluate.tasks.task import Evidence
from tests.items.test_generation import answers
from tests.items.test_load import loads, write_manifest
from tests.items.test_loadgen import needs_loadgen
from tests.items.test_soaks import only_soaks, soaks
from tests.items.test_upgrades import upgrades
from tests.measure.evaluate.test_load_performance import FakeServer, measure
from tests.measure.evaluate.test_load_plan import plan_of, server
from tests.measure.evaluate.test_soak import LEAK, SLOWER, TIME, blocks
from tests.support.project import PREDICTORS, ROOT, Project
from tests.support.scored import Means

__all__ = ["answers", "loads", "soaks", "upgrades"]

INPUTS = 1000
PLACE = Place(ROOT / "m.yaml", 1)
ROUNDS = 12
PASSED, FAILED, REGRESSED = Verdict.PASSED, Verdict.FAILED, Verdict.REGRESSED

LOOSE = {"": 1e9, "s": "60 min", "B": "1000 GiB", "J": "1000 kJ", "/s": "0.001 /s"}
LOOSE["fraction"] = "1000 %"
TIGHT = {"": 0, "s": "0.001 ns", "B": "0 B", "J": "0 J", "/s": "1e12 /s", "fraction": "0 %"}
"""Limits that a toy meets, and that none meets, by unit."""

ACCURACY = [quantity.name for quantity in quantities_of("accuracy")]
PERFORMANCE = [quantity for quantity in quantities_of("performance") if quantity.limit_key]
OF_ROUNDS = list(upgrade_rules())


class Shares(Evidence):
    """Evidence whose quantity is the share of the inputs that are right."""

    def __init__(self, right: Sequence[bool], name: str) -> None:
        self._shares = {name: np.array(right, bool)}

    def __len__(self) -> int:
        return INPUTS

    @property
    def shares(self) -> Mapping[str, Any]:
        return self._shares

    def figures(self, counts: Array) -> Mapping[str, Array]:
        return {}

    @property
    def losses(self) -> Array:
        return np.zeros(INPUTS)

    def columns(self) -> Mapping[str, Sequence[Any]]:
        return {}


def evidence(quantity: Quantity, value: float) -> list[Evidence]:
    """Return evidence of a quantity that is ``value`` for each input, as a mean and as a share."""
    found: list[Evidence] = [Means([value] * INPUTS, quantity.name)]
    if (quantity.unit, quantity.better) == ("fraction", "higher"):
        found.append(Shares([value > 0] * INPUTS, quantity.name))
    return found


def limit_of(quantity: Quantity, text: Any) -> Limit:
    """Return a limit as a manifest writes it."""
    thresholds = Thresholds.model_validate({quantity.limit_key: {quantity.bound: text}})
    (entry,) = thresholds.entries()
    return Limit(quantity.name, value_of(entry.threshold, quantity), PLACE)


def values_of(quantity: Quantity) -> tuple[float, float]:
    """Return the best and a bad value of a quantity of accuracy."""
    best, bad = (1.0, 0.0) if quantity.better == "higher" else (0.0, 1.0)
    return (best, bad) if quantity.unit == "fraction" else (100 * best, 100 * bad)


@pytest.mark.parametrize("name", ACCURACY)
def test_limits_at_the_ends_of_accuracy_hold_for_the_best_model_and_break_for_a_bad_one(
    name: str,
) -> None:
    quantity = QUANTITIES[name]
    best, bad = values_of(quantity)
    text = {"dB": "100 dB"}.get(quantity.unit, f"{100 * best:g} %" if quantity.unit else best)
    for value, verdict in ((best, PASSED), (bad, FAILED)):
        for found in evidence(quantity, value):
            (decision,) = judge([limit_of(quantity, text)], estimate_evidence(found, seed=0))
            assert decision.verdict is verdict


@pytest.mark.parametrize("name", ACCURACY)
def test_a_limit_that_allows_everything_holds_for_a_bad_model(name: str) -> None:
    quantity = QUANTITIES[name]
    _, bad = values_of(quantity)
    worst = bad if quantity.bound == "max" else 0.0
    texts = {"fraction": f"{100 * worst:g} %", "dB": f"{worst} dB"}
    for found in evidence(quantity, bad):
        limit = limit_of(quantity, texts.get(quantity.unit, worst))
        (decision,) = judge([limit], estimate_evidence(found, seed=0))
        assert decision.verdict is PASSED


@pytest.mark.parametrize(
    ("tolerance", "is_equal", "verdict"),
    [(0.0, True, PASSED), (0.0, False, REGRESSED), (1.0, True, PASSED), (1.0, False, PASSED)],
)
@pytest.mark.parametrize("name", ACCURACY)
def test_tolerances_of_accuracy_from_0_to_100_percent_are_decided(
    name: str, tolerance: float, is_equal: bool, verdict: Verdict
) -> None:
    quantity = QUANTITIES[name]
    best, bad = values_of(quantity)
    if quantity.unit != "fraction":  # of these the tolerance is a share of the baseline
        best, bad = (50.0, 25.0) if quantity.better == "higher" else (50.0, 75.0)
    sides = zip(
        evidence(quantity, best), evidence(quantity, best if is_equal else bad), strict=True
    )
    for before, after in sides:
        (found,) = compare_evidence(before, after, {name: tolerance}, seed=0)
        assert (found.verdict, found.gate) == (verdict, True)


@pytest.mark.parametrize("text", ["0 %", "100 %", "250 %"])
@pytest.mark.parametrize("name", OF_ROUNDS)
def test_tolerances_of_rounds_are_decided_on_both_sides(name: str, text: str) -> None:
    rule = upgrade_rules()[name]
    thresholds = UpgradeThresholds.model_validate({rule.key or name: text})
    tolerance = thresholds.tolerances()[name]
    for factor, verdict in ((0.5, PASSED), (2.0, REGRESSED)):
        change = math.log(1 + tolerance) + math.log(factor)
        change *= QUANTITIES[name].sign
        figure = Figure(1e9, 1e9 * math.exp(change), change, 0.001, 10_000)
        compared = compare_rounds([{name: figure}] * ROUNDS, {name: tolerance}, (name,))
        (found,) = compared
        assert found.gate
        assert found.verdict in (verdict, Verdict.IMPROVED if verdict is PASSED else verdict)


OF_PROCESSES = [
    quantity
    for quantity in PERFORMANCE
    if quantity.name != "peak_rate" and not quantity.of_gpu and not quantity.of_tokens
]
OF_TOKENS = [quantity for quantity in PERFORMANCE if quantity.of_tokens]
OF_GPUS = [quantity for quantity in PERFORMANCE if quantity.of_gpu]


def limits_of(quantity: Quantity) -> list[Limit]:
    """Return a limit that holds, and one that doesn't."""
    return [limit_of(quantity, texts[quantity.unit]) for texts in (LOOSE, TIGHT)]


def both_limits(quantities: Iterable[Quantity]) -> str:
    """Return thresholds with a limit that holds and one that doesn't for each quantity."""
    lines = ["thresholds:"]
    for quantity in quantities:
        texts = (LOOSE[quantity.unit], TIGHT[quantity.unit])
        both = ", ".join(f"{{{quantity.bound}: {text}}}" for text in texts)
        lines.append(f"  {quantity.limit_key}: [{both}]")
    return "\n".join(lines)


def verdicts(item: dict[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for limit in item["limits"]:
        found.setdefault(limit["quantity"], []).append(limit["verdict"])
    return found


def check_both(found: dict[str, list[str]]) -> None:
    """Check that of each quantity's limits the first holds and the second doesn't."""
    energy = found.pop("energy_per_input")
    assert energy in (["PASSED", "FAILED"], ["INCONCLUSIVE"] * 2), "without a counter"
    assert all(each == ["PASSED", "FAILED"] for each in found.values()), found


def test_each_limit_on_performance_holds_and_breaks_in_items(upgrades: Project) -> None:
    """The predictor's clock is its own, so that only its start depends on the machine."""
    env = "{LABOUR_LEAK: '5000', LABOUR_FAULT: batch}"
    stack = f"leaking: {{framework: labour, interpreter: current, env: {env}}}"
    (upgrades.folder / "stacks.yaml").write_text(stack)
    upgrades.edit("[single_stream, offline]", "[single_stream]")
    limits = both_limits(each for each in OF_PROCESSES if not each.under_load)
    upgrades.manifest.write_text(f"{upgrades.manifest.read_text()}\n{limits}\n")
    upgrades.run("-k", "performance", "--mlms-processes=3", "--mlms-stack=leaking")
    (item,) = upgrades.items()
    found = verdicts(item)
    assert found.keys() == {each.name for each in OF_PROCESSES if not each.under_load}
    check_both(found)


def test_each_limit_on_a_gpu_holds_and_breaks_in_items(upgrades: Project) -> None:
    env = "{LABOUR_EVENTS: '0.001', LABOUR_AHEAD: '0.0004', LABOUR_WORK: '3', LABOUR_GPU: '64'}"
    stack = f"gpu: {{framework: labour, interpreter: current, env: {env}}}"
    (upgrades.folder / "stacks.yaml").write_text(stack)
    upgrades.edit("[single_stream, offline]", "[single_stream]")
    upgrades.edit("devices: [cpu]", "devices: [cuda]")
    text = f"{upgrades.manifest.read_text()}\n{both_limits(OF_GPUS)}\n"
    upgrades.manifest.write_text(text)
    junit = upgrades.path / "junit.xml"
    upgrades.run(
        "-k", "performance", "--mlms-processes=3", "--mlms-stack=gpu", f"--junitxml={junit}"
    )
    (item,) = upgrades.items()
    assert verdicts(item) == {each.name: ["PASSED", "FAILED"] for each in OF_GPUS}
    memory = item["estimates"]["device_memory"]
    assert (memory["value"], memory["unit"], memory["counter"]) == (64 << 20, "B", "labour.peak")
    times = [item["estimates"][name]["value"] for name in ("device_time", "latency_p50")]
    assert times == pytest.approx([0.0004, 0.003])
    assert item["estimates"]["device_time"]["counter"] == "events with a head start"
    for name in ("mlms_device_memory_bytes", "mlms_device_time_seconds"):
        assert name in junit.read_text()


def test_each_limit_on_tokens_holds_and_breaks_in_items(answers: Project) -> None:
    text = f"{answers.manifest.read_text()}\n{both_limits(OF_TOKENS)}\n"
    answers.manifest.write_text(text)
    env = "{ANSWERING_CLOCK: own}"
    stack = f"counting: {{framework: answering, interpreter: current, env: {env}}}"
    (answers.folder / "stacks.yaml").write_text(stack)
    answers.run("--mlms-stack=counting", f"--mlms-predictors={PREDICTORS}")
    (item,) = answers.items()
    assert verdicts(item) == {each.name: ["PASSED", "FAILED"] for each in OF_TOKENS}


def test_each_limit_on_performance_holds_and_breaks_under_load() -> None:
    measured_there = [
        each for each in OF_PROCESSES if measures("performance", each.name, server(), "cpu")
    ]
    limits = [limit for quantity in measured_there for limit in limits_of(quantity)]
    plan = plan_of(server(latency="1 s"), processes=6, budget=120.0, limits=limits)
    measured, _ = measure(plan, [FakeServer(0.006, rss_before=100) for _ in range(24)])
    criterion, *decisions = measured.decisions
    assert (criterion.limit,) == plan.criteria
    found: dict[str, list[str]] = {}
    for decision in decisions:
        found.setdefault(decision.limit.quantity, []).append(decision.verdict.value)
    check_both(found)


@pytest.mark.slow
def test_a_limit_on_the_peak_holds_and_breaks(loads: Project) -> None:
    limits = "thresholds:\n  peak_rate: [{min: 0.001 /s}, {min: 1e6 /s}]"
    write_manifest(
        loads, "peak: {latency: 100 ms, percentile: 50}", options="seconds: 0.005", more=limits
    )
    loads.run("-k", "performance", "--mlms-budget=40")
    (item,) = loads.items()
    assert verdicts(item) == {"peak_rate": ["PASSED", "FAILED"]}
    assert item["ended"] in ("decided", "budget")


def test_limits_that_a_load_never_came_to_are_undecided(loads: Project) -> None:
    limits = "thresholds:\n  query_rate: {min: 1 /s}"
    scenario = "server: {rate: 1000 /s, latency: 1 ms}"
    write_manifest(loads, scenario, options="seconds: 0.01", more=limits)
    loads.run("-k", "performance")
    (item,) = loads.items()
    assert verdicts(item) == {"query_latency": ["FAILED"], "query_rate": ["INCONCLUSIVE"]}


OF_LOADGEN = {
    "single_stream": {"latency_p50", "latency_p90", "latency_p95", "latency_p99"},
    "offline": set[str](),
    "multi_stream-4": set[str](),
    "server-5000-60000ms": {"query_rate"},
}
"""Scenario -> the limits that LoadGen's figures decide; all others stay open."""


@needs_loadgen
@pytest.mark.slow
def test_each_limit_holds_and_breaks_or_is_undecided_where_loadgen_measures(loads: Project) -> None:
    scenarios = ("single_stream", "offline", "multi_stream: {samples_per_query: 4}")
    server = "server: {rate: 5000 /s, latency: 60 s}"
    limits = both_limits(OF_PROCESSES)
    write_manifest(loads, *scenarios, server, options="seconds: 0.0001", more=limits)
    loads.run("-k", "performance", "--mlms-loadgen")
    for item in loads.items():
        found = verdicts(item)
        decided = OF_LOADGEN[item["scenario"]]
        if "server" in item["scenario"]:
            assert found.pop("query_latency") == ["PASSED"], "its own limit"
        for name, both in found.items():
            expected = ["PASSED", "FAILED"] if name in decided else ["INCONCLUSIVE"] * 2
            assert both == expected, (item["scenario"], name)
        assert decided <= found.keys()
    assert {item["scenario"] for item in loads.items()} == OF_LOADGEN.keys()


OF_SOAKS = quantities_of("soak")
WORSE = blocks(
    memory=LEAK,
    threads=4 + TIME // 24,
    descriptors=9 + TIME,
    latency=SLOWER,
    mean=SLOWER,
    difference=np.where(TIME > 200, 3.0, 0.0),
)


@pytest.mark.parametrize("against", [None, blocks()], ids=["alone", "against"])
@pytest.mark.parametrize("quantity", OF_SOAKS, ids=lambda quantity: quantity.name)
def test_each_limit_on_a_soak_holds_and_breaks(quantity: Quantity, against: Any) -> None:
    decisions = judge(limits_of(quantity), estimate_soak(WORSE, against))
    assert [decision.verdict for decision in decisions] == [PASSED, FAILED]
    steady = judge(limits_of(quantity), estimate_soak(blocks(), against))
    assert [decision.verdict for decision in steady] == [PASSED, PASSED]


@pytest.mark.slow
def test_each_limit_on_a_soak_holds_and_breaks_in_items(soaks: Project) -> None:
    env = {
        "LEAKY_SECONDS": "0.001",
        "LEAKY_SLOWER": "0.01",
        "LEAKY_BY": "python+threads+descriptors",
        "LEAKY_BYTES": "20",
        "LEAKY_WRONG": "200",
    }
    stack = {"framework": "leaky", "interpreter": "current", "env": env}
    (soaks.folder / "stacks.yaml").write_text(json.dumps({"worse": stack}))
    soaks.manifest.write_text(f"{soaks.manifest.read_text()}\n{both_limits(OF_SOAKS)}\n")
    soaks.run("--mlms-soak=5s", "--mlms-stack=worse", "-k", "soak")
    found = verdicts(only_soaks(soaks)["worse"])
    assert found == {quantity.name: ["PASSED", "FAILED"] for quantity in OF_SOAKS}


AGREEMENT = """
thresholds:
  top1: [{min: 0 %}, {min: 100 %}]
  top5: [{min: 0 %}, {min: 100 %}]
  f1_macro: [{min: 0 %}, {min: 100 %}]
  agreement:
    - {reference: onnxruntime, frameworks: [plain], top1: {min: 100 %}, kl: {max: 0.01},
       js: {max: 0.01}, hellinger: {max: 0.01}, rtol: 0.001, atol: 0.001}
    - {reference: onnxruntime, frameworks: [other], top1: {min: 100 %}, kl: {max: 0},
       js: {max: 0}, hellinger: {max: 0}}
"""


STACKS = """
plain: {framework: plain, interpreter: current}
other: {framework: other, interpreter: current}
"""
SHIFTED = "    options: {off: conv2d_0}"


def test_each_limit_on_accuracy_and_agreement_holds_and_breaks_in_items(project: Project) -> None:
    predictors = project.path / "predictors"
    predictors.mkdir()
    (predictors / "other.py").write_text((PREDICTORS / "plain.py").read_text())
    (project.folder / "stacks.yaml").write_text(STACKS)
    text, _, _ = project.manifest.read_text().partition("thresholds:")
    model = text[text.index("    graph:") : text.index("inputs:")].rstrip()
    models = f"  - framework: plain\n{model}\n  - framework: other\n{model}\n{SHIFTED}"
    project.manifest.write_text(text.replace("\n\ninputs:", f"\n{models}\n\ninputs:") + AGREEMENT)
    stacks = ("--mlms-stack=plain", "--mlms-stack=other")
    project.run("-k", "agreement or accuracy", f"--mlms-predictors={predictors}", *stacks)
    found = {(item["kind"], item["stack"]["name"]): verdicts(item) for item in project.items()}
    keys = {quantity.name for quantity in quantities_of("agreement") if quantity.limit_key}
    for framework, verdict in (("plain", "PASSED"), ("other", "FAILED")):
        assert found["agreement", framework] == {key: [verdict] for key in ("deviation", *keys)}
    top1, top5, f1 = found["accuracy", "plain"].values()
    assert top1 == f1 == ["PASSED", "FAILED"]
    assert top5 == ["PASSED", "PASSED"], "its labels are among the five best classes"
