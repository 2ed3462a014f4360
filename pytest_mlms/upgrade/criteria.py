"""What an upgrade is held to and how it is run: from the manifest, the options, and the machine."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any, cast

from pytest_mlms.cases import Case
from pytest_mlms.config import Config
from pytest_mlms.errors import InvalidRun
from pytest_mlms.host.gpu_monitor import GpuReading, gpu_notes, gpu_problems, open_gpu
from pytest_mlms.host.machine import machine_state
from pytest_mlms.upgrade.decision import TOLERANCES, Clock
from pytest_mlms.upgrade.interleave import AgentPair, InterleavePlan
from pytest_mlms.upgrade.run import Criteria

__all__ = ["duel_of", "terms_of", "told", "watch_device"]

_SHARE = 1.5  # of --mlms-duration for both sides together


def terms_of(case: Case, config: Config) -> Criteria:
    """Return the terms: the command line's tolerance, else the manifest's, else the default of 3 %."""
    own = case.loaded.manifest.thresholds.upgrade
    named = own.tolerances()
    latency_tolerance = named.pop("latency", None)
    latency = next(
        share
        for share in (config.tolerance, latency_tolerance, TOLERANCES["latency"].tolerance)
        if share is not None
    )
    return Criteria(
        {"latency": latency, **named}, ("latency", *named), cast("Clock | None", config.clock)
    )


def duel_of(case: Case, config: Config) -> InterleavePlan:
    """Return how it is run: on as many cores as the side with more threads has, drawn from those
    that both may use.
    """
    counts = [case.threads, case.baseline.threads]
    threads = None if None in counts else max(count for count in counts if count)
    return InterleavePlan(
        seconds=_SHARE * config.duration,
        budget=config.budget,
        seed=int.from_bytes(os.urandom(4), "big"),
        cores=_cores(case),
        threads=threads,
    )


def _cores(case: Case) -> list[int]:
    if not hasattr(os, "sched_getaffinity"):
        return []
    allowed = set(os.sched_getaffinity(0))
    for stack in (case.stack, case.baseline.stack):
        allowed &= set(stack.cores) or allowed
    if not allowed:
        raise InvalidRun(
            f"{case.stack.name} and {case.baseline.stack.name} have no core in common that this process may use; "
            f"give both the same cores"
        )
    return sorted(allowed)


def told(case: Case, config: Config) -> dict[str, Any]:
    """Return what the text of an upgrade tells of its setting."""
    return {
        "a": case.baseline.stack.name,
        "b": case.stack.name,
        "budget": config.budget,
        "threads": [case.baseline.threads, case.threads],
        "place": str(case.loaded.place("thresholds", "upgrade")),
        "asked": config.tolerance is not None,
        "machine": machine_state(),
    }


@contextlib.contextmanager
def watch_device(
    device: str, note: Callable[..., None]
) -> Iterator[Callable[[AgentPair], list[str]]]:
    """Give a function that looks at the device after a round, and says why what was measured can't
    be trusted.

    What the driver says each time goes to ``note``, as plain values and in words.
    """
    if device == "cpu":
        yield lambda pair: []
        return
    with open_gpu(device) as gpu:
        readings: list[GpuReading] = [gpu.read(loaded=False)]
        own: set[int] = set()

        def look(pair: AgentPair) -> list[str]:
            own.update(side.agent.process.pid for side in (pair.a, pair.b))
            readings.append(gpu.read(loaded=True))
            note(
                gpu_readings=[dataclasses.asdict(one) for one in readings],
                gpu_notes=gpu_notes(readings),
            )
            return gpu_problems(readings, own)

        faults = gpu_problems(readings, own)
        if faults:
            raise InvalidRun(f"device {device} is not free: {'; '.join(faults)}; end what uses it")
        yield look
