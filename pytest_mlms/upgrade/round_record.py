"""Records of a round: what results.jsonl keeps of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_mlms.evaluate.load_record import LoadRecord
from pytest_mlms.upgrade.figures import Figure
from pytest_mlms.upgrade.rounds import SideName

__all__ = ["RoundRecord", "SideRecord"]


@dataclass(frozen=True)
class SideRecord:
    """One process of a round: the software and the device that it used, seconds, and bytes."""

    pid: int
    versions: Mapping[str, str]
    python: str
    executable: str
    device_used: str
    threads_used: int | None
    start_seconds: float
    load_seconds: float
    first_seconds: float
    peak_bytes: int | None


@dataclass(frozen=True)
class RoundRecord:
    """How a round was run, and the quantities that it gave.

    A side had ``pairs`` turns of ``calls`` timed calls, each after ``skipped`` calls that were not
    timed. ``calling_core`` is the core that the calling threads were held to, None where they were
    not. ``steady`` is whether the warm-up of ``warmup_pairs`` reached a steady state,
    ``turns_exclusive`` whether the waiting side was stopped. ``loads`` are those of a scenario with
    queries.
    """

    started_first: SideName
    cores: Sequence[int]
    pairs: int
    calls: int
    skipped: int
    calling_core: int | None
    warmup_pairs: int
    steady: bool
    turns_exclusive: bool
    seconds: float
    sides: Mapping[SideName, SideRecord]
    figures: Mapping[str, Figure] = field(default_factory=dict)
    loads: Mapping[str, LoadRecord] = field(default_factory=dict)
