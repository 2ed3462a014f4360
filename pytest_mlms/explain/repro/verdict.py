"""The verdict on a bundle: its model runs on its sides, and the gate's own code decides.

Outputs are compared by the sweep of an upgrade, times and memory in its rounds, and a limit in the
processes of a performance item. No rule is made here.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pytest_mlms.config import draw_seed
from pytest_mlms.core.errors import AgentError, MlmsError
from pytest_mlms.core.quantities import upgrade_rules
from pytest_mlms.core.records import Comparison, Limit, Place, Verdict
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.criteria import (
    SHARE_OF_DURATION,
    Criteria,
    least_calls,
    precision_of,
)
from pytest_mlms.decide.upgrade.interleave_plan import InterleavePlan
from pytest_mlms.decide.upgrade.labels import straddling_text, tolerance_label
from pytest_mlms.decide.upgrade.output_check import OutputFindings
from pytest_mlms.decide.upgrade.output_verdict import (
    Circumstances,
    agreement_of,
    without_measure,
)
from pytest_mlms.decide.upgrade.round_estimate import ROUNDS, RoundSpan
from pytest_mlms.decide.upgrade.rounds import Outputs, SideName
from pytest_mlms.decide.upgrade.run import UpgradeRun
from pytest_mlms.explain.bisect.judgement import ending_of
from pytest_mlms.explain.repro.bundle import Bundle, Expectation
from pytest_mlms.explain.repro.expectation import is_at_exit, told_to_others
from pytest_mlms.explain.repro.replay.record import ANSWERS, CRASH, LIMIT, NAME, RATIO
from pytest_mlms.explain.repro.sides import BundleRun
from pytest_mlms.measure.agent.opening import open_predictor
from pytest_mlms.measure.evaluate.closeness import NearbyOutputs, Rule, Tolerance, nearby_outputs
from pytest_mlms.measure.evaluate.limits import explain
from pytest_mlms.measure.evaluate.output_sweep import Nearby, OutputSweep
from pytest_mlms.measure.evaluate.performance import measure_performance
from pytest_mlms.measure.evaluate.performance_plan import EARLY_PROCESSES, PerformancePlan
from pytest_mlms.warning_types import MlmsKilled

_BUDGET = 600.0  # seconds of a replay's rounds, or processes
_PROCESSES = 3
_TO_SEE_EXITS = 4
"""The least rounds of processes that fail at their exit, which have more where that helps."""

_KILL = "SIGKILL"
"""The signal that the kernel or a person may send to any process: it shows nothing."""

_ONCE = RoundSpan(1, 1)
_EXIT_SECONDS = 10.0
_CALLS = 3

Tell = Callable[[str], None]


def _tell_nothing(line: str) -> None:
    pass


class Effort(NamedTuple):
    """Bounds of rounds: the timed ``seconds`` of each, the ``budget`` of all, and their number."""

    seconds: float
    budget: float
    rounds: RoundSpan


AS_AN_ITEM = Effort(SHARE_OF_DURATION, _BUDGET, ROUNDS)
"""The effort of an item with the default options, with more time for slow models."""


@dataclass(frozen=True)
class Seen:
    """The verdict on a bundle.

    Attributes:
        shows: True where it is what was expected.
        undecided: True where it is neither that nor something else, as an interval stayed too wide.
        summary: One line for a person.
        details: Further lines, such as those of a crash.
        ratio: New over old; of outputs the largest difference as a multiple of what is allowed.
        low: The lower end of its interval.
        high: The upper end.
    """

    shows: bool
    summary: str
    undecided: bool = False
    details: tuple[str, ...] = ()
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


def observe(run: BundleRun, tell: Tell = _tell_nothing, effort: Effort = AS_AN_ITEM) -> Seen:
    """Run a bundle on its sides, and return what was seen.

    ``tell`` is called with a line for each round. Raises MlmsError where the old side fails, or
    where what was measured can't be trusted.
    """
    kind = run.bundle.expected.kind
    if kind == RATIO:
        return _seen_ratio(compare_ratio(run, tell, effort))
    if kind == LIMIT:
        return _observe_limit(run, tell)
    if kind == CRASH:
        return _observe_crash(run, effort)
    return _observe_outputs(run)


def observe_side(run: BundleRun, side: SideName) -> Seen:
    """Run one of two sides alone: it is as expected where only a new side that crashes fails."""
    if side == "b" and run.bundle.expected.kind == CRASH:
        return _observe_crash_alone(run)
    name = "old" if side == "a" else "new"
    try:
        with open_predictor(run.spec(side)) as predictor:
            outputs = predictor.predict(run.batches[0])
    except AgentError as error:
        return _seen_failure(f"the {name} side fails", str(error))
    shapes = [f"{key} {array.dtype} {list(array.shape)}" for key, array in outputs.items()]
    return Seen(True, f"the {name} side runs, and gives {', '.join(shapes)}")


def rule_of(expected: Expectation, name: str, device: str = "cpu") -> Rule:
    """Return the rule of an output as a bundle has it, or the default of a tensor inside."""
    own = expected.rules.get(name, {})
    tolerance = None if expected.atol is None else Tolerance(expected.rtol, expected.atol)
    return Rule(tolerance, own.get("unlike"), own.get("share"), device)


def compare_outputs(
    bundle: Bundle, expected: Outputs, ours: Outputs, nearby: Nearby | None = None
) -> Comparison:
    """Return the gate's verdict on outputs, given those that were expected for the same inputs.

    Those that the item judged are compared; of a part of a model all. ``nearby`` tells what the old
    side gives for rounded inputs: what that decides is INCONCLUSIVE. The text names the value that
    differs most.
    """
    names = [name for name in expected if name in bundle.expected.rules] or list(expected)
    rules = {name: rule_of(bundle.expected, name, bundle.device) for name in names}
    rows = max([1, *(len(expected[name]) for name in names if expected[name].ndim)])
    sweep = OutputSweep(rules)
    sweep.add(expected, ours, [f"row {row}" for row in range(rows)], nearby)
    about = Circumstances()
    found = agreement_of(sweep, about)
    if lacking := about.undecided(sweep):
        found = without_measure(found, lacking)
    return found.but(told=f"{found.told}: {sweep.worst[0]}") if sweep.worst else found


def _observe_outputs(run: BundleRun) -> Seen:
    """Compare the new side's outputs with recorded ones, or with those of the old side."""
    batch = run.batches[0]
    if run.bundle.old is None:
        return _compare_new(run, run.bundle.reference)
    with open_predictor(run.spec("a")) as old:
        try:
            expected = old.predict(batch)
        except AgentError as error:
            raise MlmsError(f"the old side can't run the model here: {error}") from None

        def nearby() -> NearbyOutputs:
            try:
                return nearby_outputs(old.predict, batch)
            except AgentError as error:
                problem = "the old side can't run rounded inputs, which the verdict takes"
                raise MlmsError(f"{problem}: {error}") from None

        return _compare_new(run, expected, nearby)


