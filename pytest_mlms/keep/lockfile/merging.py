"""Renewal of a lock by a run: other lines stay, and so do timings that changed by noise."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pydantic import ValidationError

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.keep.lockfile.from_results import MeasuredItem
from pytest_mlms.keep.lockfile.lock import Lock, LockedItem, Timings
from pytest_mlms.keep.lockfile.stack_keys import NamedSoftware, keys_of, stack_name
from pytest_mlms.keep.lockfile.timing import is_noise, is_sharper


def renewed(old: Lock, measured: Mapping[str, MeasuredItem], kept: Collection[str]) -> Lock:
    """Return the lock with the items of a run, and with its own lines of ``kept``."""
    items: dict[str, LockedItem] = {}
    used: dict[str, NamedSoftware] = {}
    for nodeid in kept:
        item = old.items[nodeid]
        items[nodeid] = item
        used[nodeid] = _software_in(old, item)
    for nodeid, found in measured.items():
        item = found.item
        items[nodeid] = item
        used[nodeid] = NamedSoftware(item.stack, found.software)
    keys = keys_of(used.values(), old.stacks)
    stacks = {key: named.software for named, key in keys.items()}
    for nodeid, named in used.items():
        key = keys[named]
        items[nodeid] = items[nodeid].model_copy(update={"stack": key})
    timings = _kept_timings(old, items)
    _add_timings(timings, measured)
    try:
        return Lock(stacks=stacks, items=items, timings=timings)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise MlmsError(f"the run has what no lock may have: {place}: {first['msg']}") from None


def _software_in(lock: Lock, item: LockedItem) -> NamedSoftware:
    name = stack_name(item.stack)
    return NamedSoftware(name, lock.stacks[item.stack])


def _kept_timings(old: Lock, items: Mapping[str, LockedItem]) -> Timings:
    """Return the old timings of all machines, of items that measure the same of the same model."""
    timings: Timings = {}
    for machine, by_item in old.timings.items():
        for nodeid, by_quantity in by_item.items():
            before = old.items.get(nodeid)  # none where another branch removed the item
            now = items.get(nodeid)
            if now is None or before is None or now.model != before.model:
                continue
            if _measures_another(now, before):
                continue
            kept = timings.setdefault(machine, {})
            kept[nodeid] = by_quantity
    return timings


def _measures_another(now: LockedItem, before: LockedItem) -> bool:
    """Return whether an item is known to measure something else than before."""
    return None not in (now.definition, before.definition) and now.definition != before.definition


def _add_timings(timings: Timings, measured: Mapping[str, MeasuredItem]) -> None:
    """Add the timings of a run to those of its class of machines."""
    for nodeid, found in measured.items():
        if not found.timings:
            continue
        of_machine = timings.setdefault(found.machine, {})
        before = of_machine.get(nodeid, {})
        of_machine[nodeid] = _renewed_timings(before, found.timings)


def _renewed_timings(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return the new timings, but the old one of each that is no news and not much sharper."""
    timings = dict(now)
    for quantity, earlier in before.items():
        later = now.get(quantity)
        if later is None:
            continue
        if is_noise(earlier, later) and not is_sharper(earlier, later):
            timings[quantity] = earlier
    return timings
