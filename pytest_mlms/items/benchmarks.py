"""--benchmark-only and --benchmark-skip of pytest-benchmark, for items of manifests.

Items that measure time are benchmarks, though they do not use its fixture.
"""

from __future__ import annotations

import pytest

from pytest_mlms.core.records import Kind
from pytest_mlms.provide.cases import case_of

_TIMED: tuple[Kind, ...] = ("performance", "upgrade")


def select_benchmarks(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect our items that an option of pytest-benchmark leaves out, and run the others.

    Items of other plugins are left as they are.
    """
    only_timed = config.getoption("benchmark_only")  # it overrides --benchmark-skip
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        case = case_of(item)
        if case is None:
            kept.append(item)
        elif (case.kind in _TIMED) == only_timed:
            _remove_skip(item)
            kept.append(item)
        else:
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def _remove_skip(item: pytest.Item) -> None:
    """Remove the mark that pytest-benchmark puts on items without its fixture."""
    item.own_markers[:] = [mark for mark in item.own_markers if not _is_of_benchmark(mark)]


def _is_of_benchmark(mark: pytest.Mark) -> bool:
    return mark.name == "skip" and "--benchmark-only" in mark.kwargs.get("reason", "")
