"""Items under load and soaks: their plans, their processes, the limits that judge them."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
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
from pytest_mlms.manifest.load import shown
from pytest_mlms.manifest.scenarios import Peak, Replay
from pytest_mlms.measure.agent.load import Batcher
from pytest_mlms.measure.agent.predictor import Predictor, ScenarioRun
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.fresh_process import Batches
from pytest_mlms.measure.evaluate.limits import judge, worst
from pytest_mlms.measure.evaluate.load_performance import measure_load, measure_peak
from pytest_mlms.measure.evaluate.load_plan import LoadItemPlan
from pytest_mlms.measure.evaluate.loadgen import LoadGenItemPlan, measure_by_loadgen
from pytest_mlms.measure.evaluate.output_sweep import own_rules
from pytest_mlms.measure.evaluate.performance import Measurement
from pytest_mlms.measure.evaluate.process_result import ProcessResult
from pytest_mlms.measure.evaluate.soak import (
    Blocks,
    Running,
    SoakRun,
    SoakSeries,
    estimate_soak,
    lacks_blocks,
)
from pytest_mlms.measure.load.arrivals import read_arrivals
from pytest_mlms.measure.load.rate_evidence import Peak as FoundPeak
from pytest_mlms.measure.load.rate_evidence import Probe
from pytest_mlms.provide.artifacts.fetch import CaseFiles
from pytest_mlms.provide.cases import Case


def measure_under_load(
    case: Case,
    files: CaseFiles,
    config: Config,
    recorder: Recorder,
    open_predictor: Callable[[], AbstractContextManager[Predictor]],
    batches_for: Callable[[Predictor], Batches],
    keep: Callable[[int, ProcessResult], None],
) -> Measurement:
    """Measure a case by LoadGen, by the search for its peak, or under its load.

    ``keep`` gets the number and the result of each process under a load; of LoadGen and of a search
    the recorder keeps logs and runs instead.
    """
    queried = queried_batches(batches_for)
    if config.loadgen:

        def keep_log(name: str, content: bytes) -> None:
            def write(path: Path) -> None:
                path.write_bytes(content)

            recorder.keep(name, write)

        return measure_by_loadgen(loadgen_plan_of(case, config), open_predictor, queried, keep_log)

    def keep_part(index: int, run: ScenarioRun) -> None:
        recorder.keep_arrays(f"part-{index}.npz", run.times)

    load_plan = load_plan_of(case, files, config)
    if not isinstance(case.load, Peak):
        return measure_load(load_plan, open_predictor, queried, keep, keep_part)

    def keep_run(index: int, run: ScenarioRun) -> None:
        recorder.keep_arrays(f"load-{index}.npz", run.times)

    def note(probes: Sequence[Probe], found: FoundPeak | None) -> None:
        recorder.note(probes=tuple(probes), peak=found)

    return measure_peak(load_plan, open_predictor, queried, keep_run, keep_part, note)


def queried_batches(timed: Callable[[Predictor], Batches]) -> Callable[[Predictor], Batches]:
    """Return the batches of a load, whose samples are the same in each process."""
    drawn: list[Batches] = []

    def batches_for(predictor: Predictor) -> Batches:
        if not drawn:
            drawn.append(timed(predictor))
        return drawn[0]

    return batches_for


def loadgen_plan_of(case: Case, config: Config) -> LoadGenItemPlan:
    """Return the plan of a case that LoadGen measures."""
    evaluate = case.loaded.manifest.evaluate
    assert case.scenario is not None, "every performance item has a scenario"
    return LoadGenItemPlan(
        scenario=evaluate.scenario_labels[case.scenario],
        place=case.scenario_place,
        seed=evaluate.seed,
        duration=config.duration,
        budget=config.budget,
        valid=config.loadgen == "valid",
        limits=case.limits,
        instances=evaluate.instances,
        batcher=_batcher_of(case),
        generates=case.loaded.manifest.generate is not None,
    )


def load_plan_of(case: Case, files: CaseFiles, config: Config) -> LoadItemPlan:
    """Return the plan of a case under load. Raises MlmsError for a wrong file of arrivals."""
    load = case.load
    assert load is not None, f"{case.id} is no load"
    evaluate = case.loaded.manifest.evaluate
    arrivals = None
    if isinstance(load, Replay):
        assert files.arrivals is not None, "it is fetched with the files of the case"
        arrivals = read_arrivals(shown(files.arrivals), load.speed)
    return LoadItemPlan(
        load=load,
        place=case.scenario_place,
        batch_size=case.batch_size,
        processes=config.processes,
        duration=config.duration,
        budget=config.budget,
        limits=case.limits,
        seed=evaluate.seed,
        instances=evaluate.instances,
        batcher=_batcher_of(case),
        arrivals=arrivals,
        rules=functools.partial(own_rules, case),
    )


def _batcher_of(case: Case) -> Batcher | None:
    keys = case.loaded.manifest.evaluate.batcher
    if keys is None:
        return None
    return Batcher(keys.max_batch, round(keys.max_delay * 1e9))


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
        recorder.keep_arrays(f"soak-{side}.npz", arrays)
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
    """Return a decision about the candidate's excess over the baseline."""
    if decision.verdict is Verdict.FAILED:
        return replace(decision, verdict=Verdict.REGRESSED)
    return decision
