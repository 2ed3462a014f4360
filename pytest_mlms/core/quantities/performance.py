"""Quantities of performance, and those of an upgrade's turns."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pytest_mlms.core.quantities.quantity import (
    Column,
    ProcessEstimator,
    ProcessValues,
    Quantity,
    UpgradeRule,
    percentile,
)

_CALL_NOISE = 0.6e-6
"""Seconds that the fixed costs of a call differ by; docs/methodology.md has the reason."""

_MEMORY_NOISE = 1 << 20
"""Bytes of memory that don't matter to users, however small a model is."""


_DEVICE_MEMORY_STEP = 20 << 20
"""Bytes by which PyTorch's pool on a GPU grows where a tensor needs one of them."""


def _device_counters(process: ProcessValues) -> Mapping[str, int]:
    return process.device_memory.counters if process.device_memory else {}


def _missing_device_memory(process: ProcessValues) -> str:
    found = process.device_memory
    if found is None or not found.counters:
        return found.missing if found and found.missing else "it was not measured"
    return ""


def _missing_peak(process: ProcessValues) -> str:
    if process.peak_is_since_load:
        return ""
    return "this kernel can't reset the peak, so it may be that of the import"


def _missing_device_time(process: ProcessValues) -> str:
    if process.device_time is None:
        return "the predictor doesn't tell the time on the device"
    return ""


def _missing_growth(process: ProcessValues) -> str:
    if math.isnan(process.memory_growth):
        return "it is not measured under load; see test_soak (--mlms-soak)"
    return ""


def _of_turns(name: str, description: str, rule: UpgradeRule, unit: str = "s") -> Quantity:
    return Quantity(
        name=name,
        unit=unit,
        better="lower",
        kind="upgrade",
        description=description,
        upgrade=rule,
    )


UPGRADE = [
    _of_turns(
        "latency",
        "median latency of a turn, by the clock that disturbances touch least",
        UpgradeRule(0.03, least_change=_CALL_NOISE, key="tolerance", estimate="latency_p50"),
    ),
    _of_turns("cpu_time", "CPU time of the process for a call of an upgrade", UpgradeRule(0.03)),
    _of_turns("wall_time", "wall time of a call of an upgrade", UpgradeRule(0.10)),
    _of_turns(
        "group_latency",
        "latency of the group of inputs that got worst, where they have several shapes",
        UpgradeRule(0.03, least_change=_CALL_NOISE, samples="groups"),
    ),
    _of_turns(
        "slow_inputs",
        "latency of the inputs that several rounds show as slower than the others, timed again in "
        "each further round",
        UpgradeRule(0.50, samples="groups"),
    ),
    _of_turns(
        "stalls",
        "share of the calls that take three times the median or more, neighbours counted once",
        UpgradeRule(0.50, samples="calls"),
        unit="fraction",
    ),
    _of_turns(
        "idle_cpu",
        "CPU time of the process in a second in which nothing is called",
        UpgradeRule(0.50, base=0.020),
    ),
    _of_turns(
        "warm_up_time",
        "time of a process's calls between its first one and those that are timed, as many on both "
        "sides",
        UpgradeRule(0.20, base=0.050),
    ),
    _of_turns(
        "late_latency",
        "latency after some thousand calls, where it is a gate or the first round shows it as "
        "slower than before",
        UpgradeRule(0.10),
    ),
]
"""Quantities that only the turns of an upgrade measure."""

