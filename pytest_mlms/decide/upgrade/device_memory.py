"""Memory of a GPU in an upgrade: of both sides by one counter, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlms_predictors._run.replies import DeviceBytes

if TYPE_CHECKING:
    from pytest_mlms.decide.upgrade.round_record import RoundRecord


def by_one_counter(
    a: DeviceBytes | None, b: DeviceBytes | None
) -> tuple[int, int] | tuple[None, None]:
    """Return the bytes of both sides by the first counter of A that B has, too.

    Counters count different things: a framework's its pool, NVML also the context of CUDA.
    """
    if a is not None and b is not None:
        for counter, held in a.counters.items():
            if counter in b.counters:
                return held, b.counters[counter]
    return None, None


def is_untold(rounds: Sequence[RoundRecord]) -> bool:
    """Return whether a side runs on a GPU, and no counter tells the memory of both."""
    if not rounds:
        return False
    a, b = (rounds[-1].sides[side].device_memory for side in ("a", "b"))
    return (a, b) != (None, None) and by_one_counter(a, b) == (None, None)


def reason_untold(record: RoundRecord) -> str:
    """Return why a round doesn't compare it."""
    texts = []
    for name, side in sorted(record.sides.items()):
        found = side.device_memory
        if found is None:
            texts.append(f"{name.upper()} runs on the CPU")
        elif found.counters:
            texts.append(f"{name.upper()} tells it by {' and '.join(found.counters)}")
        else:
            texts.append(f"{name.upper()} doesn't tell it: {found.missing}")
    return ", ".join(texts)
