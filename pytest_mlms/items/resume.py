"""--mlms-resume: continue a run that was stopped, without the items that it had finished.

An item whose manifest, stacks or options have changed since is not finished: it runs again, and so
does one that was skipped.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.config import Config
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.recorded import recorded_launch, without_devices
from pytest_mlms.items.warned import failure_without_limits
from pytest_mlms.keep.results.checked_lines import read_lines
from pytest_mlms.keep.results.item_result import case_digest, definition_of
from pytest_mlms.keep.results.results_reader import ItemLines, read_results
from pytest_mlms.provide.cases import Case, case_of
from pytest_mlms.provide.stacks.launch import caller_variables
from pytest_mlms.provide.stacks.recorded import NOT_FROM_INDEX, declaration_of
from pytest_mlms.session import SESSION, Session
from pytest_mlms.show.report.reporter import Reporter

Line = dict[str, Any]

_SHOWN_RUNS = 5


def resumed_run(options: Config) -> Path:
    """Return the folder of the run to continue.

    Raises pytest.UsageError, which names the last runs there are.
    """
    path = options.results / (options.resume or "latest")
    run = path.resolve()
    if (run / "results.jsonl").is_file():
        if options.resume != "latest" or not _has_passed(run):
            return run
        raise pytest.UsageError(
            f"--mlms-resume: the last run, {run.name}, has ended and nothing failed; a run "
            f"stopped before its first result left nothing: run without --mlms-resume"
        )
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

    ``lines`` has the results of the finished items by node id; workers have none, but the digests
    of what was measured. Items that are to run again, and are not asked for now, stay open.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.lines: dict[str, Line] = {}
        self._config = config.stash[SESSION].config
        self._again = 0
        self._open: dict[str, Line] = {}
        worker = getattr(config, "workerinput", None)
        if worker is None:
            last = _last_lines(config.stash[SESSION].run_folder)
            self.lines = {name: line for name, line in last.items() if _is_final(line)}
            self._open = {name: line for name, line in last.items() if not _is_final(line)}
            session = config.stash[SESSION]
            installed = {f"{package.name}=={package.version}" for package in distributions()}
            self._finished = {
                name: line.get("digest", "")
                for name, line in self.lines.items()
                if line["verdict"] != "SKIPPED"  # what the machine lacked may be there
                and self._is_as_it_was(line, session, installed)
            }
        else:
            self._finished = dict(worker["mlms_done"])

    def _is_as_it_was(self, line: Line, session: Session, installed: set[str]) -> bool:
        """Return whether both sides would find the same packages and variables, by their line.

        Workers, which have to agree, can't compare their own.
        """
        declared = {"launch": (line.get("stack") or {}).get("declared") or {}}
        against = line.get("against")
        if against:
            stacks = [*session.declared_stacks.values(), *session.baseline_stacks]
            known = {stack.name: stack for stack in (*session.chosen_stacks, *stacks)}
            baseline = known.get(against["name"])  # none of a lock file
            declared.update({"launch_against": declaration_of(baseline)} if baseline else {})
        has_packages = _has_packages(line, declared, installed)
        return has_packages and _has_variables(line, declared, self._config.env_passthrough)

    @property
    def earlier(self) -> list[Line]:
        """The results of the earlier sessions, last for the items that are to run again."""
        return [*self.lines.values(), *self._open.values()]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker what is finished."""
        node.workerinput["mlms_done"] = self._finished

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out the finished items."""
        finished: list[pytest.Item] = []
        others: list[pytest.Item] = []
        for item in items:
            group = finished if self._is_finished(item) else others
            group.append(item)
        if finished:
            config.hook.pytest_deselected(items=finished)
            items[:] = others

    def _is_finished(self, item: pytest.Item) -> bool:
        """Return whether the result of an item is of the same case, judged alike."""
        digest = self._finished.get(item.nodeid)
        case = case_of(item)
        if digest is None or case is None or digest != case_digest(case, self._config):
            return False
        if case.stack.server or (case.against is not None and case.baseline.stack.server):
            return False  # which may serve something else by now
        if self._config.strict and failure_without_limits(case, item.config.stash[SESSION]):
            return False
        line = self.lines.get(item.nodeid)  # workers, which have to agree, have none
        return line is None or _is_of(line, case, self._config.env_passthrough)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Leave out the earlier line of an item that has run again."""
        if not hasattr(report, "mlms"):
            return
        self._open.pop(report.nodeid, None)
        if self.lines.pop(report.nodeid, None) is not None:
            self._again += 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Tell which results are of an earlier session."""
        text = f"mlms: resumed: {len(self.lines)} earlier results kept"
        if self._again:
            items = "item" if self._again == 1 else "items"
            text += f", {self._again} {items} ran again: skipped before, or manifest, stack,"
            text += " options or variables changed"
        if self._open:
            text += f", {len(self._open)} with an error or interrupted did not run again"
        terminalreporter.write_line(text)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Give the run the exit status of all its items, whichever session ran them."""
        nothing_failed = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if not (self.lines or self._open) or session.exitstatus not in nothing_failed:
            return
        failed = [line for line in self.lines.values() if _has_failed(line, self._config.strict)]
        is_bad = failed or self._open
        session.exitstatus = pytest.ExitCode.TESTS_FAILED if is_bad else pytest.ExitCode.OK


