"""Performance over fresh processes, which are added until the limits are decided.

Where inputs have several shapes, latency is told by the groups of these, which their mix hides.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from statistics import fmean
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from mlms_predictors._run.protocol import KEPT_STATE

from pytest_mlms.core.errors import OutputError
from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Decision, Estimate, InputGroup, Verdict
from pytest_mlms.core.statistics import student_interval
from pytest_mlms.measure.agent.predictor import Predictor, ScenarioRun
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.closeness import (
    NearbyOutputs,
    check_finite,
    finite_rows,
    nearby_outputs,
)
from pytest_mlms.measure.evaluate.doubts import describe_doubts, is_promising, kinds_of, withhold
from pytest_mlms.measure.evaluate.fresh_process import Batches, measure_process
from pytest_mlms.measure.evaluate.limits import judge, margin, worst
from pytest_mlms.measure.evaluate.output_sweep import largest_difference
from pytest_mlms.measure.evaluate.performance_plan import (
    EARLY_PROCESSES,
    ENOUGH,
    MULTIPLES,
    ROOM,
    Look,
    PerformancePlan,
    are_clear,
    are_promising,
    needed_room,
)
from pytest_mlms.measure.evaluate.process_result import (
    ProcessResult,
    estimate_performance,
    unmeasured,
)
from pytest_mlms.measure.evaluate.steadiness import latencies_less_wait
from pytest_mlms.measure.evaluate.timed_inputs import (
    TimedBatches,
    cycle_of,
    elements_of,
    groups_of,
    mix_of,
)

Ending: TypeAlias = Literal[
    "early", "decided", "lacking", "unsettled", "last look", "budget", "no limits"
]
"""The reason why no more processes were measured; docs/results.md describes them."""


class Measurement(NamedTuple):
    """The estimates over fresh processes, and the decisions on the limits at the last look.

    ``doubts`` is what a person should know of the processes, "" where there is nothing. ``groups``
    are those of the inputs, where they have several shapes; ``inputs`` of a dataset were timed.
    """

    estimates: dict[str, Estimate]
    decisions: list[Decision]
    looks: tuple[Look, ...]
    ended: Ending
    doubts: str
    groups: Sequence[InputGroup] = ()
    inputs: int = 0


_UNTIMED = "no timed call had such inputs; raise --mlms-duration"
_SECONDS_OF_OUTPUTS = 0.25  # that calls for the outputs of a process may take
_MOST_KEPT = 8  # batches whose outputs are kept for the processes to come


class _Processes:
    """Fresh processes that are timed one after the other, and the looks at them."""

    def __init__(
        self,
        plan: PerformancePlan,
        new_predictor: Callable[[], AbstractContextManager[Predictor]],
        batches_for: Callable[[Predictor], Batches],
        keep: Callable[[int, ProcessResult], None],
        clock: Callable[[], float],
    ) -> None:
        self._plan = plan
        self._new_predictor = new_predictor
        self._batches_for = batches_for
        self._keep = keep
        self._clock = clock
        self._began = clock()
        self._longest = 0.0
        self._looks: list[Look] = []
        self._same_outputs = SameOutputs(plan)
        self.results: list[ProcessResult] = []

    def fill(self, in_full: int) -> None:
        """Measure processes until so many are in full, and enough for a limit that is close.

        Of those beyond the plan's number, only as many as the budget allows.
        """
        while self.in_full < in_full:
            if self.in_full >= self._plan.processes and self.is_spent():
                break
            self.add(early=False)
        while self.are_few() and not self.is_spent():
            self.add(early=self._plan.may_end_early)

    @property
    def in_full(self) -> int:
        """The number of processes that were measured in full."""
        return sum(result.record.in_full for result in self.results)

    def add(self, early: bool) -> ProcessResult:
        """Measure one more process, ``early`` for a short time if that may be enough."""
        began = self._clock()
        with self._new_predictor() as predictor:
            batches = self._batches_for(predictor)
            result = measure_process(self._plan, predictor, batches, early)
            self._longest = max(self._longest, self._clock() - began)
            self.results.append(result)
            self._keep(len(self.results) - 1, result)
            self._same_outputs.check(len(self.results), predictor, result.run, batches)
        return result

    def is_spent(self) -> bool:
        """Return whether one more process would pass the budget if it took as long as any."""
        spent = self._clock() - self._began
        return spent + self._longest > self._plan.budget

    def look(self, confidence: float) -> Measurement:
        """Judge the limits on the processes so far."""
        self._looks.append(Look(len(self.results), confidence))
        estimates = estimate_performance(self.results, confidence)
        judged = judge(self._plan.limits, estimates)
        if self._plan.by_group:
            judged = judge_groups(judged, self.results, confidence)
        decisions = withhold(judged, self.results)
        doubts = describe_doubts(self.results)
        measured = {name: found for name, found in estimates.items() if has_value(found)}
        return Measurement(
            measured,
            decisions,
            tuple(self._looks),
            "decided",
            doubts,
            latency_by_group(self.results, confidence),
            inputs_timed(self.results),
        )

    def never_settle(self) -> bool:
        """Return whether no process settled, of enough to say that others won't either."""
        settled = [result.settling.is_settled for result in self.results]
        return len(settled) >= EARLY_PROCESSES and not any(settled)

    def are_few(self) -> bool:
        """Return whether there are too few processes for a limit as close as one of the plan's."""
        if len(self.results) >= ENOUGH:
            return False
        estimates = estimate_performance(self.results, self._plan.early_confidence)
        limits = [limit for limit in self._plan.limits if not estimates[limit.quantity].lacking]
        return not are_promising(limits, estimates, ROOM)