PERFORMANCE = [
    Quantity(
        name="latency_mean",
        unit="s",
        better="lower",
        kind="performance",
        description="mean latency of a call",
        limit_key="latency_mean",
        estimator=ProcessEstimator(lambda process: process.mean_latency, of_calls=True),
    ),
    Quantity(
        name="latency_p50",
        unit="s",
        better="lower",
        kind="performance",
        description="median latency of a call",
        limit_key="latency_p50",
        estimator=percentile(50),
        column=Column("latency and throughput", "p50", "spread"),
    ),
    Quantity(
        name="latency_p90",
        unit="s",
        better="lower",
        kind="performance",
        description="90th percentile of the latencies",
        limit_key="latency_p90",
        estimator=percentile(90),
        upgrade=UpgradeRule(tolerance=0.05),
        column=Column("latency and throughput", "p90"),
    ),
    Quantity(
        name="latency_p95",
        unit="s",
        better="lower",
        kind="performance",
        description="95th percentile of the latencies",
        limit_key="latency_p95",
        estimator=percentile(95),
        upgrade=UpgradeRule(tolerance=0.08),
    ),
    Quantity(
        name="latency_p99",
        unit="s",
        better="lower",
        kind="performance",
        description="99th percentile of the latencies",
        limit_key="latency_p99",
        estimator=percentile(99),
        upgrade=UpgradeRule(tolerance=0.15),
        column=Column("latency and throughput", "p99"),
    ),
    Quantity(
        name="throughput",
        unit="/s",
        better="higher",
        kind="performance",
        description="inputs a second",
        limit_key="throughput",
        estimator=ProcessEstimator(
            lambda process: process.seconds_per_input, is_rate=True, of_calls=True
        ),
        upgrade=UpgradeRule(tolerance=0.05, estimate="throughput"),
        column=Column("latency and throughput", "throughput"),
    ),
    Quantity(
        name="device_time",
        unit="s",
        better="lower",
        kind="performance",
        description="median time of a call on a GPU, by its own events, without copies",
        limit_key="device_time",
        estimator=ProcessEstimator(
            lambda process: process.device_time.seconds if process.device_time else math.nan,
            missing=_missing_device_time,
            counter=lambda process: process.device_time.counter if process.device_time else "",
        ),
        column=Column("latency and throughput", "on GPU"),
        of_gpu=True,
    ),
    Quantity(
        name="query_latency",
        unit="s",
        better="lower",
        kind="performance",
        description="percentile of the queries' latencies under load, of the process in which it "
        "is longest, from the time for which they were scheduled, by LoadGen's definition",
        column=Column("queries under load", "latency", "interval"),
        upgrade=UpgradeRule(tolerance=0.08),
        under_load=True,
    ),
    Quantity(
        name="query_rate",
        unit="/s",
        better="higher",
        kind="performance",
        description="queries a second that were done under load",
        limit_key="query_rate",
        column=Column("queries under load", "rate"),
        upgrade=UpgradeRule(tolerance=0.05),
        under_load=True,
    ),
    Quantity(
        name="peak_rate",
        unit="/s",
        better="higher",
        kind="performance",
        description="highest rate of queries at which the scenario's percentile of latencies is "
        "within its limit; the interval is the highest rate shown good and the lowest shown bad",
        limit_key="peak_rate",
        column=Column("queries under load", "peak", "interval"),
        upgrade=UpgradeRule(tolerance=0.08),
        under_load=True,
    ),
    Quantity(
        name="queue_delay",
        unit="s",
        better="lower",
        kind="performance",
        description="mean time that queries waited for the model",
        limit_key="queue_delay",
        column=Column("queries under load", "queue delay"),
        under_load=True,
    ),
    Quantity(
        name="issue_delay",
        unit="s",
        better="lower",
        kind="performance",
        description="99th percentile of the delay of queries by the load generator itself",
        column=Column("queries under load", "issue delay"),
        under_load=True,
    ),
    Quantity(
        name="start_time",
        unit="s",
        better="lower",
        kind="performance",
        description="time from the start of a fresh process to its first answer",
        limit_key="start_time",
        estimator=ProcessEstimator(lambda process: process.time_to_answer),
        upgrade=UpgradeRule(tolerance=0.20, base=0.050, estimate="start_time"),
        column=Column("start-up and memory", "start"),
    ),
    Quantity(
        name="load_time",
        unit="s",
        better="lower",
        kind="performance",
        description="time to load the model in a fresh process",
        limit_key="load_time",
        estimator=ProcessEstimator(lambda process: process.load_seconds),
        upgrade=UpgradeRule(tolerance=0.20, base=0.050, estimate="load_time"),
        column=Column("start-up and memory", "load"),
    ),
    Quantity(
        name="first_inference",
        unit="s",
        better="lower",
        kind="performance",
        description="latency of the first call of a fresh process, with its preparation, in which "
        "a framework may compile the model",
        limit_key="first_inference",
        estimator=ProcessEstimator(lambda process: process.first_seconds),
        upgrade=UpgradeRule(tolerance=0.20, base=0.025, estimate="first_inference"),
        column=Column("start-up and memory", "first call"),
    ),
    Quantity(
        name="peak_memory",
        unit="B",
        better="lower",
        kind="performance",
        description="largest resident memory, less that before the model was loaded, without pages "
        "of programs and libraries",
        limit_key="peak_memory",
        estimator=ProcessEstimator(
            lambda process: float(process.peak_bytes), missing=_missing_peak
        ),
        upgrade=UpgradeRule(tolerance=0.10, least_change=_MEMORY_NOISE, estimate="peak_memory"),
        column=Column("start-up and memory", "peak memory"),
    ),
    Quantity(
        name="device_memory",
        unit="B",
        better="lower",
        kind="performance",
        description="largest memory on a GPU since the model began to load, by the framework's "
        "counter, else that of the process by NVML",
        limit_key="device_memory",
        estimator=ProcessEstimator(
            lambda process: float(next(iter(_device_counters(process).values()), math.nan)),
            missing=_missing_device_memory,
            counter=lambda process: next(iter(_device_counters(process)), ""),
        ),
        upgrade=UpgradeRule(
            tolerance=0.10, least_change=_DEVICE_MEMORY_STEP, estimate="device_memory"
        ),
        column=Column("start-up and memory", "GPU memory"),
        of_gpu=True,
    ),
    Quantity(
        name="import_memory",
        unit="B",
        better="lower",
        kind="performance",
        description="resident memory before the model was loaded: what the interpreter and the "
        "imports hold, without pages of programs and libraries",
        limit_key="import_memory",
        estimator=ProcessEstimator(
            lambda process: process.import_bytes,
            missing=lambda process: "" if process.import_bytes >= 0 else "it was not measured",
        ),
        upgrade=UpgradeRule(tolerance=0.10, least_change=_MEMORY_NOISE, estimate="import_memory"),
        column=Column("start-up and memory", "imports"),
    ),
    Quantity(
        name="memory_growth",
        unit="B",
        better="lower",
        kind="performance",
        description="memory that each call adds to what a process and its device hold",
        limit_key="memory_growth",
        estimator=ProcessEstimator(lambda process: process.memory_growth, missing=_missing_growth),
        upgrade=UpgradeRule(tolerance=0.50, base=512.0),
        column=Column("start-up and memory", "growth a call"),
    ),
    Quantity(
        name="energy_per_input",
        unit="J",
        better="lower",
        kind="performance",
        description="energy of the device during the timed calls for one input, by its counters",
        limit_key="energy_per_input",
        estimator=ProcessEstimator(
            lambda process: process.joules_per_input,
            missing=lambda process: process.energy_missing,
        ),
        upgrade=UpgradeRule(tolerance=0.10),
    ),
    Quantity(
        name="batch_agreement",
        unit="",
        better="lower",
        kind="performance",
        description="largest difference of 8 inputs alone from the same in one batch, as a "
        "multiple of what is allowed for rounding; measured where it is limited",
        limit_key="batch_agreement",
        estimator=ProcessEstimator(
            lambda process: process.batch_agreement,
            missing=lambda process: process.batch_missing,
        ),
        upgrade=UpgradeRule(tolerance=1.0, base=1.0, samples="outputs"),
    ),
]
"""Quantities that are estimated from fresh processes."""
