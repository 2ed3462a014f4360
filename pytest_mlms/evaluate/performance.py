"""The procedures that items run.

A pass over the dataset, and fresh processes until the limits are decided.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from pytest_mlms.agent.predictor import Predictor, ScenarioRun
from pytest_mlms.agent.process import Array
from pytest_mlms.errors import DatasetError, OutputError
from pytest_mlms.evaluate.limits import judge
from pytest_mlms.manifest.schema import Output
from pytest_mlms.pipeline import Dataset, postprocess
from pytest_mlms.records import Decision, Estimate, Limit, Verdict
from pytest_mlms.statistics import (
    is_steady,
    rate_interval,
    samples_for_percentile,
    student_interval,
)

__all__ = [
    "Plan",
    "ProcessResult",
    "classify",
    "draw_batches",
    "estimate_performance",
    "measure_performance",
]

PERCENTILES = (50, 90, 95, 99)

_WINDOW_CALLS = 8  # of the warm-up
_WINDOW_SECONDS = 0.05
_WINDOWS = 20
_LEAST = 16  # timed calls of a process
_POOL_BATCHES = 8  # distinct batches that a process works on in turn
_POOL_BYTES = 64 << 20
_LOOKS = 3  # at how many processes the limits are judged: N, 2 N, 4 N


def classify(
    predictor: Predictor, dataset: Dataset, output: Output, size: int
) -> tuple[Array, Array]:
    """Return the scores (N x classes, float32) and labels of the whole dataset, decoding while the
    model works.

    Raises OutputError for scores that are no numbers, DatasetError for labels that are no classes.
    """
    labels = dataset.labels
    if labels is None:
        raise DatasetError(
            f"{dataset.name} has no array 'label'; add it, one class index an element"
        )
    finite, scored = [], []
    for batch in dataset.batches(size):
        values = predictor.predict(batch)[output.name]
        if values.ndim != 2 or len(values) != size:
            raise OutputError(
                f"output {output.name!r} of {size} inputs is {values.shape}; expected inputs x classes"
            )
        finite.append(_finite_rows(values))
        with np.errstate(
            invalid="ignore"
        ):  # what is not finite is told below, for all inputs at once
            scored.append(postprocess(values.astype(np.float64), output).astype(np.float32))
    _check_finite(output.name, np.concatenate(finite)[: len(dataset)])
    scores = np.concatenate(scored)[: len(dataset)]
    if labels.min() < 0 or labels.max() >= scores.shape[1]:
        found, classes = f"{labels.min()} to {labels.max()}", scores.shape[1]
        raise DatasetError(
            f"{dataset.name} has labels from {found}, and the model the classes 0 to {classes - 1}"
        )
    return scores, labels


def _finite_rows(values: Array) -> Array:
    """Return for each row whether all of it is finite; a single number is a row."""
    rows = np.atleast_1d(values)
    return np.asarray(np.isfinite(rows).reshape(len(rows), -1).all(axis=1))


def _check_finite(name: str, finite: Array) -> None:
    """Raise OutputError where one of ``finite``, a truth value an input, is False.

    It names the first.
    """
    wrong = ~finite
    if wrong.any():
        raise OutputError(
            f"output {name!r} has NaN or infinity for {wrong.sum()} of {len(wrong)} inputs, first for number "
            f"{int(wrong.argmax())}; check the input's steps, its element type and the model"
        )


def draw_batches(dataset: Dataset, size: int, seed: int) -> list[dict[str, Array]]:
    """Return up to eight batches of elements drawn with replacement, at most 64 MiB together, at
    least one.
    """
    drawn = np.random.default_rng(seed).integers(len(dataset), size=(_POOL_BATCHES, size))
    batches = [dataset.batch(drawn[0].tolist())]
    count = max(
        1, min(_POOL_BATCHES, _POOL_BYTES // sum(array.nbytes for array in batches[0].values()))
    )
    return batches + [dataset.batch(indices) for indices in drawn[1:count].tolist()]


def random_batch(predictor: Predictor, size: int, seed: int) -> list[dict[str, Array]]:
    """Return one batch of standard normal values in the model's own shapes, for a manifest without
    a dataset.

    Raises OutputError where an axis other than the first is free.
    """
    random, batch = np.random.default_rng(seed), {}
    for tensor in predictor.inputs:
        if None in tensor.shape[1:]:
            raise OutputError(
                f"input {tensor.name!r} has free axes, {tensor.shape}; add a dataset, to say how long"
            )
        shape = [axis or size for axis in tensor.shape]
        batch[tensor.name] = random.standard_normal(shape).astype(tensor.dtype)
    return [batch]


@dataclass(frozen=True)
class Plan:
    """What a performance item runs.

    ``duration`` and ``budget`` in seconds, ``processes`` at the first look.
    """

    scenario: str
    batch_size: int
    processes: int
    duration: float
    budget: float
    limits: Sequence[Limit]

    @property
    def confidence(self) -> float:
        """95 % for the item: where it may look several times, each look takes its share
        (Bonferroni).
        """
        return 1 - 0.05 / (_LOOKS if self.limits else 1)

    @property
    def least(self) -> int:
        """Timed calls of a process: what the limits on percentiles need."""
        needs = [
            samples_for_percentile(p)
            for p in PERCENTILES
            if f"latency_p{p}" in {x.quantity for x in self.limits}
        ]
        return max([_LEAST, *needs])

    @property
    def longest(self) -> float:
        """Seconds that one process may time: half of its share of the budget.

        Warming up may take a quarter.
        """
        return self.budget / self.processes / 2


@dataclass(frozen=True)
class ProcessResult:
    """What one fresh process gave: seconds to start, to load, of the first call and of all calls.

    Bytes; the run.
    """

    start_seconds: float
    load_seconds: float
    first_seconds: float
    loop_seconds: float
    warmup_calls: int
    steady: bool
    peak_bytes: int
    peak_is_since_load: bool
    run: ScenarioRun

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, without the raw times."""
        facts = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "run"
        }
        return {**facts, "calls": len(self.run.latencies), "output_sha256": self.run.sha256}


