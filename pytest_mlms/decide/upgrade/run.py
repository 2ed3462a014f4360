"""The run of an upgrade: rounds of both stacks until every gate is decided, and their record.

``decision`` decides, and ``explanation`` says it in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from pytest_mlms.core.errors import AgentError, Crashed, InvalidRun, untrusted
from pytest_mlms.core.files import write_arrays
from pytest_mlms.core.quantities import upgrade_rules
from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.agents import AgentPair
from pytest_mlms.decide.upgrade.crash import Exits, crash_comparison
from pytest_mlms.decide.upgrade.criteria import Criteria, missing_gates
from pytest_mlms.decide.upgrade.decision import (
    are_gates_decided,
    compare_rounds,
    compare_stalls,
    is_decided,
)
from pytest_mlms.decide.upgrade.figures import clock_step, figures_of, group_figures
from pytest_mlms.decide.upgrade.interleave import MeasuredRound, OpenPair, run_interleaved
from pytest_mlms.decide.upgrade.interleave_plan import InterleavePlan
from pytest_mlms.decide.upgrade.layer_diff import changed_layers
from pytest_mlms.decide.upgrade.output_check import OutputFindings
from pytest_mlms.decide.upgrade.result import UpgradeResult
from pytest_mlms.decide.upgrade.round_load import without_peak
from pytest_mlms.decide.upgrade.round_record import effect_of_order, start_orders
from pytest_mlms.decide.upgrade.rounds import (
    CLOCKS,
    SIDES,
    Array,
    Clock,
    Outputs,
    Round,
    SideName,
    available_clocks,
)
from pytest_mlms.decide.upgrade.slow_inputs import SlowInputs, groups_beside
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.evaluate.limits import QUIETER
from pytest_mlms.measure.evaluate.timed_inputs import ONE_GROUP, Mix, TimedInputs
from pytest_mlms.measure.load.evidence import LATE_SHARE

_OutputsBySide = Mapping[SideName, Outputs]
OutputChecker = Callable[[AgentPair, _OutputsBySide, _OutputsBySide], OutputFindings]
"""Compares outputs while agents are alive, given those of the last and of the first call."""

_PROFILES = 4  # of each side, in turns
_PROFILED_CALLS = 5
_TIME_UNITS = ("s", "/s")
_WHY_UNAVAILABLE: dict[Clock, str] = {
    "adj": "the kernel doesn't count the wait of a thread for a core (/proc/thread-self/schedstat)",
    "device": "the predictor doesn't tell the time on the device, or the device is the CPU",
}


class ResultSink(Protocol):
    """The destination of results as they are measured: the item's recorder."""

    def note(self, **fields: Any) -> None:
        """Add fields to the item's line."""

    def keep(self, name: str, write: Callable[[Path], None]) -> None:
        """Make an artifact of this name by ``write``."""


