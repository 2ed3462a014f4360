"""Tests of the progress of downloads and installations on a terminal."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from pytest_mlms.report.progress import download_progress, install_progress


class FakeTerminal:
    """Records what is written over the line."""

    def __init__(self, isatty: bool = True) -> None:
        self.isatty = isatty
        self.events: list[str] = []
        self._tw = SimpleNamespace(fullwidth=30)

    def ensure_newline(self) -> None:
        pass

    def rewrite(self, text: str, erase: bool) -> None:
        self.events.append(text)

    def pytest_runtest_logstart(self, nodeid: str, location: object) -> None:
        self.events.append(f"item {nodeid}")


class FakeCapture:
    @contextlib.contextmanager
    def global_and_fixture_disabled(self) -> Iterator[None]:
        yield


def item_on(terminal: FakeTerminal | None) -> pytest.Item:
    plugins = {"terminalreporter": terminal, "capturemanager": FakeCapture()}
    config = SimpleNamespace(pluginmanager=SimpleNamespace(getplugin=plugins.__getitem__))
    item = SimpleNamespace(config=config, nodeid="m.yaml::test", location=("m.yaml", 1, "test"))
    return cast(pytest.Item, item)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that stands still until a test sets it."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    return clock


def test_the_steps_of_an_installation_are_shown_within_the_width() -> None:
    terminal = FakeTerminal()
    show = install_progress(item_on(terminal), "mxnet-1.9")
    show("making the environment")
    show("")
    assert terminal.events == ["stack mxnet-1.9: making the e", "", "item m.yaml::test"]


def test_a_download_is_shown_from_the_first_second_on(clock: SimpleNamespace) -> None:
    terminal = FakeTerminal()
    show = download_progress(item_on(terminal))
    show("a.onnx", 1 << 20, 4 << 20)
    assert terminal.events == []
    clock.now = 1.5
    show("a.onnx", 2 << 20, 4 << 20)
    show("a.onnx", 3 << 20, 4 << 20)
    assert terminal.events == ["fetching a.onnx:  50% of 4.00"]
    show("a.onnx", 4 << 20, 4 << 20)
    assert terminal.events[1:] == ["", "item m.yaml::test"]


def test_a_short_download_is_not_shown(clock: SimpleNamespace) -> None:
    terminal = FakeTerminal()
    show = download_progress(item_on(terminal))
    show("a.onnx", 1, 2)
    clock.now = 2.0
    show("a.onnx", 2, 2)
    assert terminal.events == []


def test_a_download_of_unknown_size_shows_what_is_done(clock: SimpleNamespace) -> None:
    terminal = FakeTerminal()
    show = download_progress(item_on(terminal))
    clock.now = 2.0
    show("a.onnx", 3 << 20, 0)
    assert terminal.events == ["fetching a.onnx: 3.00 MiB"]


@pytest.mark.parametrize("terminal", [None, FakeTerminal(isatty=False)])
def test_nothing_is_shown_where_there_is_no_terminal(
    terminal: FakeTerminal | None, clock: SimpleNamespace
) -> None:
    clock.now = 5.0
    item = item_on(terminal)
    install_progress(item, "here")("installing")
    download_progress(item)("a.onnx", 1, 2)
    assert terminal is None or terminal.events == []