def measure_performance(
    plan: Plan,
    new_predictor: Callable[[], AbstractContextManager[Predictor]],
    batches_for: Callable[[Predictor], Sequence[Mapping[str, Array]]],
    keep: Callable[[int, ProcessResult], None],
) -> tuple[dict[str, Estimate], list[Decision]]:
    """Return the estimates over fresh processes, and the decisions.

    The processes are the replicates: N of them, then twice as many and twice that again while a
    limit lies inside its interval and the budget lasts. ``keep`` gets each process's result as soon
    as it is there.
    """
    began, done = time.monotonic(), list[ProcessResult]()
    for look in range(_LOOKS):
        while len(done) < plan.processes * 2**look and not (
            look and _spent(began, len(done), plan.budget)
        ):
            with new_predictor() as predictor:
                done.append(_one_process(plan, predictor, batches_for(predictor)))
            keep(len(done) - 1, done[-1])
            _check_alike(done)
        estimates = estimate_performance(plan, done)
        decisions = judge(plan.limits, estimates)
        open_ = [
            one
            for one in decisions
            if one.verdict is Verdict.INCONCLUSIVE and not one.estimate.lacking
        ]
        if not open_ or _spent(began, len(done), plan.budget):
            break
    return estimates, decisions


def _spent(began: float, processes: int, budget: float) -> bool:
    """Whether one more process would pass the budget, if it takes as long as those before it."""
    spent = time.monotonic() - began
    return spent + spent / processes > budget


def _one_process(
    plan: Plan, predictor: Predictor, batches: Sequence[Mapping[str, Array]]
) -> ProcessResult:
    began = time.perf_counter()
    first = predictor.run("single_stream", batches, seconds=0, least=1, longest=plan.longest)
    calls, steady = _warm_up(plan, predictor)
    run = predictor.run(
        plan.scenario, seconds=plan.duration, least=plan.least, longest=plan.longest
    )
    loop_seconds = time.perf_counter() - began
    for name, output in run.outputs.items():
        _check_finite(name, _finite_rows(output))
    return ProcessResult(
        start_seconds=predictor.start_seconds,
        load_seconds=predictor.load_seconds,
        first_seconds=float(first.latencies[0]),
        loop_seconds=loop_seconds,
        warmup_calls=calls,
        steady=steady,
        peak_bytes=run.peak_bytes - predictor.rss_before,
        peak_is_since_load=predictor.peak_is_since_load,
        run=run,
    )


