"""Latency by the groups of a workload's inputs: what a mix of shapes hides."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from pytest_mlms.evaluate.process_result import ProcessResult
from pytest_mlms.evaluate.timed_inputs import TimedBatches, cycle_of, groups_of, mix_of
from pytest_mlms.records import InputGroup
from pytest_mlms.statistics import student_interval

__all__ = ["inputs_timed", "latency_by_group"]


def latency_by_group(results: Sequence[ProcessResult], confidence: float) -> list[InputGroup]:
    """Return the latency of each group, the smallest shapes first; [] where all have one shape."""
    mix = mix_of(results[0].batches)
    if len(mix.names) == 1:
        return []
    found = []
    for group, (name, share) in enumerate(zip(*mix, strict=True)):
        medians = []
        for result in results:
            cycle = cycle_of(result.batches)
            latencies = result.run.latencies
            of_calls = groups_of(result.batches)[cycle[np.arange(len(latencies)) % len(cycle)]]
            chosen = latencies[of_calls == group]
            if len(chosen):
                medians.append(float(np.median(chosen)))
        if medians:
            interval = student_interval(medians, confidence)
            inputs = inputs_timed(results, group)
            found.append(InputGroup(name, share, fmean(medians), *interval, inputs))
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
