"""Messages to the user about a distributed run, and the losses that make it fail."""

from __future__ import annotations

import pytest


class Notices:
    """Shows messages in the terminal, and collects the losses of the run.

    A run with losses does not succeed, even if every item was measured elsewhere.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.losses: list[str] = []
        self._config = config

    @property
    def are_on_terminal(self) -> bool:
        """True if the output goes to a terminal, not to a log."""
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        return bool(terminal and terminal.isatty)

    def show(self, text: str) -> None:
        """Write a line to the terminal, unless -q was given."""
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        if terminal is None or self._config.option.verbose < 0:
            return
        if terminal._tw.width_of_current_line:
            terminal.line("")
        terminal.write_line(f"mlms: {text}")

    def add_loss(self, text: str) -> None:
        """Note a loss, and show it."""
        self.losses.append(text)
        self.show(text)