def has_value(estimate: Estimate) -> bool:
    """Return whether there is a number; a quantity without one is in the decisions only."""
    return not math.isnan(estimate.value)


def measure_performance(
    plan: PerformancePlan,
    new_predictor: Callable[[], AbstractContextManager[Predictor]],
    batches_for: Callable[[Predictor], Batches],
    keep: Callable[[int, ProcessResult], None],
    clock: Callable[[], float] = time.monotonic,
) -> Measurement:
    """Time fresh processes until the limits are decided, and return what they say together.

    The processes are the replicates. A few short ones may decide every limit clearly. Otherwise
    there are N of them in full, then twice as many and twice that again while a limit lies inside
    its interval and the budget lasts, by the ``clock``. ``keep`` gets the number and the result of
    each process when it is done. Raises OutputError where outputs aren't finite, or where two
    processes compute different ones.
    """
    processes = _Processes(plan, new_predictor, batches_for, keep, clock)
    if _measure_early(plan, processes):
        measurement = processes.look(plan.early_confidence)
        room = max(needed_room(result.run.latencies) for result in processes.results)
        if are_clear(measurement.decisions, ROOM * room):
            return measurement._replace(ended="early")
    for multiple, confidence in zip(MULTIPLES, plan.confidences, strict=False):
        processes.fill(multiple * plan.processes)
        measurement = processes.look(confidence)
        if not _is_open(plan, measurement, processes.results):
            return measurement._replace(ended=_ending(measurement.decisions))
        if processes.never_settle():
            return measurement._replace(ended="unsettled")
        if processes.is_spent():
            return measurement._replace(ended="budget")
    return measurement._replace(ended="last look")


def _measure_early(plan: PerformancePlan, processes: _Processes) -> bool:
    """Measure short processes, and return whether they are worth an early look.

    They are not as soon as one of them can't bear a decision. Neither are they where all of them
    were measured in full, because the shortest run takes that long.
    """
    if not plan.may_end_early:
        return False
    for _ in range(plan.early):
        result = processes.add(early=True)
        if not is_promising(plan, result):
            return False
    return processes.in_full < plan.early


def _is_open(
    plan: PerformancePlan, measurement: Measurement, results: Sequence[ProcessResult]
) -> bool:
    """Return whether more processes may help: to decide a limit, or to tell kinds of processes."""
    if plan.limits:
        return any(
            decision.verdict is Verdict.INCONCLUSIVE and not decision.estimate.lacking
            for decision in measurement.decisions
        )
    return len(results) < ENOUGH and kinds_of("latency_p50", results) is not None


def _ending(decisions: Sequence[Decision]) -> Ending:
    """Return why an item without open limits ends."""
    if not decisions:
        return "no limits"
    if any(decision.estimate.lacking for decision in decisions):
        return "lacking"
    return "decided"


class SameOutputs:
    """Check that processes compute the same from the same inputs, after each has been timed."""

    def __init__(self, plan: PerformancePlan) -> None:
        self._names = plan.names
        self._rules = plan.rules
        self._expected: dict[Any, Mapping[str, Array]] = {}

    def check(self, number: int, predictor: Predictor, run: ScenarioRun, batches: Batches) -> None:
        """Raise OutputError where process ``number`` computed NaN, or others than one before.

        ``run`` is the last of it, with the outputs of the first batch, which is the same in each
        process. Further ones are called again, as many as take little time.
        """
        call = float(np.median(run.latencies))
        most = max(1, int(_SECONDS_OF_OUTPUTS / call)) if call else len(batches)
        for batch, elements in enumerate(elements_of(batches)[: 1 + most] or [()]):
            found = predictor.last_outputs(batch) if batch else run.outputs
            is_drawn_anew = batch and isinstance(batches, TimedBatches)
            key = elements if is_drawn_anew else batch
            expected = self._expected.get(key)
            if expected is None:
                names = self._names_of(batches, batch)
                for output_name, output in found.items():
                    finite = finite_rows(output)
                    check_finite(
                        output_name,
                        finite,
                        names.__getitem__ if len(finite) == len(names) else None,
                    )
                if key != () and len(self._expected) < _MOST_KEPT:
                    self._expected[key] = found
                continue
            nearby = functools.partial(_nearby, predictor, batches, batch)
            other = f"process {number}"
            name, difference = largest_difference(expected, found, other, nearby, self._rules)
            if name:
                raise OutputError(
                    f"{other} computed another {name!r} than process 1 from the same inputs, "
                    f"{difference}; what is timed must be right: {_likely_cause(predictor)}"
                )

    def _names_of(self, batches: Batches, batch: int) -> Sequence[str]:
        names = batches.names if isinstance(batches, TimedBatches) else self._names
        return names[batch] if batch < len(names) else []


