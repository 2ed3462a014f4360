"""Latency by the groups of a workload's inputs: what a mix of shapes hides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from pytest_mlms.core.records import Decision, Estimate, InputGroup
from pytest_mlms.core.statistics import student_interval
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.contention import latencies_less_wait
from pytest_mlms.measure.evaluate.limits import judge, margin, worst
from pytest_mlms.measure.evaluate.process_estimates import estimate_performance
from pytest_mlms.measure.evaluate.process_result import ProcessResult
from pytest_mlms.measure.evaluate.timed_inputs import TimedBatches, cycle_of, groups_of, mix_of


def latency_by_group(results: Sequence[ProcessResult], confidence: float) -> list[InputGroup]:
    """Return the latency of each group, the smallest shapes first; [] where all have one shape."""
    mix = mix_of(results[0].batches)
    if len(mix.names) == 1:
        return []
    found = []
    for group, (name, share) in enumerate(zip(*mix, strict=True)):
        medians = [each.median for each in _of_group(results, group)]
        if medians:
            interval = student_interval(medians, confidence)
            inputs = inputs_timed(results, group)
            found.append(InputGroup(name, share, fmean(medians), *interval, inputs))
    return found


def judge_groups(
    decisions: Sequence[Decision], results: Sequence[ProcessResult], confidence: float
) -> list[Decision]:
    """Return the decisions, those on latency by the group of inputs that is worst.

    With G groups each interval has a G-th of the risk, so that the worst one is outside by chance
    no more often than that of one group: Holm's first step. All must be inside.
    """
    names = mix_of(results[0].batches).names
    each = 1 - (1 - confidence) / len(names)
    groups = {}
    for group, name in enumerate(names):
        chosen = _of_group(results, group)
        if chosen:
            groups[name] = estimate_performance(chosen, each)
    return [_of_worst_group(decision, groups) for decision in decisions]


def _of_worst_group(decision: Decision, groups: Mapping[str, Mapping[str, Estimate]]) -> Decision:
    """Return a decision on latency for the worst of the groups; others as they are."""
    if not decision.limit.quantity.startswith("latency_"):
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
    return {
        "start": times["start"][chosen],
        "end": times["end"][chosen],
        "wait": np.concatenate([[0.0], np.cumsum(waits[chosen])]),
        "at": np.arange(chosen.sum() + 1.0),
    }


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
