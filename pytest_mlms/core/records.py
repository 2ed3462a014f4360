"""Immutable records that packages hand each other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pytest_mlms.core.serialization import NullAs, omitted_if_default, plain_as_list
from pytest_mlms.core.settings import DOWNLOAD_SIZE, DOWNLOAD_TIME, UNPACK_LIMIT

__all__ = [
    "UNDER_LOAD",
    "UNUSABLE",
    "Artifact",
    "ChangeForm",
    "Comparison",
    "Decision",
    "DownloadLimits",
    "Estimate",
    "InputGroup",
    "Kind",
    "Launch",
    "LayerChange",
    "Library",
    "Limit",
    "OwnScale",
    "PeakRecord",
    "Place",
    "Stack",
    "TriedRate",
    "Verdict",
    "change_form",
    "device_name",
    "main_comparison",
    "regressed_comparison",
]

ChangeForm = Literal["ratio", "difference", "multiple"]

Kind = Literal["accuracy", "performance", "agreement", "upgrade", "trace", "soak"]


def device_name(device: str) -> str:
    """Return the device with its index: cuda is cuda:0."""
    return f"{device}:0" if device == "cuda" else device


class Place(NamedTuple):
    """A line of a file that the user wrote."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class RecordedDigest(NamedTuple):
    """The file that records the digest of an unpinned one, and the name of that one there."""

    file: Path
    name: str


@dataclass(frozen=True)
class Artifact:
    """A file that a manifest names.

    ``source`` is an absolute path or a URL, ``member`` a path inside an archive. ``recorded`` is
    where the digest of an unpinned file is kept, whose ``sha256`` is None.
    """

    source: str
    sha256: str | None
    place: Place
    member: str | None = None
    recorded: RecordedDigest | None = None


class DownloadLimits(NamedTuple):
    """The most bytes of a file, the most seconds for it, and the most bytes that it unpacks to."""

    size: float = DOWNLOAD_SIZE
    seconds: float = DOWNLOAD_TIME
    unpacked: float = UNPACK_LIMIT


class Library(NamedTuple):
    """A system library that agents load under another name.

    ``name`` is the other name, ``library`` the file that the system's ``package`` installs.
    """

    name: str
    library: str
    package: str


class Serve(NamedTuple):
    """How a stack's server is started: its command, the path that it answers once it is ready.

    In ``command``, ``{port}`` stands for a free port, ``{graph}`` for a file of the model and
    ``{threads}`` for their number. ``ready`` is "" for the predictor's own path, and ``timeout``
    the longest start in seconds.
    """

    command: tuple[str, ...]
    ready: str = ""
    timeout: float = 120.0


@dataclass(frozen=True)
class Stack:
    """A declared software environment that runs agents.

    It is one of four: an ``interpreter`` ("current", or a path); an environment that is made of
    ``requirements`` with Python ``python`` or the current one; a ``container``'s image, with
    ``interpreter`` as its command; the command of a program that is an ``agent`` itself.
    ``threads`` and ``cores`` are for each of its agents. In ``env``, ``{stack}`` stands for the
    environment's folder; ``env_passthrough`` are patterns of pytest's variables that are passed on.
    An interpreter may have ``several`` frameworks: its ``framework`` is empty until it is asked for
    one. A stack with a ``variant`` runs the models of that variant only. ``options`` are those of
    pip; ``model_options`` go to its predictor, instead of a model's own of the same name. The
    predictor of a server starts it as ``serve`` says, or asks the one at ``endpoint``.
    pytest_mlms.provide.stacks.launch.prepare makes a Launch of a stack.
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
    env_passthrough: tuple[str, ...] = ()
    threads: int | None = None
    cores: tuple[int, ...] = ()
    place: Place | None = None
    several: bool = False
    variant: str = ""
    model_options: tuple[tuple[str, str | int | float | bool], ...] = ()
    agent: tuple[str, ...] = ()
    serve: Serve | None = None
    endpoint: str = ""

    @property
    def server(self) -> dict[str, Any] | None:
        """The settings of the server that its predictor starts or asks; None without one."""
        if self.endpoint:
            return {"endpoint": self.endpoint}
        return self.serve._asdict() if self.serve else None

    @property
    def label(self) -> str:
        """Its name in ids; for the interpreter that runs pytest, the framework's name."""
        here, plus, variables = self.name.partition("+")
        if here == "here":
            return f"{self.framework}{plus}{variables}"
        return f"{self.name}-{self.framework}" if self.several else self.name


