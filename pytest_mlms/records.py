"""The immutable facts that the other modules hand each other; nothing here computes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pytest_mlms.serialization import NullAs

__all__ = [
    "Artifact",
    "Comparison",
    "Decision",
    "Estimate",
    "Kind",
    "Launch",
    "Library",
    "Limit",
    "Place",
    "Stack",
    "Verdict",
    "device_name",
]

Kind = Literal["accuracy", "performance", "agreement", "upgrade", "trace"]


def device_name(device: str) -> str:
    """Return the device with its index: cuda is cuda:0."""
    return f"{device}:0" if device == "cuda" else device


class Place(NamedTuple):
    """A line of a file that the user wrote."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True)
class Artifact:
    """A file that a manifest names: ``source`` is an absolute path or a URL.

    ``member`` a path inside an archive.
    """

    source: str
    sha256: str | None
    place: Place
    member: str | None = None


class Library(NamedTuple):
    """A system library that agents load as ``name``.

    The one there is, ``library``, of the system's ``package``.
    """

    name: str
    library: str
    package: str


@dataclass(frozen=True)
class Stack:
    """A software environment that runs agents, as declared; pytest_mlms.stacks.launch.prepare makes
    a Launch of it.

    It is an ``interpreter`` ("current", or the path of one), or ``requirements`` that an
    environment is made of, with Python ``python`` or the current one, or a ``container`` (an image,
    and ``interpreter`` its command). ``threads`` and ``cores`` are for every agent of it. In
    ``env``, ``{stack}`` stands for the environment's folder. An interpreter may have ``several``
    frameworks: its ``framework`` is empty until it is asked for one.
    """

    name: str
    framework: str
    interpreter: str | None = None
    python: str | None = None
    requirements: tuple[str, ...] = ()
    installer: Literal["pip", "uv"] = "pip"
    options: tuple[str, ...] = ()
    lock: Path | None = None
    container: str | None = None
    libraries: tuple[Library, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    threads: int | None = None
    cores: tuple[int, ...] = ()
    place: Place | None = None
    several: bool = False

    @property
    def label(self) -> str:
        """What ids call it: its name; of the interpreter that runs pytest, the framework's."""
        if self.name == "here":
            return self.framework
        return f"{self.name}-{self.framework}" if self.several else self.name


@dataclass(frozen=True)
class Launch:
    """How to start an agent of a stack: the interpreter and its flags, its whole environment, the
    cores it is held to.

    ``cores`` is empty where it may use all; ``lock`` has the exact packages of an environment that
    we made. ``end`` is a command that ends what outlives the process, such as a container; there
    and in ``command``, ``{agent}`` stands for a name that each agent has for itself.
    """

    command: tuple[str, ...]
    env: Mapping[str, str]
    cores: tuple[int, ...] = ()
    lock: tuple[str, ...] = ()
    end: tuple[str, ...] = ()


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
    """A measured quantity: the value and its interval, in the base unit; ``replicates`` says over
    how many of what.

    ``low`` and ``high`` are 0 and infinity where there is too little to say more, and ``lacking``
    says what is.
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
    INVALID = "INVALID"
    FAILED = "FAILED"
    REGRESSED = "REGRESSED"
    INCONCLUSIVE = "INCONCLUSIVE"
    XFAILED = "XFAILED"
    PASSED = "PASSED"
    IMPROVED = "IMPROVED"
    SKIPPED = "SKIPPED"


@dataclass(frozen=True)
class Decision:
    """A limit, what was measured for it, and what follows."""

    limit: Limit
    estimate: Estimate
    verdict: Verdict


@dataclass(frozen=True)
class Comparison:
    """One quantity of an upgrade: the baseline's and the candidate's value, their ratio with its
    interval, the verdict.

    ``a`` and ``b`` are in ``unit``; ``ratio``, ``low`` and ``high`` are B over A, for shares of
    right answers B less A. A ``gate`` must be shown to be within ``tolerance``, else the item is
    INCONCLUSIVE; what isn't one fails only where it is surely outside. ``floor`` is the half of the
    interval that a failure must pass, and ``detectable`` the smallest true change that would have
    been found four times of five, both as shares.
    """

    quantity: str
    a: Annotated[float, NullAs(math.nan)]
    b: Annotated[float, NullAs(math.nan)]
    unit: str
    tolerance: float
    gate: bool
    replicates: int
    of: str
    lacking: str = ""
    ratio: Annotated[float, NullAs(math.nan)] = math.nan
    low: Annotated[float, NullAs(-math.inf)] = -math.inf
    high: Annotated[float, NullAs(math.inf)] = math.inf
    verdict: Verdict = Verdict.INCONCLUSIVE
    floor: Annotated[float, NullAs(math.nan)] = math.nan
    detectable: Annotated[float, NullAs(math.nan)] = math.nan

    def but(self, **changes: Any) -> Comparison:
        """Return the same with some fields changed."""
        return replace(self, **changes)