def _warm_up(plan: Plan, predictor: Predictor) -> tuple[int, bool]:
    """Run windows of calls until the median no longer falls.

    Return the calls, and whether it came to that.
    """
    calls, medians, end = 0, list[float](), time.monotonic() + plan.longest / 2
    while not is_steady(medians) and len(medians) < _WINDOWS and time.monotonic() < end:
        window = predictor.run(
            plan.scenario, seconds=_WINDOW_SECONDS, least=_WINDOW_CALLS, longest=plan.longest / 4
        )
        calls += len(window.latencies)
        medians.append(float(np.median(window.latencies)))
    return calls, is_steady(medians)


def _check_alike(done: Sequence[ProcessResult]) -> None:
    """Raise OutputError where the last process computed something else than the first from the same
    inputs.
    """
    for name, output in done[-1].run.outputs.items():
        difference = _difference(output, done[0].run.outputs[name])
        if difference:
            raise OutputError(
                f"process {len(done)} computed another {name!r} than process 1 from the same inputs, {difference}; "
                f"what is timed must be right: look for uninitialised memory or a race"
            )


def _difference(output: Array, expected: Array) -> str:
    """Say how the outputs differ by more than 1 % of the largest value, which no order of summation
    explains.
    """
    if output.shape != expected.shape:
        return f"{output.shape} for {expected.shape}"
    largest = np.abs(expected.astype(np.float64)).max(initial=0.0)
    off = np.abs(output.astype(np.float64) - expected).max(initial=0.0)
    return f"up to {off:g} off" if off > 0.01 * largest else ""


def estimate_performance(plan: Plan, done: Sequence[ProcessResult]) -> dict[str, Estimate]:
    """Return the quantities of a performance item: the mean of the processes' values, and Student's
    interval.

    Throughput is what a fixed amount of work gets, as in MLPerf's offline scenario: the processes'
    time for an input is what is averaged (so rates by the harmonic mean: Smith 1988, Communications
    of the ACM 31:1202), and it agrees with the mean latency.
    """
    runs = [result.run for result in done]
    fewest = min(len(run.latencies) for run in runs)
    reset = all(result.peak_is_since_load for result in done)
    values: dict[str, tuple[Sequence[float], str]] = {
        "latency_mean": ([float(run.latencies.mean()) for run in runs], ""),
        **{
            f"latency_p{p}": (
                [float(np.percentile(run.latencies, p)) for run in runs],
                _lacking(p, fewest),
            )
            for p in PERCENTILES
        },
        "first_inference": ([result.first_seconds for result in done], ""),
        "load_time": ([result.load_seconds for result in done], ""),
        "peak_memory": (
            [float(result.peak_bytes) for result in done],
            "" if reset else "this kernel can't reset the peak, so it may be that of the import",
        ),
    }
    confidence, seconds = plan.confidence, [_seconds_an_input(plan, run) for run in runs]
    ends = rate_interval(seconds, confidence)
    return {
        **{
            name: Estimate(
                fmean(each),
                *student_interval(each, confidence),
                confidence,
                len(done),
                "processes",
                lacking,
            )
            for name, (each, lacking) in values.items()
        },
        "throughput": Estimate(1 / fmean(seconds), *ends, confidence, len(done), "processes"),
    }


def _lacking(percentile: int, count: int) -> str:
    needed = samples_for_percentile(percentile) if percentile > 50 else 1
    return (
        f"needs {needed} calls a process, had {count}: raise --mlms-budget"
        if count < needed
        else ""
    )


def _seconds_an_input(plan: Plan, run: ScenarioRun) -> float:
    """Seconds: of the calls alone where each waits for the last, of the whole stretch where all are
    there.
    """
    if plan.scenario == "offline":
        return float(
            (run.times["end"][-1] - run.times["start"][0]) / len(run.latencies) / plan.batch_size
        )
    return float(run.latencies.mean() / plan.batch_size)
