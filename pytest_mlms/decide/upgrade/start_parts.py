"""Parts of the time from the start of a process to its first answer, on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.round_record import RoundRecord, SideRecord
from pytest_mlms.decide.upgrade.rounds import SIDES


def start_parts(rounds: Sequence[RoundRecord]) -> str:
    """Return the median parts of the rounds' starts, A -> B; "" where an agent told no import."""
    parts: dict[str, list[str]] = {}
    for side in SIDES:
        processes = [_parts(record.sides[side]) for record in rounds]
        if not all(processes):
            return ""
        for name in processes[0]:
            seconds = median(process[name] for process in processes)
            parts.setdefault(name, []).append(format_quantity(seconds, "s"))
    return ", ".join(f"{name} {' -> '.join(values)}" for name, values in parts.items())


def _parts(side: SideRecord) -> dict[str, float]:
    """Return the seconds of each part; none where an agent doesn't tell them all."""
    if side.interpreter_seconds is None or side.import_seconds is None:
        return {}
    return {
        "interpreter": side.interpreter_seconds,
        "import": side.import_seconds,
        "load": side.load_seconds,
        "first call": side.first_seconds,
    }
