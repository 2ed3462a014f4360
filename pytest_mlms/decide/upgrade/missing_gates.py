"""Gates that nothing measured: each is open, and says why."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Comparison
from pytest_mlms.core.statistics import samples_for_percentile
from pytest_mlms.decide.upgrade.criteria import Criteria
from pytest_mlms.decide.upgrade.device_memory import is_untold, reason_untold
from pytest_mlms.decide.upgrade.late_calls import LEAST_CALLS, SECONDS
from pytest_mlms.decide.upgrade.round_record import RoundRecord
from pytest_mlms.decide.upgrade.rounds import SIDES

MISSING = "nothing"
"""The name of the samples of a quantity that has none."""

_DEVICE_MEMORY = "device_memory"
_OF_ONE_SIDE = {
    "peak_memory": ("peak_bytes", "can't reset the peak, so it may be that of the import"),
    "start_time": ("interpreter_seconds", "has another clock, so its start isn't known"),
}
"""Quantity -> the attribute of a side's record that is None where it isn't told, and the reason."""
_OF_DATASET = "it takes a dataset whose inputs are timed in several rounds"
_COARSE = "the clock is too coarse for single calls"
_REASONS = {
    "latency_p90": _COARSE,
    "latency_p95": _COARSE,
    "latency_p99": f"it takes {samples_for_percentile(99)} calls of a side in a round; raise "
    "--mlms-budget",
    "throughput": _COARSE,
    "stalls": _COARSE,
    "group_latency": "the timed inputs have one shape",
    "slow_inputs": _OF_DATASET,
    "late_latency": f"{LEAST_CALLS} calls take more than {SECONDS:g} s, or {_COARSE}",
    "peak_memory": "this kernel can't reset the peak, so it may be that of the import",
    _DEVICE_MEMORY: "no counter of the GPU's memory told it",
    "energy_per_input": "the device has no counter of energy",
}


def missing_gates(
    criteria: Criteria, comparisons: Sequence[Comparison], rounds: Sequence[RoundRecord] = ()
) -> list[Comparison]:
    """Return an open comparison for each gate that has none.

    There is also one for memory of a GPU that no counter tells of both sides, and for what a single
    side tells.
    """
    compared = {comparison.quantity for comparison in comparisons}
    names = [*criteria.gates]
    if is_untold(rounds) and _DEVICE_MEMORY not in names:
        names.append(_DEVICE_MEMORY)
    names += [name for name in _OF_ONE_SIDE if _silent(name, rounds) and name not in names]
    return [_missing(name, criteria, rounds) for name in names if name not in compared]


def _missing(name: str, criteria: Criteria, rounds: Sequence[RoundRecord]) -> Comparison:
    quantity = QUANTITIES[name]
    reason = _REASONS.get(name, "no round measured it")
    if name == _DEVICE_MEMORY and rounds:
        reason = reason_untold(rounds[-1])
    if side := _silent(name, rounds):
        reason = f"{side} {_OF_ONE_SIDE[name][1]}"
    if quantity.kind == "accuracy":
        reason = "the model's outputs and labels don't give it"
    return Comparison(
        quantity=name,
        a=math.nan,
        b=math.nan,
        unit=quantity.unit,
        tolerance=criteria.tolerances.get(name, 0.0),
        gate=name in criteria.gates,
        replicates=0,
        of=MISSING,
        lacking=f"not measured: {reason}",
    )


def _silent(name: str, rounds: Sequence[RoundRecord]) -> str:
    """Return the side that doesn't tell a quantity which the other one tells, "" for none."""
    if not rounds or name not in _OF_ONE_SIDE:
        return ""
    sides = rounds[-1].sides
    silent = [side for side in SIDES if getattr(sides[side], _OF_ONE_SIDE[name][0]) is None]
    return silent[0].upper() if len(silent) == 1 else ""
