"""Measure what pytest-mlms costs, each against what it is compared with, interleaved in one run.

    bash ci/bench [loop|agent|cpp|collect|item|idle|scenarios|tasks|trace|report|portal|fleet|
                   history|FRAMEWORK]...

Prints a table; ends with 1 where a bound is passed. It has ratios, medians and peaks; absolute
times are those of the machine. What runs of pytest cost is CPU time, as other work on the machine
hardly changes it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from bench_cpp import measure_cpp
from bench_fleet import measure_fleet
from bench_history import measure_writing
from bench_history_changes import measure_changes
from bench_history_show import measure_show
from bench_loop import measure_agent, measure_loop
from bench_portal import measure_portal
from bench_report import measure_report
from bench_row import Row
from bench_runs import measure_collection, measure_idle, measure_item
from bench_scenarios import measure_scenarios
from bench_tasks import measure_tasks
from bench_trace import measure_trace

Measurement = Callable[[], Iterable[Row]]


def measure_frameworks() -> Iterator[Row]:
    """Measure the loop and the start of every framework; see ci/bench_frameworks.py."""
    from bench_frameworks import names

    for name in names():
        yield from measure_framework(name)


def measure_framework(name: str) -> Iterator[Row]:
    """Measure the loop and the start of one framework."""
    from bench_frameworks import rows_of

    yield from rows_of(name)


def measure_history() -> Iterator[Row]:
    """Measure the history on each kind of database."""
    yield from measure_writing()
    yield from measure_show()
    yield from measure_changes()


MEASUREMENTS: dict[str, Measurement] = {
    "loop": measure_loop,
    "agent": measure_agent,
    "cpp": measure_cpp,
    "collect": measure_collection,
    "item": measure_item,
    "idle": measure_idle,
    "scenarios": measure_scenarios,
    "tasks": measure_tasks,
    "trace": measure_trace,
    "report": measure_report,
    "portal": measure_portal,
    "fleet": measure_fleet,
    "history": measure_history,
    "frameworks": measure_frameworks,
}


def main() -> int:
    """Print a line for each number as it is found."""
    names = sys.argv[1:] or list(MEASUREMENTS)
    passed = True
    print(f"{'':62} {'found':>8} {'bound':>8}")
    for name in names:
        measure = MEASUREMENTS.get(name) or partial(measure_framework, name)
        for row in measure():
            over = row.found > row.bound
            passed = passed and not over
            mark = "  over" if over else ""
            print(f"{row.name:62} {row.found:8.3f} {row.bound:8g}{mark}", flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    os.environ.pop("PYTEST_ADDOPTS", None)
    sys.exit(main())
