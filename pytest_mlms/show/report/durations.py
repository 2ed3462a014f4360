"""Durations of items in earlier runs, read from the history or from their results."""

from __future__ import annotations

from pathlib import Path

from pytest_mlms.keep.results.results_reader import duration_of, read_results

_RUNS = 3


def known_durations(results: Path, history: str | None = None) -> dict[str, float]:
    """Return the seconds of each item, by node id, as the scheduler expects them.

    They are those of the ``history``, which has other hosts' runs, too. What it doesn't tell, and
    everything where it can't be read, comes from the last three runs below ``results``.
    """
    found = earlier_durations(results)
    if history is not None:
        found.update(_durations_in_history(history))
    return found


def earlier_durations(results: Path) -> dict[str, float]:
    """Return the seconds of each item, by node id, in the last three runs below ``results``.

    Where several runs have an item, the latest one counts. Skipped items are left out.
    """
    found = {}
    runs = sorted(results.glob("*/results.jsonl"))
    runs = [run for run in runs if not run.parent.is_symlink()]  # such as latest
    for run in runs[-_RUNS:]:
        for line in read_results(run):
            seconds = duration_of(line)
            nodeid = line.get("nodeid")
            if seconds is not None and isinstance(nodeid, str):
                found[nodeid] = seconds
    return found


def _durations_in_history(address: str) -> dict[str, float]:
    """Return the durations in a history; none where it isn't there yet or is away.

    The end of the run says so: there it is a loss, here it only costs a good order.
    """
    from pytest_mlms.keep.history.durations import durations_in
    from pytest_mlms.keep.history.errors import HistoryError
    from pytest_mlms.keep.history.machine_class import machine_class
    from pytest_mlms.keep.history.store import open_to_read
    from pytest_mlms.provide.host.machine import machine_state

    try:
        with open_to_read(address).connect() as connection:
            return durations_in(connection, machine_class(machine_state()))
    except HistoryError:
        return {}