def finished_items(run: Path) -> dict[str, Line]:
    """Return the line of each item that has a result, by its node id.

    Items with errors, also of their tear-down, and those that were interrupted run again.
    """
    return {name: line for name, line in _last_lines(run).items() if _is_final(line)}


def _last_lines(run: Path) -> dict[str, Line]:
    return ItemLines.of(read_lines(run / "results.jsonl")).lines


def _is_final(line: Line) -> bool:
    """Return whether an item came to its end, whatever it measured until then."""
    return not (line["verdict"] == "ERROR" or line["outcome"] == "interrupted")


def _has_packages(
    line: Line, declared: Mapping[str, Mapping[str, Any]], installed: set[str]
) -> bool:
    """Return whether the sides that ran in this interpreter would find the same packages again."""
    if not _is_of_this_host(line):
        return True
    packages = {
        text.partition(NOT_FROM_INDEX)[0]
        for key, of_stack in declared.items()
        if of_stack.get("interpreter") == "current"
        for text in recorded_launch(line, key).packages
    }
    return packages <= installed


def _is_of(line: Line, case: Case, passthrough: Iterable[str]) -> bool:
    """Return whether an item measured what its case does now, with the same variables."""
    if line.get("definition") not in (None, "", definition_of(case)):
        return False
    declared = {"launch": declaration_of(case.stack)}
    if case.against is not None:
        declared["launch_against"] = declaration_of(case.against)
    return _has_variables(line, declared, passthrough)


def _has_variables(
    line: Line, declared: Mapping[str, Mapping[str, Any]], passthrough: Iterable[str]
) -> bool:
    """Return whether the sides of an item of this host would get the variables that they had."""
    if not _is_of_this_host(line):
        return True
    for key, of_stack in declared.items():
        inherited = recorded_launch(line, key).inherited
        if inherited is not None:
            here = caller_variables(of_stack, passthrough)
            if without_devices(inherited) != without_devices(here):
                return False
    return True


def _is_of_this_host(line: Line) -> bool:
    return bool((line.get("machine") or {}).get("host") == socket.gethostname())


def _has_passed(run: Path) -> bool:
    """Return whether a run has come to its end and nothing failed."""
    last: Line = {}
    for line in read_results(run / "results.jsonl"):
        last = line
    return last.get("type") == "end" and last.get("exit_status") == 0


def _has_failed(line: Mapping[str, Any], strict: bool) -> bool:
    bad = ("ERROR", "INVALID", "FAILED", "REGRESSED", *(("INCONCLUSIVE",) if strict else ()))
    if line["verdict"] in bad:
        return True
    return bool(line["outcome"] == "failed")
