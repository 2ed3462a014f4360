"""Acceptance criteria and run parameters of an upgrade, and the gates that nothing measured."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from pytest_mlms.config import Config, draw_seed
from pytest_mlms.core.errors import InvalidRun
from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Comparison
from pytest_mlms.core.statistics import samples_for_percentile
from pytest_mlms.decide.expected import gates_of
from pytest_mlms.decide.upgrade.figures import by_one_counter
from pytest_mlms.decide.upgrade.interleave_plan import LEAST_CALLS, InterleavePlan
from pytest_mlms.decide.upgrade.late_calls import CALLS_BEFORE, LATE_SECONDS
from pytest_mlms.decide.upgrade.round_estimate import LEAST_ROUNDS, ROUNDS, RoundSpan
from pytest_mlms.decide.upgrade.round_record import RoundRecord
from pytest_mlms.decide.upgrade.rounds import SIDES, Clock
from pytest_mlms.provide.cases import Case

SHARE_OF_TOLERANCE = 0.2
"""Of the tolerance of latency: the error of a round that is small beside it."""

SHARE_OF_DURATION = 0.75
"""Of --mlms-duration, for the turns of both sides of a round together."""


@dataclass(frozen=True)
class Criteria:
    """Acceptance criteria of an upgrade.

    ``tolerances`` by quantity override the defaults, ``gates`` are the quantities that must be
    shown to be within their tolerances, and ``clock`` is the clock asked for (None: the best one
    that both sides have). ``places`` has the line or the option that set each tolerance, also that
    of the agreement of outputs; a default has none. ``rounds`` are how many there may be.
    """

    tolerances: Mapping[str, float]
    gates: Sequence[str] = ("latency",)
    clock: Clock | None = None
    places: Mapping[str, str] = field(default_factory=dict)
    rounds: RoundSpan = ROUNDS


def criteria_of(case: Case, config: Config) -> Criteria:
    """Return the criteria of a case, whose gates are the ones that it is expected to decide."""
    gates = gates_of(case, config)
    places = {name: gate.place for name, gate in gates.items() if gate.place}
    if case.agreement is not None:
        places["agreement"] = str(case.loaded.place("thresholds", "agreement"))
    return Criteria(
        tolerances={name: gate.tolerance for name, gate in gates.items()},
        gates=tuple(gates),
        clock=cast("Clock | None", config.clock),
        places=places,
        rounds=rounds_of(config),
    )


def rounds_of(config: Config) -> RoundSpan:
    """Return the rounds that the command line asks for, else the default."""
    if config.rounds is None:
        return ROUNDS
    least, most = config.rounds
    return RoundSpan(min(LEAST_ROUNDS, most) if least is None else least, most)


def interleave_plan_of(case: Case, config: Config) -> InterleavePlan:
    """Return the run parameters of a case.

    It runs on as many cores as the side with more threads has, of those that both may use. Raises
    InvalidRun where there are none.
    """
    criteria = criteria_of(case, config)
    return InterleavePlan(
        seconds=SHARE_OF_DURATION * config.duration,
        budget=config.budget,
        seed=draw_seed(config.seed),
        cores=_common_cores(case),
        threads=_most_threads(case),
        watches_growth="memory_growth" in criteria.gates,
        watches_late="late_latency" in criteria.gates,
        rounds=rounds_of(config),
        precision=0.0 if config.full else precision_of(criteria),
        least_calls=least_calls(criteria),
        covers_batches="group_latency" in criteria.gates,
        fills_caches=case.caches == "warm",
        batch_size=case.batch_size,
    )


def precision_of(criteria: Criteria) -> float:
    """Return the error of a round's latency that is small beside its tolerance.

    It is 0 where a gate needs the calls of the whole time.
    """
    percentiles = {name for name in criteria.gates if QUANTITIES[name].percent or name == "itl"}
    of_rare_calls = percentiles.union({"throughput", "stalls"}.intersection(criteria.gates))
    if "latency" not in criteria.gates or of_rare_calls:
        return 0.0
    return SHARE_OF_TOLERANCE * criteria.tolerances["latency"]


def least_calls(criteria: Criteria) -> int:
    """Return the calls of a round that the percentiles among the gates need."""
    percentiles = [QUANTITIES[name].percent for name in criteria.gates]
    return max([LEAST_CALLS, *(samples_for_percentile(each) for each in percentiles if each)])


def _most_threads(case: Case) -> int | None:
    """Return the threads of the side that has more; None where one chooses its own number."""
    if case.threads is None or case.baseline.threads is None:
        return None
    return max(case.threads, case.baseline.threads)


def _common_cores(case: Case) -> list[int]:
    """Return the cores that both sides may use; none where the system does not tell."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    cores = set(os.sched_getaffinity(0))
    for stack in (case.stack, case.baseline.stack):
        if stack.cores:
            cores &= set(stack.cores)
    if not cores:
        raise InvalidRun(
            f"{case.stack.name} and {case.baseline.stack.name} have no core in common that this "
            f"process may use; give both the same cores"
        )
    return sorted(cores)


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
    "late_latency": f"{CALLS_BEFORE} calls take more than {LATE_SECONDS:g} s, or {_COARSE}",
    "tpot": "no answer has a second token",
    "itl": f"it takes {samples_for_percentile(99)} gaps between tokens of a side in a round; raise "
    "--mlms-budget",
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
    if _is_memory_untold(rounds) and _DEVICE_MEMORY not in names:
        names.append(_DEVICE_MEMORY)
    names += [name for name in _OF_ONE_SIDE if _silent(name, rounds) and name not in names]
    return [_missing(name, criteria, rounds) for name in names if name not in compared]


def _missing(name: str, criteria: Criteria, rounds: Sequence[RoundRecord]) -> Comparison:
    quantity = QUANTITIES[name]
    reason = _REASONS.get(name, "no round measured it")
    if name == _DEVICE_MEMORY and rounds:
        reason = _why_memory_untold(rounds[-1])
    if side := _silent(name, rounds):
        reason = f"{side} {_OF_ONE_SIDE[name][1]}"
    for record in rounds[-1].sides.values() if rounds else ():
        reason = (record.unmeasured or {}).get(name, reason)
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


def _is_memory_untold(rounds: Sequence[RoundRecord]) -> bool:
    """Return whether a side runs on a GPU, and no counter tells the memory of both."""
    if not rounds:
        return False
    a, b = (rounds[-1].sides[side].device_memory for side in ("a", "b"))
    return (a, b) != (None, None) and by_one_counter(a, b) == (None, None)


def _why_memory_untold(record: RoundRecord) -> str:
    """Return why a round doesn't compare memory of a GPU."""
    texts = []
    for name, side in sorted(record.sides.items()):
        found = side.device_memory
        if found is None:
            texts.append(f"{name.upper()} runs on the CPU")
        elif found.counters:
            texts.append(f"{name.upper()} tells it by {' and '.join(found.counters)}")
        else:
            texts.append(f"{name.upper()} doesn't tell it: {found.missing}")
    return ", ".join(texts)