def _compare_new(run: BundleRun, expected: Outputs, nearby: Nearby | None = None) -> Seen:
    """Compare the new side's outputs, as often as it takes to see those that differ at times."""
    bundle = run.bundle
    compared = None
    try:
        with open_predictor(run.spec("b")) as predictor:
            for _ in range(max(1, bundle.expected.calls)):
                found = compare_outputs(bundle, expected, predictor.predict(run.batches[0]), nearby)
                if compared is None or found.verdict is not Verdict.PASSED:
                    compared = found
                if found.verdict is Verdict.REGRESSED:
                    break
    except AgentError as error:
        return _seen_failure("the new side has no outputs", str(error))
    assert compared is not None, "it is called once at least"
    shows = compared.verdict is Verdict.REGRESSED
    if bundle.expected.kind == ANSWERS:
        has_values = any(array.size for array in expected.values())
        shows = compared.verdict is Verdict.PASSED and has_values
    undecided = compared.verdict is Verdict.INCONCLUSIVE
    return Seen(shows, compared.lacking or compared.told, undecided, ratio=compared.ratio)


class _Rounds:
    """Notes of an upgrade as it is measured; the figures of each round are told."""

    def __init__(self, quantity: str, tell: Tell) -> None:
        self._quantity = quantity
        self._tell = tell

    def note(self, **fields: Any) -> None:
        """Tell the quantity after a round."""
        for compared in fields.get("comparisons", ()):
            if compared.quantity == self._quantity and compared.of == "rounds":
                a, b = (format_quantity(value, compared.unit) for value in (compared.a, compared.b))
                rounds = f"after {compared.replicates} round{'s' * (compared.replicates > 1)}"
                self._tell(f"{rounds}: {self._quantity} {a} → {b}")

    def keep(self, name: str, write: Callable[[Path], None]) -> None:
        """Keep no artifacts."""