@dataclass(frozen=True)
class Launch:
    """How to start an agent of a stack.

    Attributes:
        command: The interpreter and its flags; or, with ``is_agent``, an agent and its arguments.
        env: The whole environment of the process.
        cores: The cores that it is held to; empty for all.
        lock: The exact packages of an environment that was made for it.
        end: A command that ends what outlives the process, such as a container.
        device: What its agents call the device that it is for, where they see no other one.
        packages: The exact packages of an interpreter that was there before, a line each.
        lacking: The reason why there are no ``packages``, or empty.
        inherited: The variables of ``env`` by which the caller changes what is measured.
        server: The server that its predictor starts or asks, as ``Stack.server`` has it.

    In ``command`` and ``end``, ``{agent}`` stands for a name that each agent has for itself.
    """

    command: tuple[str, ...]
    env: Mapping[str, str]
    cores: tuple[int, ...] = ()
    lock: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    lacking: str = ""
    inherited: Mapping[str, str] = field(default_factory=dict)
    device: str = ""
    is_agent: bool = False
    server: Mapping[str, Any] | None = None


class OwnScale(NamedTuple):
    """The unit and the better direction of a quantity of a user's own test."""

    unit: str
    better: Literal["lower", "higher"]

    @property
    def bound(self) -> Literal["min", "max"]:
        """The side that a limit bounds."""
        return "max" if self.better == "lower" else "min"


@dataclass(frozen=True)
class Limit:
    """A limit of a manifest, and the cases that it judges; an empty tuple selects all.

    ``own`` is set for the limit of a user's own test on a quantity of its own. ``default`` is True
    where no line sets it; ``place`` is then where one may.
    """

    quantity: str
    value: float
    place: Place
    batch_sizes: tuple[int, ...] = ()
    scenarios: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()
    own: OwnScale | None = None
    default: bool = False
    shapes: tuple[str, ...] = omitted_if_default(())


@dataclass(frozen=True)
class Estimate:
    """A measured quantity: the value and its interval, in the base unit.

    It rests on ``replicates`` processes, inputs or other samples, as ``of`` says. Where there are
    too few, ``low`` and ``high`` are 0 and infinity, and ``lacking`` says what is missing.
    ``less_wait`` is the value of a time or rate without the calling thread's wait for a core, None
    where the kernel doesn't count it. ``counter`` is what told the value, where several may.
    """

    value: float
    low: float
    high: float
    confidence: float
    replicates: int
    of: str
    lacking: str = ""
    less_wait: float | None = None
    counter: str = omitted_if_default("")


@dataclass(frozen=True)
class InputGroup:
    """The latency of a group of a workload's inputs, which are of one shape, in seconds.

    ``share`` is the group's share of all inputs. ``low`` and ``high`` are the ends of the
    interval: of the latency, and in an upgrade of its ``ratio`` to that of the ``baseline``.
    ``inputs`` were timed. ``ttft`` and ``tpot`` are those of a generation outside of upgrades.
    """

    name: str
    share: float
    latency: float
    low: Annotated[float, NullAs(-math.inf)]
    high: Annotated[float, NullAs(math.inf)]
    inputs: int = 0
    baseline: float | None = None
    ratio: float | None = None
    verdict: Verdict | None = None
    ttft: float | None = omitted_if_default(None)
    tpot: float | None = omitted_if_default(None)


class Verdict(str, Enum):
    """Verdict on an item, worst first."""

    ERROR = "ERROR"
    INVALID = "INVALID"
    FAILED = "FAILED"
    REGRESSED = "REGRESSED"
    INCONCLUSIVE = "INCONCLUSIVE"
    XFAILED = "XFAILED"
    PASSED = "PASSED"
    IMPROVED = "IMPROVED"
    SKIPPED = "SKIPPED"


UNUSABLE = ("INVALID", "ERROR")
"""Verdicts of items whose values say nothing."""


@dataclass(frozen=True)
class Decision:
    """A limit, the estimate of its quantity, and the verdict.

    The estimate is for a ``group`` of inputs where its shape is the worst of all. ``reason`` says
    why a decision is open, and what helps, where the interval alone doesn't.
    """

    limit: Limit
    estimate: Estimate
    verdict: Verdict
    reason: str = ""
    group: str = omitted_if_default("")


