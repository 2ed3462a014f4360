"""Lines on what an item waits for: a lock, an installation, a download, an agent that loads.

A wait of less than two seconds is not worth a line. On a terminal one line is written over and
over; elsewhere, as in the log of a CI job, a new one is written every half minute.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import pytest

from pytest_mlms.core.text import beginning_of
from pytest_mlms.core.units import format_quantity
from pytest_mlms.core.waits import Waiting

_DELAY = 2.0  # seconds before a wait is told
_INTERVAL = 30.0  # seconds between two lines of a log
_TERMINAL_INTERVAL = 0.5  # seconds between two updates on a terminal


class Status:
    """The state of a wait for ``subject``, as installers and downloads update it."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._step = ""

    def text(self) -> str:
        """Return the subject and its last step."""
        return f"{self._subject}: {self._step}" if self._step else self._subject

    def show(self, step: str) -> None:
        """Set the step; "" for none."""
        self._step = step

    def show_download(self, name: str, done: int, total: int) -> None:
        """Set the step to a download, of ``total`` bytes (0: not known)."""
        share = format_quantity(done, "B")
        if total:
            whole = format_quantity(total, "B")
            share = f"{100 * done / total:.0f} % of {whole}"
        self._step = f"downloading {name}, {share}"


class _Line(Protocol):
    """A place for the text of a wait."""

    @property
    def interval(self) -> float:
        """Seconds between two texts."""

    def show(self, text: str) -> None:
        """Write the text."""

    def clear(self) -> None:
        """Make way for the item's outcome, once the wait is over."""


class _TerminalLine(NamedTuple):
    """A line of a terminal that is written over and over."""

    terminal: Any
    capture: Any
    item: pytest.Item
    interval: float = _TERMINAL_INTERVAL

    def show(self, text: str) -> None:
        """Replace the text."""
        width = self.terminal._tw.fullwidth - 1
        with self.capture.global_and_fixture_disabled():
            self.terminal.ensure_newline()
            self.terminal.rewrite(beginning_of(text, width), erase=True)

    def clear(self) -> None:
        """Remove the text, and begin the line that the item's outcome is written to."""
        with self.capture.global_and_fixture_disabled():
            self.terminal.ensure_newline()
            self.terminal.rewrite("", erase=True)
            self.terminal.pytest_runtest_logstart(self.item.nodeid, self.item.location)


class _LogLines(NamedTuple):
    """New lines of a file or pipe that pytest's output goes to."""

    terminal: Any
    capture: Any
    item: pytest.Item
    interval: float = _INTERVAL

    def show(self, text: str) -> None:
        """Write a line."""
        with self.capture.global_and_fixture_disabled():
            self.terminal.ensure_newline()
            self.terminal.write_line(text)
            self.terminal.flush()

    def clear(self) -> None:
        """Begin the line that the item's outcome is written to, as the last one has ended."""
        with self.capture.global_and_fixture_disabled():
            self.terminal.pytest_runtest_logstart(self.item.nodeid, self.item.location)


class _WorkerLines(NamedTuple):
    """New lines on the error stream of a worker of xdist, which is that of the controller."""

    worker: str
    capture: Any
    interval: float = _INTERVAL

    def show(self, text: str) -> None:
        """Write a line behind the worker's name."""
        with self.capture.global_and_fixture_disabled():
            print(f"[{self.worker}] {text}", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Do nothing: the lines stay."""


def _line_of(item: pytest.Item) -> _Line | None:
    """Return where the item's waits are told; None where there is no such place."""
    plugins = item.config.pluginmanager
    terminal = plugins.getplugin("terminalreporter")
    capture = plugins.getplugin("capturemanager")
    if capture is None:
        return None
    if hasattr(item.config, "workerinput"):
        return _WorkerLines(item.config.workerinput["workerid"], capture)
    if terminal is None:
        return None
    if terminal.isatty:
        return _TerminalLine(terminal, capture, item)
    return _LogLines(terminal, capture, item)


def waiting_in(item: pytest.Item) -> Waiting:
    """Return a function that opens a context in which an item waits, and tells what for.

    A thread writes the lines, which sleeps in between; nothing may be timed inside the context.
    """

    @contextlib.contextmanager
    def waiting(subject: Callable[[], str]) -> Iterator[None]:
        line = _line_of(item)
        if line is None:
            yield
            return
        is_over = threading.Event()
        teller = threading.Thread(target=_tell, args=(line, subject, is_over), daemon=True)
        teller.start()
        try:
            yield
        finally:
            is_over.set()
            teller.join()

    return waiting


def _tell(line: _Line, subject: Callable[[], str], is_over: threading.Event) -> None:
    """Write lines until the wait is over."""
    began = time.monotonic()
    if is_over.wait(_DELAY):
        return
    while True:
        seconds = time.monotonic() - began
        line.show(f"mlms: waiting for {subject()} ({seconds:.0f} s)")
        if is_over.wait(line.interval):
            break
    line.clear()
