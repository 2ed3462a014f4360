"""Performance over fresh processes, and latency by groups of inputs."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlms_predictors._run.protocol import KEPT_STATE

from pytest_mlms.core.errors import OutputError
from pytest_mlms.core.records import Decision, Estimate, Limit, Place, Verdict
from pytest_mlms.measure.agent.predictor import ScenarioRun
from pytest_mlms.measure.evaluate import performance
from pytest_mlms.measure.evaluate.limits import explain, judge
from pytest_mlms.measure.evaluate.performance import Measurement, judge_groups, measure_performance
from pytest_mlms.measure.evaluate.performance_plan import PerformancePlan
from pytest_mlms.measure.evaluate.process_result import ProcessResult, estimate_performance
from pytest_mlms.measure.evaluate.timed_inputs import Mix, TimedBatches
from tests.support.processes import FakePredictor, plan, process, result_of, scenario_run

PLACE = Place(Path("m.yaml"), 1)
LIMIT = Limit("latency_p50", 0.010, PLACE)
P99_LIMIT = Limit("latency_p99", 1, PLACE)
ESTIMATE = Estimate(0.002, 0.0019, 0.0021, 0.99, 3, "processes")


def with_output(values: Any) -> ProcessResult:
    run = scenario_run([0.01])
    outputs = {"logits": np.array(values)}
    return result_of(ScenarioRun(run.times, outputs, str(values), 100))


class FakeProcesses:
    """Processes with the given latencies that take ``seconds`` each, by a clock of their own."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, latencies: Sequence[float], seconds: float = 1.0
    ) -> None:
        self.now = 0.0
        self.kept: list[int] = []
        self._latencies = iter(latencies)
        self._seconds = seconds
        monkeypatch.setattr(performance, "measure_process", self._measure)

    def _measure(self, *arguments: Any) -> ProcessResult:
        self.now += self._seconds
        return process(next(self._latencies), calls=100)

    @contextlib.contextmanager
    def _predictor(self) -> Iterator[Any]:
        yield None

    def _keep(self, number: int, result: ProcessResult) -> None:
        self.kept.append(number)

    def measure(self, plan: PerformancePlan) -> Measurement:
        return measure_performance(
            plan, self._predictor, lambda predictor: [], self._keep, lambda: self.now
        )


def verdicts(measurement: Measurement) -> list[Verdict]:
    return [decision.verdict for decision in measurement.decisions]


def test_a_clear_case_takes_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = FakeProcesses(monkeypatch, [0.0050, 0.0051, 0.0049])
    measurement = fakes.measure(plan(limits=(LIMIT,)))
    assert verdicts(measurement) == [Verdict.PASSED]
    assert fakes.kept == [0, 1, 2]


def test_an_open_case_measures_more_until_it_is_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    first_look = [0.0090, 0.0095, 0.0099]
    second_look = [0.0092, 0.0094, 0.0093]
    fakes = FakeProcesses(monkeypatch, first_look + second_look)
    measurement = fakes.measure(plan(limits=(LIMIT,)))
    assert verdicts(measurement) == [Verdict.PASSED]
    assert len(fakes.kept) == 6


