"""The immutable facts that the other modules hand each other; nothing here computes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = [
    "QUANTITIES",
    "Artifact",
    "Decision",
    "Estimate",
    "Kind",
    "Limit",
    "Place",
    "Quantity",
    "Stack",
    "Verdict",
]

Kind = Literal["accuracy", "performance"]


class Place(NamedTuple):
    """A line of a file that the user wrote."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class Quantity(NamedTuple):
    """What can be measured: its base unit, the kind of item that measures it, and the side that a limit bounds."""

    unit: str
    kind: Kind
    bound: Literal["min", "max"]


QUANTITIES: dict[str, Quantity] = {
    "top1": Quantity("fraction", "accuracy", "min"),
    "top5": Quantity("fraction", "accuracy", "min"),
    "latency_mean": Quantity("s", "performance", "max"),
    "latency_p50": Quantity("s", "performance", "max"),
    "latency_p90": Quantity("s", "performance", "max"),
    "latency_p95": Quantity("s", "performance", "max"),
    "latency_p99": Quantity("s", "performance", "max"),
    "throughput": Quantity("/s", "performance", "min"),
    "first_inference": Quantity("s", "performance", "max"),
    "load_time": Quantity("s", "performance", "max"),
    "peak_memory": Quantity("B", "performance", "max"),
}
"""Name in a manifest's thresholds -> what it is."""


@dataclass(frozen=True)
class Artifact:
    """A file that a manifest names: ``source`` is an absolute path or a URL; ``member`` a path inside an archive."""

    source: str
    sha256: str | None
    place: Place
    member: str | None = None


@dataclass(frozen=True)
class Stack:
    """A software environment that runs agents: the command that starts its interpreter."""

    name: str
    framework: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Limit:
    """One line of a manifest's thresholds, and the cases that it judges (an empty tuple: all)."""

    quantity: str
    value: float
    place: Place
    batch_sizes: tuple[int, ...] = ()
    scenarios: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Estimate:
    """A measured quantity: the value and its interval, in the base unit; ``replicates`` says over how many of what.

    ``low`` and ``high`` are 0 and infinity where there is too little to say more, and ``lacking`` says what is.
    """

    value: float
    low: float
    high: float
    confidence: float
    replicates: int
    of: str
    lacking: str = ""


class Verdict(str, Enum):
    """What became of an item, worst first."""

    ERROR = "ERROR"
    FAILED = "FAILED"
    INCONCLUSIVE = "INCONCLUSIVE"
    XFAILED = "XFAILED"
    PASSED = "PASSED"
    SKIPPED = "SKIPPED"


@dataclass(frozen=True)
class Decision:
    """A limit, what was measured for it, and what follows."""

    limit: Limit
    estimate: Estimate
    verdict: Verdict
