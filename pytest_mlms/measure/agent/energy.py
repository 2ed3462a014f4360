"""Energy of a device during a timed run, as an agent reads it from counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Energy:
    """Energy of the device during a run.

    ``joules`` has that of each counter, empty where there is none: ``missing`` is the reason.
    ``idle_watts`` is the power by counter before the run, empty where it was not measured.
    ``period`` are the seconds in which a GPU's counter advances, None where that is not known.
    """

    joules: Mapping[str, float]
    idle_watts: Mapping[str, float]
    missing: str
    period: float | None = None

    @property
    def total(self) -> float | None:
        """Joules of all counters; None where they are missing."""
        return sum(self.joules.values()) if self.joules else None

    def per_input(self, inputs: int) -> float | None:
        """Return the joules for each of ``inputs``; None where they are missing."""
        return None if self.total is None else self.total / inputs

    @property
    def idle(self) -> float | None:
        """Watts of all counters before the run; None where they were not measured."""
        return sum(self.idle_watts.values()) if self.idle_watts else None


UNTOLD = Energy({}, {}, "it was not measured")
"""No energy."""