@dataclass(frozen=True)
class Comparison:
    """One quantity of an upgrade: both values, their ratio with its interval, and the verdict.

    Attributes:
        quantity: Its name.
        a: The baseline's value in ``unit``.
        b: The candidate's value in ``unit``.
        unit: The base unit.
        tolerance: How much worse the candidate may be, as a share.
        gate: Whether it must be shown to be within the tolerance, else the item is INCONCLUSIVE. A
            quantity that isn't a gate fails only where it is surely outside.
        replicates: The number of samples.
        of: What the samples are, such as rounds or inputs.
        lacking: What is missing for a verdict, "" if nothing.
        ratio: B over A; for quantities over inputs B less A, as a share of A where they are no
            fractions.
        low: The lower end of the ratio's interval.
        high: The upper end of the ratio's interval.
        verdict: The verdict on the quantity.
        floor: The half of the interval that a failure must pass, as a share.
        detectable: The smallest true change that would have been found four times of five, as a
            share.
        least_change: The change in ``unit`` that the tolerance stands for, where that is more than
            the share that was asked for; else 0.
        asked: The tolerance that was asked for, where the one that decides is wider; else None.
        told: What was compared and how far it agrees, of outputs.
        about: The inputs or calls that it is about, where these are not all of them.
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
    least_change: float = 0.0
    asked: float | None = omitted_if_default(None)
    told: str = omitted_if_default("")
    about: str = omitted_if_default("")

    def but(self, **changes: Any) -> Comparison:
        """Return the same with some fields changed."""
        return replace(self, **changes)


def change_form(quantity: str, of: str) -> ChangeForm:
    """Return the meaning of a comparison's ``ratio``: for outputs a multiple of the tolerance."""
    if quantity == "agreement" or of == "outputs":
        return "multiple"
    return "difference" if of == "inputs" else "ratio"


UNDER_LOAD = ("peak_rate", "query_latency")
"""The quantities that an upgrade under load is about: it has one of them."""


def main_comparison(comparisons: Iterable[Comparison]) -> Comparison | None:
    """Return the comparison that an upgrade is about, None where there is none.

    It compares latency, and under load the latency of queries, or their peak.
    """
    by_name = {compared.quantity: compared for compared in comparisons}
    for name in UNDER_LOAD:
        if name in by_name:
            return by_name[name]
    return by_name.get("latency")


def regressed_comparison(comparisons: Iterable[Comparison]) -> Comparison | None:
    """Return the comparison that made an upgrade regress, None where none did.

    A crash and outputs come first, as they end an upgrade, then the main one.
    """
    worse = [compared for compared in comparisons if compared.verdict is Verdict.REGRESSED]
    for compared in worse:
        if compared.quantity == "crash" or compared.of == "outputs":
            return compared
    return main_comparison(worse) or next(iter(worse), None)


@plain_as_list
class LayerChange(NamedTuple):
    """A layer's seconds a call on both sides, and its change.

    ``a`` or ``b`` is None where that side has no such layer. ``share`` is of the change of all
    layers together, None where that is small beside those of single ones, which cancel out.
    """

    name: str
    type: str
    a: float | None
    b: float | None
    change: float
    share: float | None


@dataclass(frozen=True)
class TriedRate:
    """A rate in queries a second, and the seconds of the percentile of the latencies there.

    ``late`` is whether the load generator was, so that it may be the cause.
    """

    rate: float
    latency: float
    late: bool = False


@dataclass(frozen=True)
class PeakRecord:
    """The rate at which a side's percentile of latencies is at the limit in a round.

    ``good`` is the highest rate within the limit, 0 where there is none, and ``bad`` the lowest
    one above it that breaks the limit. ``rate`` is between both, or the one that is there.
    ``tried`` has each run of load, in their order. ``exceptions`` are rates well below ``good``
    that broke the limit: the outcomes are not monotone, as with a batcher.
    """

    rate: float
    good: float
    bad: Annotated[float, NullAs(math.inf)]
    tried: Sequence[TriedRate] = ()
    exceptions: Sequence[float] = ()

    @property
    def late(self) -> bool:
        """True if the last run of load at an end was issued late."""
        last = {tried.rate: tried.late for tried in self.tried}
        return last.get(self.good, False) or last.get(self.bad, False)
