"""Progress of downloads and installations, on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from pytest_mlms.units import format_quantity

__all__ = ["download_progress", "install_progress"]

_DELAY = 1.0  # seconds before a download is shown
_INTERVAL = 0.2  # seconds between two updates


class _StatusLine:
    """A line of the terminal that is written over and over, while an item is set up."""

    def __init__(self, terminal: Any, capture: Any, item: pytest.Item) -> None:
        self._terminal = terminal
        self._capture = capture
        self._item = item

    @classmethod
    def of(cls, item: pytest.Item) -> _StatusLine | None:
        """Return the line; None where the output does not go to a terminal."""
        plugins = item.config.pluginmanager
        terminal = plugins.getplugin("terminalreporter")
        capture = plugins.getplugin("capturemanager")
        if terminal is None or capture is None or not terminal.isatty:
            return None
        return cls(terminal, capture, item)

    def show(self, text: str) -> None:
        """Replace the text."""
        width = self._terminal._tw.fullwidth - 1
        with self._capture.global_and_fixture_disabled():
            self._terminal.ensure_newline()
            self._terminal.rewrite(text[:width], erase=True)

    def clear(self) -> None:
        """Remove the text, and begin the line that the item's outcome is written to."""
        with self._capture.global_and_fixture_disabled():
            self._terminal.ensure_newline()
            self._terminal.rewrite("", erase=True)
            self._terminal.pytest_runtest_logstart(self._item.nodeid, self._item.location)


def install_progress(item: pytest.Item, stack: str) -> Callable[[str], None]:
    """Return a function that shows the step of an installation, and removes it for an empty text.

    It does nothing where the output does not go to a terminal.
    """
    line = _StatusLine.of(item)
    if line is None:
        return lambda step: None

    def show(step: str) -> None:
        if step:
            line.show(f"stack {stack}: {step}")
        else:
            line.clear()

    return show


def download_progress(item: pytest.Item) -> Callable[[str, int, int], None]:
    """Return a function that shows how much of a download is done.

    It takes the file's name, and the bytes done and in all (0: not known). It shows a download that
    takes longer than a second, and does nothing where the output does not go to a terminal.
    """
    line = _StatusLine.of(item)
    if line is None:
        return lambda name, done, total: None
    return _Download(line).update


class _Download:
    """A download whose progress is shown from time to time."""

    def __init__(self, line: _StatusLine) -> None:
        self._line = line
        self._next_time = time.monotonic() + _DELAY
        self._is_shown = False

    def update(self, name: str, done: int, total: int) -> None:
        """Show the progress where it is time to; clear the line at the end."""
        if done == total:
            if self._is_shown:
                self._line.clear()
            return
        now = time.monotonic()
        if now < self._next_time:
            return
        self._next_time = now + _INTERVAL
        self._is_shown = True
        self._line.show(f"fetching {name}: {_share(done, total)}")


def _share(done: int, total: int) -> str:
    if not total:
        return format_quantity(done, "B")
    return f"{done / total:4.0%} of {format_quantity(total, 'B')}"