def test_a_case_that_stays_open_ends_after_the_last_look(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = FakeProcesses(monkeypatch, [0.0099, 0.0101] * 6)
    measurement = fakes.measure(plan(limits=(LIMIT,)))
    assert verdicts(measurement) == [Verdict.INCONCLUSIVE]
    assert measurement.estimates["latency_p50"].replicates == 12


def test_a_spent_budget_ends_an_open_case(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = FakeProcesses(monkeypatch, [0.0099, 0.0101] * 6, seconds=10)
    measurement = fakes.measure(plan(limits=(LIMIT,), budget=50))
    assert verdicts(measurement) == [Verdict.INCONCLUSIVE]
    assert measurement.ended == "budget"
    assert measurement.estimates["latency_p50"].replicates == 5


def test_too_few_calls_do_not_start_more_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = FakeProcesses(monkeypatch, [0.005] * 12)
    measurement = fakes.measure(plan(limits=(P99_LIMIT,)))
    assert verdicts(measurement) == [Verdict.INCONCLUSIVE]
    assert len(fakes.kept) == 3


class EarlyItem:
    """An item of real plans over fake predictors, each with calls of its own."""

    def __init__(self, *processes: Callable[[int], float], capacity: int = 10_000) -> None:
        self.results: list[ProcessResult] = []
        self._processes = itertools.cycle(processes)
        self._capacity = capacity

    @contextlib.contextmanager
    def _predictor(self) -> Iterator[Any]:
        yield FakePredictor(next(self._processes), self._capacity)

    def measure(
        self, *limits: Limit, early: int = 3, budget: float = 60.0, processes: int = 3
    ) -> Measurement:
        """Measure by an early look, unless ``early`` is 0."""
        return measure_performance(
            plan(limits=limits, early=early, budget=budget, processes=processes),
            self._predictor,
            lambda predictor: [],
            lambda number, result: self.results.append(result),
        )

    @property
    def in_full(self) -> list[bool]:
        """For each process whether it was measured in full."""
        return [result.record.in_full for result in self.results]


def constant(seconds: float) -> Callable[[int], float]:
    return lambda number: seconds


def alternating(seconds: float, share: float) -> Callable[[int], float]:
    """Return calls that are longer and shorter by a share in turn."""
    return lambda number: seconds * (1 + share * (-1) ** number)


ALIKE = [constant(0.000500), constant(0.000505), constant(0.000495)]


def test_limits_that_are_far_away_end_an_item_early() -> None:
    item = EarlyItem(*ALIKE)
    measured = item.measure(LIMIT, Limit("throughput", 20, PLACE))
    assert verdicts(measured) == [Verdict.PASSED, Verdict.PASSED]
    assert measured.ended == "early"
    assert item.in_full == [False, False, False]
    assert sum(item.results[0].run.latencies) == pytest.approx(0.25, abs=0.001)


def test_the_interval_of_an_early_end_is_the_one_that_decided() -> None:
    measured = EarlyItem(*ALIKE).measure(LIMIT)
    assert len(measured.looks) == 1
    look = measured.looks[0]
    assert look.processes == 3
    assert look.confidence > 0.99
    assert measured.estimates["latency_p50"].confidence == look.confidence
    assert measured.decisions[0].estimate is measured.estimates["latency_p50"]


def test_a_limit_that_is_clearly_broken_takes_three_processes_in_full() -> None:
    item = EarlyItem(*ALIKE)
    measured = item.measure(Limit("latency_p50", 0.0002, PLACE))
    assert verdicts(measured) == [Verdict.FAILED]
    assert measured.ended == "decided"
    assert item.in_full == [True, True, True]


def test_a_broken_limit_on_what_no_warm_up_changes_ends_an_item_early() -> None:
    measured = EarlyItem(*ALIKE).measure(Limit("load_time", 0.01, PLACE))
    assert verdicts(measured) == [Verdict.FAILED]
    assert measured.ended == "early"


def test_an_item_in_full_does_not_end_early() -> None:
    item = EarlyItem(*ALIKE)
    assert item.measure(LIMIT, early=0).ended == "decided"
    assert item.in_full == [True, True, True]


def test_an_item_without_limits_is_measured_in_full() -> None:
    item = EarlyItem(*ALIKE)
    assert item.measure().ended == "no limits"
    assert item.in_full == [True, True, True]


@pytest.mark.parametrize("limit", [0.000555, 0.00045, 0.0006])
def test_a_limit_nearby_takes_six_processes(limit: float) -> None:
    item = EarlyItem(*ALIKE)
    measured = item.measure(Limit("latency_p50", limit, PLACE))
    assert measured.ended == "decided"
    assert measured.looks[-1].processes == 6


def test_six_processes_are_taken_in_full_where_items_are() -> None:
    item = EarlyItem(*ALIKE)
    measured = item.measure(Limit("latency_p50", 0.0006, PLACE), early=0)
    assert verdicts(measured) == [Verdict.PASSED]
    assert item.in_full == [True] * 6


def test_three_processes_that_agree_do_not_decide_on_a_limit_nearby() -> None:
    fast_at_first = [constant(0.0008)] * 3 + [constant(0.0012)] * 3
    item = EarlyItem(*fast_at_first)
    measured = item.measure(Limit("latency_p50", 0.00099, PLACE), early=0)
    assert verdicts(measured) == [Verdict.INCONCLUSIVE]
    assert (
        "6 of 12 processes have 1.5 times the value of the others" in measured.decisions[0].reason
    )


def test_a_spent_budget_leaves_three_processes_undecided_on_a_limit_nearby(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fakes = FakeProcesses(monkeypatch, [0.0080, 0.0081, 0.0079], seconds=10)
    measurement = fakes.measure(plan(limits=(LIMIT,), budget=30))
    assert verdicts(measurement) == [Verdict.INCONCLUSIVE]
    assert measurement.decisions[0].reason.startswith(
        "3 processes can't show whether others are slower or faster, and the limit is within 30 %"
    )


def test_without_limits_more_processes_are_taken_where_one_stands_apart() -> None:
    item = EarlyItem(constant(0.002), constant(0.001), constant(0.001))
    measured = item.measure()
    assert measured.ended == "no limits"
    assert len(item.results) == 6
    assert measured.doubts == "latency_p50: 2 of 6 processes have 2 times the value of the others"


def test_one_limit_that_is_not_decided_early_keeps_the_others_waiting() -> None:
    item = EarlyItem(*ALIKE)
    measured = item.measure(LIMIT, Limit("latency_p99", 0.00055, PLACE))
    assert measured.ended == "decided"
    assert sum(item.in_full) == 3


def test_processes_that_differ_too_much_for_the_limit_are_measured_in_full() -> None:
    item = EarlyItem(constant(0.002), constant(0.002), constant(0.003))
    measured = item.measure(Limit("latency_p50", 0.0045, PLACE))
    assert item.in_full[:3] == [False, False, False]
    assert all(item.in_full[3:])
    assert sum(item.in_full) >= 3
    assert measured.looks[0].processes == 3
    assert len(measured.looks) >= 2


def test_a_process_that_may_reach_a_limit_is_measured_in_full() -> None:
    item = EarlyItem(lambda number: 0.008 * 1.002**number)
    item.measure(LIMIT)
    assert all(item.in_full)


def test_a_long_first_plateau_is_warm_up() -> None:
    item = EarlyItem(lambda number: 0.5 if number < 20 else 0.1)
    measured = item.measure(Limit("latency_p50", 0.2, PLACE))
    assert verdicts(measured) == [Verdict.PASSED]
    assert measured.estimates["latency_mean"].value == pytest.approx(0.1)
    assert all(result.record.steady for result in item.results)


def test_a_plateau_that_takes_half_of_the_time_is_warm_up() -> None:
    item = EarlyItem(lambda number: 0.5 if number < 20 else 0.1)
    limit = Limit("latency_p50", 0.3, PLACE)
    assert verdicts(item.measure(limit, budget=40)) == [Verdict.PASSED]


def test_a_long_first_plateau_is_warm_up_without_limits_too() -> None:
    measured = EarlyItem(lambda number: 0.5 if number < 20 else 0.1).measure()
    assert measured.estimates["latency_mean"].value == pytest.approx(0.1)
    assert measured.doubts == ""


def test_a_slow_decay_does_not_break_a_limit() -> None:
    item = EarlyItem(lambda number: 0.0009 + 0.009 * 0.999**number)
    measured = item.measure(Limit("latency_p50", 0.001, PLACE))
    assert verdicts(measured) == [Verdict.INCONCLUSIVE]
    assert measured.ended == "unsettled"
    assert not any(result.record.steady for result in item.results)
    assert "3 of 3 processes still got faster" in measured.decisions[0].reason
    assert measured.doubts.startswith("3 of 3 processes still got faster while they were timed")


def test_one_process_that_does_not_settle_is_followed_by_others() -> None:
    item = EarlyItem(lambda number: 0.0009 + 0.009 * 0.999**number)
    measured = item.measure(Limit("latency_p50", 3600.0, PLACE), early=0, processes=1)
    assert verdicts(measured) == [Verdict.PASSED]
    assert len(item.results) == 2


def test_a_limit_that_is_met_while_calls_still_get_faster_passes() -> None:
    item = EarlyItem(lambda number: 0.0009 + 0.009 * 0.999**number)
    measured = item.measure(Limit("latency_p50", 0.020, PLACE))
    assert verdicts(measured) == [Verdict.PASSED]


def test_a_run_whose_second_half_differs_is_measured_in_full() -> None:
    item = EarlyItem(lambda number: 0.002 if number < 250 else 0.003)
    item.measure(LIMIT)
    assert item.in_full[0]


def test_processes_that_fill_their_samples_have_no_early_look() -> None:
    item = EarlyItem(*ALIKE, capacity=100)
    measured = item.measure(LIMIT)
    assert item.in_full == [True, True, True]
    assert measured.ended == "decided"
    assert len(measured.looks) == 1


def test_a_limit_that_only_contention_breaks_does_not_end_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    invalid = [Decision(LIMIT, ESTIMATE, Verdict.INVALID)]
    monkeypatch.setattr(performance, "judge", lambda limits, estimates: invalid)
    assert EarlyItem(*ALIKE).measure(LIMIT).ended == "decided"


def test_an_open_limit_says_why_it_ended() -> None:
    calls = [alternating(seconds, 0.1) for seconds in (0.0090, 0.0110)]
    assert EarlyItem(*calls).measure(LIMIT).ended == "last look"
    assert EarlyItem(*ALIKE, capacity=50).measure(P99_LIMIT).ended == "lacking"


class Batches:
    """A predictor that gives outputs by the number of a batch."""

    device_facts: Any = None

    def __init__(self, batches: Sequence[Any]) -> None:
        self.run = with_output(batches[0]).run
        self._batches = batches

    def last_outputs(self, batch: int) -> dict[str, Any]:
        return {"logits": np.array(self._batches[batch])}

    def predict(self, batch: Any) -> dict[str, Any]:
        """Give twice the sum of the inputs, and far from whole numbers anything."""
        numbers = batch.get("x", np.zeros(1))
        is_chaos = numbers != np.trunc(numbers)
        return {"logits": np.where(is_chaos, np.sin(1e9 * numbers), 2 * numbers)}


def check_same(
    first: Sequence[Any], second: Sequence[Any], names: Any = (), facts: Any = None
) -> None:
    """Compare what two processes give for their batches; ``facts`` are those of a predictor."""
    check = performance.SameOutputs(plan(names=names))
    for number, batches in enumerate((first, second)):
        predictor: Any = Batches(batches)
        predictor.device_facts = facts
        digest = ScenarioRun(predictor.run.times, predictor.run.outputs, str(batches), 100)
        check.check(number + 1, predictor, digest, [{}] * len(batches))


def test_processes_that_compute_different_outputs_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results = iter([with_output([[1.0, 2.0]]), with_output([[1.0, 9.0]])])
    monkeypatch.setattr(performance, "measure_process", lambda *arguments: next(results))
    predictor: Any = contextlib.nullcontext(Batches([[0.0]]))
    message = "process 2 computed another 'logits' than process 1 .* times what rounding explains"
    with pytest.raises(OutputError, match=message):
        measure_performance(plan(), lambda: predictor, lambda _: [{}], lambda number, result: None)


@pytest.mark.parametrize(
    ("first", "second"),
    [([[1.0, 2.0]], [[1.0, 2.0001]]), ([[5.0]], [[5.0001]]), (3, 3)],
)
def test_outputs_may_differ_by_rounding(first: Any, second: Any) -> None:
    check_same([first], [second])


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        ([[1.0, 2.0]], [[1.0, 2.1]], "up to 476 times what rounding explains"),
        ([[1.0, 2.0]], [[1.0, 2.0], [1.0, 2.0]], r"is \(1, 2\), and \(2, 2\) of process 2"),
        ([[True, False]], [[True, True]], "inf times"),
        ([[1.0, 2.0]], [[1.0, math.nan]], "inf times"),
        ([[1, 2]], [[1.0, 2.0]], "is int64, and float64 of process 2"),
    ],
)
def test_outputs_that_differ_by_more_than_rounding_are_an_error(
    first: Any, second: Any, difference: str
) -> None:
    with pytest.raises(OutputError, match=difference):
        check_same([first], [second])


def test_a_model_that_says_that_it_keeps_a_state_is_called_that() -> None:
    with pytest.raises(
        OutputError, match=r"the model keeps a state from call to call \(sum\); make"
    ):
        check_same([[[1.0]]], [[[2.0]]], facts={KEPT_STATE: "sum"})
    with pytest.raises(
        OutputError, match="a state that the model keeps, uninitialised memory or a"
    ):
        check_same([[[1.0]]], [[[2.0]]])


def test_all_batches_that_are_timed_are_compared() -> None:
    right = [[1.0, 2.0]]
    with pytest.raises(OutputError, match="process 2 computed another 'logits' than process 1"):
        check_same([right] * 8, [*[right] * 7, [[1.0, 102.0]]])


def test_nan_is_found_in_every_batch_and_its_input_named() -> None:
    batches = [[[1.0], [2.0]], [[1.0], [math.nan]]]
    with pytest.raises(OutputError, match="first for number 1, row 3"):
        check_same(batches, batches, names=[["row 0", "row 1"], ["row 2", "row 3"]])


def test_a_quantity_without_a_value_is_in_the_decisions_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = Limit("energy_per_input", 1.0, PLACE)
    processes = FakeProcesses(monkeypatch, [0.002] * 20)
    measurement = processes.measure(plan(limits=[limit]))
    assert "energy_per_input" not in measurement.estimates
    (decision,) = measurement.decisions
    assert decision.estimate.lacking == "it was not measured"
    assert measurement.ended == "lacking"


MIX = Mix(("16", "512"), (0.75, 0.25))
BATCHES = TimedBatches([{}, {}], [(0,), (1,)], [0, 1], MIX, [0, 0, 0, 1])


def uneven_process(short: float, long: float) -> ProcessResult:
    """Return the result of a process of which every fourth input is long."""
    run = scenario_run([short, short, short, long] * 100)
    return replace(result_of(run), batches=BATCHES)


def decide(quantity: str, limit: float, long: float) -> Decision:
    results = [uneven_process(0.010 + number * 1e-5, long + number * 1e-5) for number in range(6)]
    limits = [Limit(quantity, limit, Place(Path("m.yaml"), 1))]
    decisions = judge(limits, estimate_performance(results, 0.95))
    (found,) = judge_groups(decisions, results, 0.95)
    return found


@pytest.mark.parametrize(
    ("limit", "verdict"), [(0.05, Verdict.PASSED), (0.03, Verdict.FAILED), (0.005, Verdict.FAILED)]
)
def test_the_worst_group_decides(limit: float, verdict: Verdict) -> None:
    found = decide("latency_p50", limit, long=0.040)
    assert (found.verdict, found.group) == (verdict, "512")
    assert found.estimate.value == pytest.approx(0.040, rel=0.01)
    assert found.estimate.confidence == pytest.approx(0.975)


def test_limits_on_other_quantities_are_on_the_mix() -> None:
    assert decide("peak_memory", 2000, long=0.040).group == ""


def test_a_group_that_no_timed_call_had_is_open() -> None:
    """A rare shape is one of 200 calls, and a slow model's processes have some 20."""
    rare = TimedBatches(
        [{}, {}], [(0,), (1,)], [0, 1], Mix(MIX.names, (0.99, 0.01)), [0] * 99 + [1]
    )
    results = [replace(uneven_process(0.010, 0.010), batches=rare) for _ in range(6)]
    timed = [replace(result, run=scenario_run([0.010] * 20)) for result in results]
    limits = [Limit("latency_p50", 0.05, PLACE)]
    for each, verdict in ((results, Verdict.PASSED), (timed, Verdict.INCONCLUSIVE)):
        (found,) = judge_groups(judge(limits, estimate_performance(each, 0.95)), each, 0.95)
        assert found.verdict is verdict
    assert found.group == "512"
    assert "no timed call had such inputs" in explain(found)


def test_a_percentile_that_a_group_has_too_few_calls_for_is_open() -> None:
    found = decide("latency_p99", 0.05, long=0.040)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "had 100" in found.estimate.lacking