def compare_ratio(
    run: BundleRun, tell: Tell = _tell_nothing, effort: Effort = AS_AN_ITEM
) -> Comparison:
    """Return the gate's verdict on the quantity of a bundle, over rounds of both sides.

    A new side that fails is REGRESSED in ``crash``.
    """
    expected = run.bundle.expected
    quantity = expected.quantity
    default = upgrade_rules()[quantity].tolerance
    tolerance = default if expected.tolerance is None else expected.tolerance
    criteria = Criteria({quantity: tolerance}, (quantity,), rounds=effort.rounds)
    comparisons = _upgrade(run, criteria, effort, _Rounds(quantity, tell))
    crashed = [
        one for one in comparisons if one.quantity == CRASH and one.verdict is Verdict.REGRESSED
    ]
    return crashed[0] if crashed else next(one for one in comparisons if one.quantity == quantity)


def _upgrade(
    run: BundleRun, criteria: Criteria, effort: Effort, rounds: _Rounds
) -> tuple[Comparison, ...]:
    """Measure both sides as an upgrade does, whose outputs are not asked for."""
    upgrade = UpgradeRun(criteria, run.batch_size, lambda *_: OutputFindings(()), rounds)
    plan = InterleavePlan(
        seconds=effort.seconds,
        budget=effort.budget,
        seed=draw_seed(None),
        cores=_cores(run),
        threads=run.bundle.threads,
        watches_growth="memory_growth" in criteria.gates,
        watches_late="late_latency" in criteria.gates,
        rounds=criteria.rounds,
        precision=precision_of(criteria),
        least_calls=least_calls(criteria),
        batch_size=run.batch_size,
    )
    batches = run.batches
    with warnings.catch_warnings():
        # A side that was killed once is started once more; where it is again, that is what is seen.
        warnings.simplefilter("ignore", MlmsKilled)
        return tuple(upgrade.run(plan, run.open_pair, lambda _: batches).comparisons)