def _likely_cause(predictor: Predictor) -> str:
    """Return what makes the outputs of a process depend on more than its inputs, and what to do."""
    state = (predictor.device_facts or {}).get(KEPT_STATE)
    if state is None:
        return "look for a state that the model keeps, uninitialised memory or a race"
    return (
        f"the model keeps a state from call to call ({state}); make that an input and an output "
        f"of it, and write 'from_output'"
    )


def _nearby(predictor: Predictor, batches: Batches, batch: int) -> NearbyOutputs:
    return nearby_outputs(predictor.predict, batches[batch])


def latency_by_group(results: Sequence[ProcessResult], confidence: float) -> list[InputGroup]:
    """Return the latency of each group, the smallest shapes first; [] where all have one shape."""
    mix = mix_of(results[0].batches)
    if len(mix.names) == 1:
        return []
    found = []
    for group, (name, share) in enumerate(zip(*mix, strict=True)):
        chosen = _of_group(results, group)
        if chosen:
            medians = [each.median for each in chosen]
            interval = student_interval(medians, confidence)
            inputs = inputs_timed(results, group)
            of_group = InputGroup(name, share, fmean(medians), *interval, inputs)
            tokens = [each.tokens for each in chosen if each.tokens]
            if tokens:
                ttft = fmean(each.usual_first for each in tokens)
                tpot = fmean(each.usual_each for each in tokens)
                of_group = replace(of_group, ttft=ttft, tpot=None if math.isnan(tpot) else tpot)
            found.append(of_group)
    return found


def judge_groups(
    decisions: Sequence[Decision], results: Sequence[ProcessResult], confidence: float
) -> list[Decision]:
    """Return the decisions, those on latency by the group of inputs that is worst.

    With G groups each interval has a G-th of the risk, so that the worst one is outside by chance
    no more often than one group's would be: Holm's first step. All must be inside, and one that no
    call had is open.
    """
    names = mix_of(results[0].batches).names
    each = 1 - (1 - confidence) / len(names)
    groups = {}
    for group, name in enumerate(names):
        chosen = _of_group(results, group)
        if chosen:
            groups[name] = estimate_performance(chosen, each)
        else:
            groups[name] = dict.fromkeys(QUANTITIES, unmeasured(_UNTIMED, 0, each))
    return [_of_worst_group(decision, groups) for decision in decisions]


def _of_worst_group(decision: Decision, groups: Mapping[str, Mapping[str, Estimate]]) -> Decision:
    """Return a decision on latency or tokens for the worst of the groups; others as they are."""
    quantity = decision.limit.quantity
    if not quantity.startswith("latency_") and quantity not in ("ttft", "tpot", "itl"):
        return decision
    found = [decision]
    for name, estimates in groups.items():
        (judged,) = judge([decision.limit], estimates)
        found.append(replace(judged, group=name))
    verdict = worst([each.verdict for each in found])
    return min((each for each in found if each.verdict is verdict), key=lambda each: margin([each]))


def _of_group(results: Sequence[ProcessResult], group: int) -> list[ProcessResult]:
    """Return what processes measured in the calls of a group; those that had none are left out."""
    found = []
    for result in results:
        cycle = cycle_of(result.batches)
        count = len(result.run.latencies)
        chosen = groups_of(result.batches)[cycle[np.arange(count) % len(cycle)]] == group
        if chosen.any():
            times = _times_of(result.run.times, chosen)
            record = replace(result.record, calls=int(chosen.sum()))
            found.append(replace(result, record=record, run=replace(result.run, times=times)))
    return found


def _times_of(times: Mapping[str, Array], chosen: Array) -> dict[str, Array]:
    """Return the times of some calls, with the wait of each."""
    waits = times["end"] - times["start"] - latencies_less_wait(times)
    found = {
        "start": times["start"][chosen],
        "end": times["end"][chosen],
        "wait": np.concatenate([[0.0], np.cumsum(waits[chosen])]),
        "at": np.arange(chosen.sum() + 1.0),
    }
    if "tokens" in times:
        of_tokens = np.repeat(chosen, times["tokens"].astype(int))
        found["tokens"] = times["tokens"][chosen]
        found.update((name, times[name][of_tokens]) for name in ("token", "token_wait"))
    return found


def inputs_timed(results: Sequence[ProcessResult], group: int | None = None) -> int:
    """Return how many inputs of a dataset were timed, of one ``group`` or of all."""
    elements: set[int] = set()
    for result in results:
        batches = result.batches
        if isinstance(batches, TimedBatches):
            calls = min(len(result.run.latencies), len(batches.cycle))
            for number in set(batches.cycle[:calls]):
                if group in (None, batches.groups[number]):
                    elements.update(batches.elements[number])
    return len(elements)
