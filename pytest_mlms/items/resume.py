"""--mlms-resume: a run goes on where it was stopped.

What its JSON lines say is done is neither run nor lost.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.config import Config
from pytest_mlms.report.results_reader import read_results
from pytest_mlms.session import SESSION

__all__ = ["Resume", "finished", "resumed_run"]


def resumed_run(options: Config) -> Path:
    """Return the folder of the run to go on with.

    Raises pytest.UsageError, which says which there are.
    """
    path = (options.results / (options.resume or "latest")).resolve()
    if not (path / "results.jsonl").is_file():
        runs = sorted(found.parent.name for found in options.results.glob("*/results.jsonl"))
        there = ", ".join(runs[-5:]) or "none"
        raise pytest.UsageError(
            f"--mlms-resume: there are no results in {path}; name a run of {options.results}: {there}"
        )
    return path


def finished(run: Path) -> dict[str, dict[str, Any]]:
    """Return the last line of each item that has a result.

    Errors and interrupted items are to run again.
    """
    lines = {
        line["nodeid"]: line
        for line in read_results(run / "results.jsonl")
        if line.get("type") == "item"
    }
    return {name: line for name, line in lines.items() if line["verdict"] != "ERROR"}


class Resume:
    """A plugin of a process that resumes; with xdist, of the controller and of every worker."""

    def __init__(self, config: pytest.Config) -> None:
        worker = getattr(config, "workerinput", None)
        self.lines = {} if worker else finished(config.stash[SESSION].run_folder)
        self._done = set(worker["mlms_done"] if worker else self.lines)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker what is done."""
        node.workerinput["mlms_done"] = sorted(self._done)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out what is done."""
        done = [item for item in items if item.nodeid in self._done]
        if done:
            config.hook.pytest_deselected(items=done)
            items[:] = [item for item in items if item.nodeid not in self._done]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The run's status is that of all its items, whichever session ran them."""
        failed = any(
            line["verdict"] == "FAILED" or line["outcome"] == "failed"
            for line in self.lines.values()
        )
        if (
            session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
            and self.lines
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED if failed else pytest.ExitCode.OK
