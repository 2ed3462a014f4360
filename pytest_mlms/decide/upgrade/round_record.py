"""Records of a round: what results.jsonl keeps of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mlms_predictors._run.replies import DeviceBytes

from pytest_mlms.core.records import PeakRecord
from pytest_mlms.core.serialization import omitted_if_default
from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.round_estimate import OrderEffect, order_effect
from pytest_mlms.decide.upgrade.rounds import SideName
from pytest_mlms.measure.evaluate.process_result import LoadRecord


@dataclass(frozen=True)
class SideRecord:
    """One process of a round: the software and the device that it used, seconds, and bytes.

    ``interpreter_seconds`` and ``import_seconds`` are parts of ``start_seconds``, None if not told.
    ``device_memory`` is the peak on a GPU, None on the CPU. ``event_times`` are the seconds between
    the events of a call there, and of one whose launches had a head start. ``unmeasured`` has the
    reason of each quantity that can't be measured of the model.
    """

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
    interpreter_seconds: float | None = None
    import_seconds: float | None = None
    import_bytes: int | None = None
    device_memory: DeviceBytes | None = omitted_if_default(None)
    device_facts: Mapping[str, str] | None = omitted_if_default(None)
    event_times: tuple[float, float | None] | None = omitted_if_default(None)
    unmeasured: Mapping[str, str] | None = omitted_if_default(None)


@dataclass(frozen=True)
class RoundRecord:
    """How a round was run, and the quantities that it gave.

    A side had ``pairs`` turns of ``calls`` timed calls, each after ``skipped`` calls that were not
    timed. ``calling_core`` is the core that the calling threads were held to, None where they were
    not. ``steady`` is whether the warm-up of ``warmup_pairs`` reached a steady state,
    ``turns_exclusive`` whether the waiting side was stopped. ``loads`` are the runs of a scenario
    with queries: "a" is the first on side A, "a2" the second. ``peaks`` are those of both sides,
    where they were searched. ``started_together`` is whether both sides started and loaded at once;
    ``clock_step`` is that of the clock in seconds, 0 where it is too fine to show.
    where they were searched. ``starts`` has how many times longer a turn's first call takes than
    later ones. ``groups`` has the latency of each group of inputs, where these have several shapes.
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
    peaks: Mapping[SideName, PeakRecord] = field(default_factory=dict)
    started_together: bool = False
    clock_step: float = 0.0
    starts: Mapping[SideName, float] = field(default_factory=dict)
    groups: Mapping[str, Figure] = field(default_factory=dict)

    @property
    def load_counts(self) -> bool:
        """False where the load says nothing of its quantities, as where it was issued late."""
        figures = [self.figures.get(name) for name in ("peak_rate", "query_latency")]
        return not any(figure and math.isinf(figure.error) for figure in figures)

    @property
    def late(self) -> bool:
        """True if the load at an end of a side's peak was issued late."""
        return any(peak.late for peak in self.peaks.values())


def start_orders(rounds: Sequence[RoundRecord]) -> list[int]:
    """Return the side that each round started first, as ``estimate_change`` takes it."""
    return [0 if record.started_together else _order(record) for record in rounds]


def effect_of_order(rounds: Sequence[RoundRecord]) -> OrderEffect | None:
    """Return by how much the latency of the side that is started first is larger, if that shows."""
    shown = [record for record in rounds if math.isfinite(_latency(record).error)]
    changes = [_latency(record).value for record in shown]
    return order_effect(changes, [_order(record) for record in shown])


def _order(record: RoundRecord) -> int:
    return 1 if record.started_first == "b" else -1


def _latency(record: RoundRecord) -> Figure:
    return record.figures["latency"]
