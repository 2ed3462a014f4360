"""Messages to the user, and losses of the run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_mlms.distribute.notices import Notices


class FakeTerminal:
    def __init__(self, width_of_current_line: int, isatty: bool = True) -> None:
        self.isatty = isatty
        self._tw = SimpleNamespace(width_of_current_line=width_of_current_line)
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def write_line(self, text: str) -> None:
        self.lines.append(text)


def notices_on(terminal: FakeTerminal | None, verbose: int = 0) -> Notices:
    config: Any = SimpleNamespace(
        pluginmanager=SimpleNamespace(getplugin={"terminalreporter": terminal}.get),
        option=SimpleNamespace(verbose=verbose),
    )
    return Notices(cast("pytest.Config", config))


def test_a_message_begins_a_line_of_its_own() -> None:
    terminal = FakeTerminal(width_of_current_line=3)
    notices_on(terminal).show("gw0 is silent")
    assert terminal.lines == ["", "mlms: gw0 is silent"]


def test_a_loss_is_shown_and_kept() -> None:
    terminal = FakeTerminal(width_of_current_line=0)
    notices = notices_on(terminal)
    notices.add_loss("gw0 is gone")
    assert terminal.lines == ["mlms: gw0 is gone"]
    assert notices.losses == ["gw0 is gone"]


@pytest.mark.parametrize("isatty", [True, False])
def test_a_terminal_is_distinguished_from_a_log(isatty: bool) -> None:
    terminal = FakeTerminal(width_of_current_line=0, isatty=isatty)
    assert notices_on(terminal).are_on_terminal is isatty


def test_nothing_is_shown_with_q_or_without_a_terminal() -> None:
    terminal = FakeTerminal(width_of_current_line=0)
    notices_on(terminal, verbose=-1).show("text")
    notices_on(None).show("text")
    assert terminal.lines == []
