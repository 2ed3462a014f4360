"""Tests of the lines on what an item waits for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from pytest_mlms.show.report import progress
from pytest_mlms.show.report.progress import Status, waiting_in


class FakeTerminal:
    """Records what is written, and says when there is some."""

    def __init__(self, isatty: bool = True) -> None:
        self.isatty = isatty
        self.events: list[str] = []
        self.has_written = threading.Event()
        self._tw = SimpleNamespace(fullwidth=44)

    def ensure_newline(self) -> None:
        pass

    def flush(self) -> None:
        pass

    def rewrite(self, text: str, erase: bool) -> None:
        self.write_line(text)

    def write_line(self, text: str) -> None:
        self.events.append(text)
        self.has_written.set()

    def pytest_runtest_logstart(self, nodeid: str, location: object) -> None:
        self.events.append(f"item {nodeid}")


class FakeCapture:
    @contextlib.contextmanager
    def global_and_fixture_disabled(self) -> Iterator[None]:
        yield


def item_on(terminal: FakeTerminal | None, **config: object) -> pytest.Item:
    plugins = {"terminalreporter": terminal, "capturemanager": FakeCapture()}
    manager = SimpleNamespace(getplugin=plugins.__getitem__)
    fields = SimpleNamespace(pluginmanager=manager, **config)
    item = SimpleNamespace(config=fields, nodeid="m.yaml::test", location=("m.yaml", 1, "test"))
    return cast(pytest.Item, item)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell waits without a delay."""
    monkeypatch.setattr(progress, "_DELAY", 0.0)


@pytest.mark.usefixtures("at_once")
def test_a_wait_is_told_in_a_line_of_a_log() -> None:
    terminal = FakeTerminal(isatty=False)
    with waiting_in(item_on(terminal))(lambda: "device cpu"):
        assert terminal.has_written.wait(300)
    assert terminal.events == ["mlms: waiting for device cpu (0 s)", "item m.yaml::test"]


@pytest.mark.usefixtures("at_once")
def test_a_log_has_a_line_again_after_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress._LogLines, "interval", 0.0)
    terminal = FakeTerminal(isatty=False)
    again = threading.Event()

    def subject() -> str:
        if terminal.events:
            again.set()
        return "device cpu"

    with waiting_in(item_on(terminal))(subject):
        assert again.wait(300)
    assert len(terminal.events) >= 2


@pytest.mark.usefixtures("at_once")
def test_a_terminal_has_one_line_within_its_width_which_the_item_s_replaces() -> None:
    terminal = FakeTerminal()
    with waiting_in(item_on(terminal))(lambda: "stack mxnet: installing"):
        assert terminal.has_written.wait(300)
    shown = "mlms: waiting for stack mxnet: installing (0"
    assert terminal.events == [shown[:43], "", "item m.yaml::test"]


@pytest.mark.usefixtures("at_once")
def test_a_worker_tells_its_waits_on_the_error_stream_with_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = threading.Event()

    def subject() -> str:
        asked.set()
        return "device cpu"

    item = item_on(None, workerinput={"workerid": "gw1"})
    with waiting_in(item)(subject):
        assert asked.wait(300)
    assert capsys.readouterr().err == "[gw1] mlms: waiting for device cpu (0 s)\n"


@pytest.mark.parametrize("isatty", [True, False])
def test_a_short_wait_is_not_told(isatty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_DELAY", 300.0)
    terminal = FakeTerminal(isatty)
    with waiting_in(item_on(terminal))(lambda: "device cpu"):
        pass
    assert terminal.events == []


def test_without_a_terminal_reporter_nobody_is_told() -> None:
    with waiting_in(item_on(None))(lambda: "device cpu"):
        pass


def test_the_step_of_an_installation_is_behind_the_stack() -> None:
    status = Status("stack mxnet")
    assert status.text() == "stack mxnet"
    status.show("Collecting numpy")
    assert status.text() == "stack mxnet: Collecting numpy"
    status.show("")
    assert status.text() == "stack mxnet"


@pytest.mark.parametrize(
    ("total", "share"), [(4 << 20, "50 % of 4.00 MiB"), (0, "2.00 MiB")], ids=["known", "unknown"]
)
def test_a_download_is_shown_with_its_share(total: int, share: str) -> None:
    status = Status("the files of digits")
    status.show_download("a.onnx", 2 << 20, total)
    assert status.text() == f"the files of digits: downloading a.onnx, {share}"
