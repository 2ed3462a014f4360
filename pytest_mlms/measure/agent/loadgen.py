"""A run of MLPerf's LoadGen in an agent: its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_mlms.core.memory import available_memory
from pytest_mlms.measure.agent.load import Batcher


@dataclass(frozen=True)
class LoadGenPlan:
    """A run of LoadGen, and the instances that serve its queries.

    Attributes:
        scenario: LoadGen's name of the scenario, such as "Server".
        settings: Settings by their names in LoadGen's ``TestSettings``.
        longest: Seconds that the run may take.
        mode: LoadGen's name of the mode: "PerformanceOnly" or "AccuracyOnly".
        samples_per_query: The inputs of a query of MultiStream, which are one call.
        instances: Copies of the model that serve queries at the same time.
        batcher: The dynamic batcher; None: a call serves one query.
    """

    scenario: str
    settings: Mapping[str, Any]
    longest: float
    mode: str = "PerformanceOnly"
    samples_per_query: int = 1
    instances: int = 1
    batcher: Batcher | None = None

    def request_fields(self, batches: int) -> dict[str, Any]:
        """Return the fields of the request, with as many batches."""
        batcher = self.batcher or Batcher(1, 0)
        return {
            "scenario": self.scenario,
            "mode": self.mode,
            "settings": dict(self.settings),
            "batches": batches,
            "per_query": self.samples_per_query,
            "instances": self.instances,
            "most": batcher.max_batch,
            "max_delay": batcher.max_delay,
            "seconds": 0.0,
            "least": 0,
            "longest": self.longest,
            "idle": 0.0,
            "available": available_memory(),
        }