@dataclass
class UpgradeRun:
    """The run of one upgrade; ``result`` is what is known so far.

    ``compare_outputs`` is called after each round. ``check_device`` is called after each round
    and returns why the round cannot be trusted.
    """

    criteria: Criteria
    batch_size: int
    compare_outputs: OutputChecker
    sink: ResultSink
    check_device: Callable[[], list[str]] = list
    result: UpgradeResult = field(init=False, default_factory=UpgradeResult)
    _peaks: Sequence[Comparison] = field(init=False, default=())
    _lasting_comparisons: Sequence[Comparison] = field(init=False, default=())
    _mix: Mix = field(init=False, default=ONE_GROUP)
    _timed: TimedInputs | None = field(init=False, default=None)
    _exits: Exits | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Begin without any input that is suspected."""
        self._slow_inputs = SlowInputs(self.criteria.tolerances.get("slow_inputs"))

    def run(
        self,
        plan: InterleavePlan,
        open_pair: OpenPair,
        batches_for: Callable[[Predictor], Sequence[Outputs]],
    ) -> UpgradeResult:
        """Run rounds until every gate is decided or the budget is spent; return the result.

        Where the candidate crashed it has regressed. Raises InvalidRun where a round cannot be
        trusted, AgentError where the baseline failed. The sink has everything that was measured
        until then.
        """
        self.sink.note(terms=self.criteria, duel_seed=plan.seed)
        if isinstance(batches_for, TimedInputs):
            self._timed = batches_for
        self._update(rounds=(), complete=False)
        try:
            run_interleaved(
                plan, open_pair, batches_for, self.after_round, self._keep_part, self._is_for_guards
            )
            self._update(complete=True)
            self._check_load()
        except Crashed as error:
            crash = crash_comparison(str(error))
            self._update(comparisons=[crash, *self.result.comparisons])
            return self.result
        except BaseException:  # also Ctrl-C while further processes end
            self._tell_exits()
            raise
        self._tell_exits()
        return self.result

    def _tell_exits(self) -> None:
        """Add what is not sure of a candidate that failed more often at its exit."""
        exits = self._exits
        told = exits.open_comparison() if exits is not None else None
        if told is not None:
            self._update(comparisons=[*self.result.comparisons, told])

    def _keep_part(self, index: int, arrays: Mapping[str, Array]) -> None:
        """Keep what there is of a round whose load did not come to its end (part-N.npz)."""
        self.sink.keep(f"part-{index}.npz", _writer(arrays))

    def _check_load(self) -> None:
        """Raise InvalidRun where an upgrade is open for lack of rounds whose load says anything."""
        if self.result.verdict is not Verdict.INCONCLUSIVE:
            return
        rounds = self.result.rounds
        unusable = [record for record in rounds if not record.load_counts]
        if not unusable:
            return
        count = f"{len(unusable)} of {len(rounds)} rounds"
        if any(record.peaks and not record.late for record in unusable):
            raise InvalidRun(
                f"neither side met the limit at any rate that was tried in {count}, and the others "
                f"don't decide it; raise the latency, or --mlms-budget for lower rates"
            )
        raise InvalidRun(
            f"the load generator was late in {count} (the p99 of its delay was above "
            f"{LATE_SHARE:.0%} of the limit), and the others don't decide it; {QUIETER}, or raise "
            f"--mlms-budget"
        )

    def after_round(self, index: int, measured: MeasuredRound, pair: AgentPair) -> bool:
        """Take a round whose agents are alive; return whether every gate is decided.

        Raises InvalidRun where it cannot be trusted, AgentError where a process died.
        """
        self._exits = pair.exits
        self._record(index, measured)
        problems = self.check_device()
        if problems:
            raise InvalidRun(untrusted(problems))
        found = self.compare_outputs(pair, measured.outputs, measured.first_outputs)
        self._lasting_comparisons = [*found.comparisons, *self._peaks]
        self._update(worse_inputs=found.worse_inputs, outputs=found.outputs)
        if measured.load is not None and measured.load.without_peak:
            self._without_peak(measured.load.without_peak)
        self._compare()
        is_slower = any(compared.unit in _TIME_UNITS for compared in self.result.regressed)
        if is_slower and not self.result.layers:
            self._trace(pair)
        return is_decided(self.result.comparisons, index + 1, self.criteria.rounds.least)

    def _is_for_guards(self) -> bool:
        return are_gates_decided(self.result.comparisons)

    def _update(self, **fields: Any) -> None:
        """Change fields of the result, and of the item's line, where they have the same names."""
        self.result = replace(self.result, **fields)
        self.sink.note(**fields)

    def _record(self, index: int, measured: MeasuredRound) -> None:
        """Record the round before anything is computed from it.

        Computing takes seconds, in which the user may interrupt.
        """
        earlier = self.result.rounds
        clock = self._choose_clock(measured.raw)
        self._update(clock=clock, rounds=(*earlier, measured.record))
        self.sink.keep(f"pairs-{index}.npz", _writer(measured.arrays()))
        figures = figures_of(measured.raw, clock, self.batch_size, measured.inputs)
        if measured.load is not None:
            figures.update(measured.load.figures)
        step = max(clock_step(side.times(clock)) for side in measured.raw)
        record = replace(measured.record, figures=figures, clock_step=step)
        if measured.inputs is not None:
            self._mix = measured.inputs.mix  # those that look slower are timed again in the next
            self._slow_inputs.add(measured.inputs, measured.raw, clock)
            if self._timed is not None:
                self._timed.watch = self._slow_inputs.watch
            if measured.inputs.is_mixed:
                groups = group_figures(measured.raw, clock, measured.inputs)
                record = replace(record, groups=groups)
        self._update(rounds=(*earlier, record))
        if step and math.isinf(figures["latency"].error):
            raise InvalidRun(
                f"what was measured can't be trusted; the clock {clock} advances in steps of "
                f"{format_quantity(step, 's')}, too large for turns of {record.calls} x "
                f"{format_quantity(figures['latency'].a, 's')}; ask for another (--mlms-clock), or "
                f"for a larger batch"
            )

    def _choose_clock(self, measured: Round) -> Clock:
        available = available_clocks(measured)
        asked = self.criteria.clock
        if asked is None:
            return self.result.clock or available[0]
        if asked in available:
            return asked
        reason = _WHY_UNAVAILABLE.get(asked, "this system has none")
        raise InvalidRun(
            f"--mlms-clock {asked} ({CLOCKS[asked]}) isn't there: {reason}; "
            f"ask for one of {', '.join(available)}, or for none"
        )

    def _without_peak(self, reason: str) -> None:
        default = upgrade_rules()["peak_rate"].tolerance
        tolerance = self.criteria.tolerances.get("peak_rate", default)
        found = without_peak(reason, tolerance)
        self._peaks = [*self._peaks, found]
        self._lasting_comparisons = [*self._lasting_comparisons, found]

    def _compare(self) -> None:
        rounds = self.result.rounds
        criteria = self.criteria
        figures = [record.figures for record in rounds]
        of_rounds = compare_rounds(
            figures,
            criteria.tolerances,
            criteria.gates,
            criteria.rounds,
            start_orders(rounds),
        )
        of_groups = [record.groups for record in rounds]
        groups = groups_beside(of_rounds, self._mix, of_groups, criteria.tolerances, criteria)
        found = [
            *of_rounds,
            groups and groups.worst,
            self._slow_inputs.compare(),
            compare_stalls(figures, criteria.tolerances.get("stalls"), criteria.rounds),
        ]
        comparisons = [
            *self._lasting_comparisons,
            *[compared for compared in found if compared is not None],
        ]
        self._update(
            comparisons=[*comparisons, *missing_gates(criteria, comparisons, rounds)],
            order_effect=effect_of_order(rounds),
            input_groups=groups.groups if groups else (),
            slow_inputs=self._timed.slow_lines(self._slow_inputs.confirmed) if self._timed else (),
        )

    def _trace(self, pair: AgentPair) -> None:
        """Find the layers that changed, in a pass of its own: profiling changes what is timed."""
        profiles: dict[SideName, list[Any]] = {"a": [], "b": []}
        try:
            for _ in range(_PROFILES):
                for side in SIDES:
                    with pair.running(side) as predictor:
                        profiles[side] += predictor.profile(pair.batches[0], _PROFILED_CALLS)
        except AgentError as error:  # without layers the item has regressed all the same
            self._update(layers_lacking=str(error))
            return
        self._update(layers=changed_layers(profiles["a"], profiles["b"]))


def _writer(arrays: Mapping[str, Any]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        write_arrays(path, arrays)

    return write