def _cores(run: BundleRun) -> list[int]:
    """Return the cores that both sides may use; none where the system doesn't tell."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    allowed = [set(launch.cores) for launch in run.launches.values() if launch.cores]
    return sorted(os.sched_getaffinity(0).intersection(*allowed))


def _seen_ratio(compared: Comparison) -> Seen:
    if compared.quantity == CRASH:
        return _seen_failure("the new side fails", compared.lacking)
    name, allowed = compared.quantity, tolerance_label(compared)
    if math.isnan(compared.ratio):
        return Seen(False, f"{name} can't be compared: {compared.lacking}", undecided=True)
    ends = f"×{compared.ratio:.3f} (×{compared.low:.3f} to ×{compared.high:.3f}"
    ends += f", {compared.replicates} round{'s' * (compared.replicates != 1)})"
    worse = compared.verdict is Verdict.REGRESSED
    undecided = compared.verdict is Verdict.INCONCLUSIVE
    if worse:
        text = f"{name} is worse by more than {allowed}: {ends}"
    elif undecided:
        why = compared.lacking or straddling_text(compared)
        text = f"whether {name} is within {allowed} stays undecided: {ends}; {why}"
    else:
        text = f"{name} is within {allowed}: {ends}"
    return Seen(worse, text, undecided, (), compared.ratio, compared.low, compared.high)


def _observe_limit(run: BundleRun, tell: Tell) -> Seen:
    """Judge a limit by fresh processes of the one side, as a performance item does."""
    expected = run.bundle.expected
    assert expected.limit is not None, "the record of a limit has one"
    limit = Limit(expected.quantity, expected.limit, Place(Path(NAME), 1))
    plan = PerformancePlan(
        scenario=expected.scenario,
        batch_size=run.batch_size,
        processes=_PROCESSES,
        duration=1.0,
        budget=_BUDGET,
        limits=[limit],
        early=EARLY_PROCESSES,
    )
    batches = run.batches
    measured = measure_performance(
        plan,
        lambda: open_predictor(run.spec("b")),
        lambda _: batches,
        lambda index, _: tell(f"process {index + 1} was measured"),
    )
    (decision,) = measured.decisions
    first, *rest = explain(decision).splitlines()
    undecided = decision.verdict not in (Verdict.PASSED, Verdict.FAILED)
    details = tuple(line.strip() for line in rest) if undecided else ()
    return Seen(decision.verdict is Verdict.FAILED, first, undecided, details)


def _observe_crash(run: BundleRun, effort: Effort) -> Seen:
    """See whether the new side fails in the way that was expected, and the old one doesn't."""
    if run.bundle.old is None:
        return _observe_crash_alone(run)
    expected = run.bundle.expected
    rounds = _ONCE
    if expected.at_exit:
        count = max(_TO_SEE_EXITS, expected.calls)
        rounds = RoundSpan(count, count)
    criteria = Criteria({"latency": upgrade_rules()["latency"].tolerance}, rounds=rounds)
    short = effort._replace(seconds=0.0)
    comparisons = _upgrade(run, criteria, short, _Rounds("", _tell_nothing))
    for compared in comparisons:
        if compared.quantity == CRASH and compared.verdict is Verdict.REGRESSED:
            return _seen_crash(compared.lacking, expected)
        if compared.quantity == CRASH:  # some exits failed, which may be chance
            return Seen(False, told_to_others(compared.lacking, ""), undecided=compared.gate)
    exits = run.exits.counts
    if exits.b:
        told = f"of {exits.exits} exits of each side the new one failed in {exits.b}"
        return Seen(False, f"{told}, the old one in {exits.a}")
    return Seen(False, "the new side runs the model without an error")


def _observe_crash_alone(run: BundleRun) -> Seen:
    expected = run.bundle.expected
    try:
        for _ in range(max(_TO_SEE_EXITS, expected.calls) if expected.at_exit else 1):
            with open_predictor(run.spec("b")) as predictor:
                predictor.bind(run.batches)
                predictor.turn(_CALLS)
                predictor.agent.leave(_EXIT_SECONDS)
                problem = predictor.agent.end_of_leaving(_EXIT_SECONDS)
            if problem and expected.at_exit:
                return _seen_crash(problem, expected)
    except MlmsError as error:
        return _seen_crash(str(error), expected)
    return Seen(False, "the new side runs the model without an error")


def _seen_crash(text: str, expected: Expectation) -> Seen:
    first, *rest = text.splitlines() or [""]
    how, wanted = _way(ending_of(first), is_at_exit(first)), _way(expected.crash, expected.at_exit)
    if expected.crash and how != wanted:
        return _seen_failure(f"the new side fails in another way ({how}, not {wanted})", text)
    return Seen(True, f"the new side fails: {told_to_others(first, '')}", details=tuple(rest))


def _way(ending: str, at_exit: bool) -> str:
    """Return how a process failed, as it may do so in a call and at its exit by other causes."""
    return (ending or "an error") + " at its exit" * at_exit


def _seen_failure(what: str, text: str) -> Seen:
    """Return that the new side failed otherwise than expected: undecided where it was killed."""
    first, *rest = text.splitlines() or [""]
    is_killed = ending_of(first) == _KILL
    return Seen(False, f"{what}: {told_to_others(first, '')}", is_killed, tuple(rest))
