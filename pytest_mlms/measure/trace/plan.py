"""Plan of a trace: which runs it makes, with which probes, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from mlms_predictors._run.probes import probes_at

from pytest_mlms.measure.trace import BY_LAYER, LEVELS

_COUNTERS_OF_LAYERS = ["perf"]  # quick enough to be read between layers


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
        deeper = LEVELS[LEVELS.index("model") + 1 :]
        for level in deeper:
            if level in self.levels:
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
        """Return the names of the probes of a run; bpftrace only where functions are given."""
        names = probes_of(level)
        if "bpftrace" in names and not self.functions:
            names.remove("bpftrace")
        return names


def probes_of(level: str) -> list[str]:
    """Return the names of all probes of a run.

    Layers come from the framework's own profiler, which the agent starts by the level of the run.
    """
    if level == BY_LAYER:
        return list(_COUNTERS_OF_LAYERS)
    names: list[str] = probes_at(level)
    return names
