"""Plan of a trace: which runs it makes, with which probes, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_mlms.trace import BY_LAYER

__all__ = ["PROBES", "TracePlan"]

PROBES: dict[str, tuple[str, ...]] = {
    "model": (),
    "layer": (),
    "library": ("cupti", "kineto", "bpftrace"),
    "kernel": ("cupti", "kineto"),
    "hardware": ("perf", "io", "memory", "rapl", "hwmon", "nvml", "gpm"),
    BY_LAYER: ("perf",),
}
"""Probes of each level that has a run in an agent.

Layers come from the framework's own profiler, which the agent starts by the level of the run.
"""


@dataclass(frozen=True)
class TracePlan:
    """Levels and limits of a trace.

    ``duration`` is the seconds of traced calls at each level. ``budget`` is the most seconds for
    the whole trace. ``functions`` are the native functions that bpftrace observes.
    """

    levels: tuple[str, ...]
    duration: float
    budget: float
    functions: tuple[str, ...] = ()

    @property
    def runs(self) -> list[str]:
        """Levels with a run in an agent, in the order in which they run.

        The model's own run comes first: it is the measure of all others.
        """
        runs = ["model"]
        for level in PROBES:
            if level in self.levels and level != "model":
                runs.append(level)
        if "layer" in self.levels and "hardware" in self.levels:
            runs.append(BY_LAYER)
        return runs

    @property
    def seconds(self) -> float:
        """Seconds of traced calls in a run."""
        share = self.budget / len(self.runs)
        return min(self.duration, share / 4)

    @property
    def longest(self) -> float:
        """The most seconds of a run."""
        return self.budget / len(self.runs)

    def probes(self, level: str) -> list[str]:
        """Return the names of the probes of a level; bpftrace only where functions are given."""
        names = list(PROBES[level])
        if "bpftrace" in names and not self.functions:
            names.remove("bpftrace")
        return names
