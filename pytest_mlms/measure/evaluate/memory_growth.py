"""Growth of a process's memory: the bytes that each call adds.

Resident memory moves in steps: pages, arenas of allocators, buffers that are made late, garbage
that Python collects from time to time. A leak grows all the time. So the growth between two
readings may be anything, and what looks like a leak is watched for longer, with a reading after
each block of calls, for which Python's garbage is collected. A small leak fits for thousands of
calls into what was freed before them, so that what malloc has given out is watched, too.
"""

from __future__ import annotations

import math

import numpy as np
from mlms_predictors._run.replies import UsageReply

from pytest_mlms.core.statistics import theil_sen
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Array

SUSPECT = 256.0
"""Bytes a call; a process that grows by more, by two readings, is watched."""

_ONCE = 32768
"""Bytes that a process may take once, such as buffers of its output.

ONNX Runtime's take 24 KiB in their first hundred turns.
"""

SECONDS = 5.0
"""The longest time that a process is watched for."""

_CALLS = 2000  # that a process is watched for, or the seconds
_BLOCKS = 24
_PARTS = 3
_LEAST_BLOCKS = 2 * _PARTS  # of slow calls: two readings have a slope


def held(usage: UsageReply) -> int:
    """Return the bytes that a process holds on the host and on its device."""
    return usage.memory + (usage.device_memory or 0)


def growth_of(before: UsageReply, after: UsageReply, calls: int) -> float:
    """Return the bytes that each of so many calls added, resident or as allocated by malloc."""
    resident = growth_between(held(before), held(after), calls)
    return max(resident, growth_between(before.allocated, after.allocated, calls))


def slope_of(calls: Array, memory: Array) -> float:
    """Return the bytes that a call adds, given the memory after so many calls.

    The least of Theil and Sen's slopes over three parts of the calls, 0 where it is below: memory
    that moves in a step, or less and less, grows in some of them only.
    """
    parts = zip(np.array_split(calls, _PARTS), np.array_split(memory, _PARTS), strict=True)
    return max(0.0, min(theil_sen(*part) for part in parts))


def growth_between(before: int, after: int, calls: int) -> float:
    """Return the bytes that a call adds, by what was held before and after so many calls.

    It is 0 for what a process may take once.
    """
    return max(0, after - before - _ONCE) / calls


def watch_growth(predictor: Predictor, call_seconds: float, seconds: float) -> float:
    """Return the bytes that a call adds, by some thousand calls, or ``seconds`` of them.

    A few are made however long they take. The model's batches must be bound. Raises AgentError.
    """
    calls = max(_LEAST_BLOCKS, min(_CALLS, seconds / call_seconds))
    blocks = min(_BLOCKS, int(calls))
    count = math.ceil(calls / _BLOCKS)
    predictor.usage(collect=True)
    resident = []
    allocated = []
    for _ in range(blocks):
        predictor.turn(count)
        usage = predictor.usage(collect=True)
        resident.append(held(usage))
        allocated.append(usage.allocated)
    made = count * np.arange(blocks)
    return max(slope_of(made, np.array(memory)) for memory in (resident, allocated))
