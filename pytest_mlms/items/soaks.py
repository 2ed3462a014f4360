"""Soaks as items: the processes of one, the limits that judge it, and its record."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from pytest_mlms.config import Config
from pytest_mlms.core.errors import AgentError, Crashed, InvalidRun
from pytest_mlms.core.records import Decision, Verdict
from pytest_mlms.decide.expected import expected
from pytest_mlms.decide.upgrade.crash import CRASH_SUMMARY, crash_comparison
from pytest_mlms.items.device_monitor import DeviceMonitor
from pytest_mlms.keep.results.line import Judgement
from pytest_mlms.keep.results.recorder import Recorder
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.limits import judge, worst
from pytest_mlms.measure.evaluate.output_sweep import own_rules
from pytest_mlms.measure.evaluate.soak import (
    Blocks,
    Running,
    SoakRun,
    SoakSeries,
    estimate_soak,
    lacks_blocks,
)
from pytest_mlms.provide.cases import Case
from pytest_mlms.show.report.artifacts import keep_arrays

_SHOWN = 200  # blocks in the item's line

Opened = tuple[Mapping[str, Running], Mapping[str, Array]]
"""The processes of a soak, and the first of their batches."""


@contextlib.contextmanager
def open_side(open_predictor: Any, batches_for: Any) -> Iterator[Opened]:
    """Open the process of a soak against limits, with its batches bound."""
    with open_predictor() as predictor:
        batches = batches_for(predictor)
        predictor.bind(batches)
        yield {"b": lambda: contextlib.nullcontext(predictor)}, batches[0]


@contextlib.contextmanager
def open_sides(open_pair: Any, batches_for: Any) -> Iterator[Opened]:
    """Open both sides of a soak against another stack, of which one runs at a time."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    with open_pair(("a", "b"), cores) as pair:
        pair.bind(batches_for(pair.a))
        sides = {side: functools.partial(pair.running, side) for side in ("a", "b")}
        yield sides, pair.batches[0]


def soak(
    case: Case,
    opened: Opened,
    config: Config,
    recorder: Recorder,
    monitor: DeviceMonitor,
) -> None:
    """Run a soak and judge it; keep what was measured, however it ends.

    At Ctrl-C, and where a process is killed, it is judged as far as it goes: then interrupted, or
    InvalidRun where no limit is broken. Raises AgentError where a process died otherwise, or before
    there was enough to judge; a candidate's is Crashed once its context ends.
    """
    assert config.soak is not None, "there are soaks only where their time was given"
    run = SoakRun(*opened, config.soak, functools.partial(own_rules, case))
    killed: AgentError | None = None
    try:
        run.run()
    except KeyboardInterrupt:
        # The interruption is raised instead.
        with contextlib.suppress(pytest.fail.Exception, InvalidRun):
            _judge(case, _keep(run.series, recorder), recorder, config, monitor)
        raise
    except AgentError as error:
        if lacks_blocks(_keep(run.series, recorder).values()) or not error.killed:
            raise
        killed = error
    except BaseException:
        _keep(run.series, recorder)
        raise
    _judge(case, _keep(run.series, recorder), recorder, config, monitor, killed)


def settle_crash(case: Case, error: Crashed, recorder: Recorder, config: Config) -> None:
    """Fail a soak whose candidate died where the baseline doesn't, as an upgrade in rounds."""
    recorder.note(comparisons=[crash_comparison(str(error))])
    headline = f"{case.stack.name} (B) against {case.baseline.stack.name} (A): {CRASH_SUMMARY}"
    judgement = Judgement(Verdict.REGRESSED, math.inf, text=f"{headline}\n  {error}")
    recorder.settle_upgrade(judgement, case.place(), config.strict)


def _keep(series: Mapping[str, SoakSeries], recorder: Recorder) -> dict[str, Blocks]:
    blocks: dict[str, Blocks] = {side: measured.arrays() for side, measured in series.items()}
    for side, arrays in blocks.items():
        keep_arrays(recorder, f"soak-{side}.npz", arrays)
    recorder.note(soak={side: _thinned(arrays) for side, arrays in blocks.items()})
    return blocks


def _judge(
    case: Case,
    blocks: Mapping[str, Blocks],
    recorder: Recorder,
    config: Config,
    monitor: DeviceMonitor,
    killed: AgentError | None = None,
) -> None:
    """Judge what was measured. A process that was ``killed`` leaves what is not broken INVALID."""
    estimates = estimate_soak(blocks["b"], blocks.get("a"))
    decisions = judge(expected(case, config), estimates)
    is_broken = worst([decision.verdict for decision in decisions]) is Verdict.FAILED
    if case.against is not None:
        decisions = [_regressed(decision) for decision in decisions]
    problems = monitor.problems()
    cause = ""
    if killed is not None:
        cause = f"after {blocks['b']['seconds'][-1]:.0f} of {config.soak:g} s {killed}"
        if problems or not is_broken:
            problems = [*problems, cause.partition("\n")[0]]
    recorder.note(doubts=monitor.with_doubts())
    recorder.settle(estimates, decisions, config.strict, lambda: cause, problems)


def _thinned(arrays: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return columns with at most as many blocks as a line shows."""
    step = max(1, -(-len(arrays["calls"]) // _SHOWN))
    return {name: values[::step].tolist() for name, values in arrays.items()}


def _regressed(decision: Decision) -> Decision:
    """Return a decision about what the candidate has beyond the baseline."""
    if decision.verdict is Verdict.FAILED:
        return replace(decision, verdict=Verdict.REGRESSED)
    return decision
