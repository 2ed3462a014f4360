"""What a person at a terminal sees of long downloads and installations while they go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from pytest_mlms.units import format_quantity

__all__ = ["download_progress", "install_progress"]


def install_progress(item: pytest.Item, stack: str) -> Callable[[str], None]:
    """Return what shows the steps of an installation on a terminal; elsewhere it does nothing."""
    terminal, capture = _screen(item)
    if terminal is None:
        return lambda text: None

    def show(text: str) -> None:
        width = terminal._tw.fullwidth - 1
        with capture.global_and_fixture_disabled():
            terminal.ensure_newline()
            terminal.rewrite(f"stack {stack}: {text}"[:width] if text else "", erase=True)
            if not text:
                terminal.pytest_runtest_logstart(item.nodeid, item.location)

    return show


def _screen(item: pytest.Item) -> tuple[Any, Any]:
    """Return what writes to the terminal and what captures, or nothing where no person watches."""
    terminal = item.config.pluginmanager.getplugin("terminalreporter")
    capture = item.config.pluginmanager.getplugin("capturemanager")
    return (
        (None, None)
        if terminal is None or capture is None or not terminal.isatty
        else (terminal, capture)
    )


def download_progress(item: pytest.Item) -> Callable[[str, int, int], None]:
    """Return what shows a download that takes longer than a second, on a terminal.

    Elsewhere it does nothing.
    """
    terminal, capture = _screen(item)
    if terminal is None:
        return lambda name, done, total: None
    next_time, shown = time.monotonic() + 1.0, False

    def show(name: str, done: int, total: int) -> None:
        nonlocal next_time, shown
        now, ended = time.monotonic(), done == total
        if now < next_time and not (shown and ended):
            return
        next_time, shown = now + 0.2, True  # seconds
        share = (
            f"{done / total:4.0%} of {format_quantity(total, 'B')}"
            if total
            else format_quantity(done, "B")
        )
        with capture.global_and_fixture_disabled():
            terminal.ensure_newline()
            terminal.rewrite("" if ended else f"fetching {name}: {share}", erase=True)
            if ended:  # the line that the item's result goes to
                terminal.pytest_runtest_logstart(item.nodeid, item.location)

    return show
