"""An agent whose predictor notes which models it loads and closes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_mlms.measure.agent.process import start_agent
from tests.support.project import PREDICTORS, launch


class ClosingAgent:
    """A real agent of tests/support/predictors/closing.py."""

    def __init__(self, folder: Path) -> None:
        self._graph = folder / "graph"
        self._notes = folder / "notes"
        plain = launch()
        started = replace(plain, env={**plain.env, "MLMS_CLOSING": str(self._notes)})
        self.agent = start_agent(started, PREDICTORS / "closing.py", folder / "log", 300)
        self.agent.learn_pid(self.agent.request("hello").facts["process"])

    def load(self, model: str) -> None:
        """Load a model; its name says what the predictor does with it."""
        self._graph.write_text(model)
        files = {"graph": str(self._graph)}
        self.agent.request("load", {"files": files, "device": "cpu", "threads": None})

    def notes(self) -> list[str]:
        """Return what was done so far, such as "load one" and "close one"."""
        return self._notes.read_text().splitlines()
