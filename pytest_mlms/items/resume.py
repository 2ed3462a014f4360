"""--mlms-resume: continue a run that was stopped, without the items that it had finished."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.config import Config
from pytest_mlms.errors import MlmsError
from pytest_mlms.report.reporter import Reporter
from pytest_mlms.results_reader import read_results
from pytest_mlms.session import SESSION

__all__ = ["Resume", "finished_items", "resumed_run", "take_run"]

Line = dict[str, Any]

_SHOWN_RUNS = 5


def resumed_run(options: Config) -> Path:
    """Return the folder of the run to continue.

    Raises pytest.UsageError, which names the last runs there are.
    """
    path = options.results / (options.resume or "latest")
    run = path.resolve()
    if (run / "results.jsonl").is_file():
        return run
    files = options.results.glob("*/results.jsonl")
    runs = sorted(file.parent.name for file in files if not file.parent.is_symlink())
    last_runs = runs[-_SHOWN_RUNS:]
    names = ", ".join(last_runs) or "none"
    raise pytest.UsageError(
        f"--mlms-resume: there are no results in {run}; name a run of {options.results}: {names}"
    )


def take_run(reporter: Reporter) -> None:
    """Have the run for this session alone; raises pytest.UsageError where another one has it."""
    try:
        reporter.take_run()
    except MlmsError as error:
        raise pytest.UsageError(f"--mlms-resume: {error}") from None


class Resume:
    """A plugin of each process of a resumed run; with xdist, of the controller and every worker.

    ``lines`` has the results of the finished items by node id; workers have none.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.lines: dict[str, Line] = {}
        self._strict = config.stash[SESSION].config.strict
        worker = getattr(config, "workerinput", None)
        if worker is None:
            self.lines = finished_items(config.stash[SESSION].run_folder)
            self._finished = set(self.lines)
        else:
            self._finished = set(worker["mlms_done"])

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker what is finished."""
        node.workerinput["mlms_done"] = sorted(self._finished)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out the finished items."""
        finished: list[pytest.Item] = []
        others: list[pytest.Item] = []
        for item in items:
            group = finished if item.nodeid in self._finished else others
            group.append(item)
        if finished:
            config.hook.pytest_deselected(items=finished)
            items[:] = others

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Give the run the exit status of all its items, whichever session ran them."""
        nothing_failed = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if not self.lines or session.exitstatus not in nothing_failed:
            return
        session.exitstatus = pytest.ExitCode.OK
        if any(_has_failed(line, self._strict) for line in self.lines.values()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def finished_items(run: Path) -> dict[str, Line]:
    """Return the line of each item that has a result, by its node id.

    The last line of an item counts. Items with errors, also of their tear-down, and those that were
    interrupted run again.
    """
    finished: dict[str, Line] = {}
    for line in read_results(run / "results.jsonl"):
        if line.get("type") not in ("item", "teardown"):
            continue
        nodeid = line["nodeid"]
        finished.pop(nodeid, None)
        if line["type"] == "item" and line["verdict"] != "ERROR":
            finished[nodeid] = line
    return finished


def _has_failed(line: Mapping[str, Any], strict: bool) -> bool:
    if line["verdict"] == "FAILED" or (strict and line["verdict"] == "INCONCLUSIVE"):
        return True
    return bool(line["outcome"] == "failed")
