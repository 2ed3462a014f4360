"""The reporter: writes each item's result as it arrives, and shows the tables at the end.

It runs in the process that the user started; with xdist that is the controller.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_mlms.config import MANIFEST_SUFFIXES
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.options import is_set, source_of
from pytest_mlms.session import Session

if TYPE_CHECKING:
    from pytest_mlms.provide.cases import Case
    from pytest_mlms.show.report.ci_outputs import CiRun
    from pytest_mlms.show.report.reasons import OwnWarnings
    from pytest_mlms.show.report.results import ResultsFile

_UNIMPORTABLE = re.compile(
    r"can't be imported in .*(?:No module named '(?P<module>[^']+)'"
    r"|cannot import name '(?P<name>[^']+)' from (?:partially initialized module )?"
    r"'(?P<of>[^']+)')",
    re.DOTALL,
)
"""The message of an item that was skipped for want of a module, or of a name in one."""

_SHOWN_FIELDS = (
    "nodeid",
    "place",
    "case",
    "repetition",
    "kind",
    "verdict",
    "outcome",
    "message",
    "margin",
    "estimates",
    "limits",
    "doubts",
    "ended",
    "input_groups",
    "processes",
    "quantities",
    "manifest",
    "dataset",
    "skipped_elements",
    "artifacts",
    "logs",
    "trace",
    "framework",
    "variant",
    "device",
    "batch_size",
    "scenario",
    "shape",
    "caches",
    "versions",
    "stack",
    "original",
    "other_version",
    "against",
    "comparisons",
    "changed_packages",
    "terms",
    "rounds",
    "seconds",
)
"""The fields of items' lines that tables and other reports read; the rest is not kept in memory."""


class Reporter:
    """A plugin of its own, registered in every run; it does nothing until a result arrives."""

    def __init__(self, config: pytest.Config, session: Session) -> None:
        self._config = config
        self._session = session
        self._began = time.time()
        self._opened_file: ResultsFile | None = None
        self._is_checked = False
        self._results: list[dict[str, Any]] = []
        self._earlier: dict[str, dict[str, Any]] = {}
        self._errors: list[str] = []
        self._collection_errors: list[str] = []
        self._notes: list[str] = []
        self._written: list[str] = []
        self._warnings: OwnWarnings | None = None
        if session.config.report is not None:
            _check_templates(config)
        if session.config.benchmark_json is not None:
            _check_benchmark(config)

    @property
    def _file(self) -> ResultsFile:
        """The results file, made when it is first used."""
        if self._opened_file is None:
            from pytest_mlms.show.report.results import ResultsFile

            self._opened_file = ResultsFile(
                self._session.run_folder, self._config.rootpath, self._began
            )
        return self._opened_file

    def take_run(self) -> None:
        """Take the run that is resumed; raises MlmsError where it can't be written."""
        file = self._file
        try:
            file.resume()
        except OSError as error:
            raise MlmsError(f"{file.path} can't be written: {error.strerror}") from error

    def show(self, results: Iterable[Mapping[str, Any]]) -> None:
        """Show items of earlier sessions of the run, until they run again."""
        self._earlier = {result["nodeid"]: _shown(result) for result in results}
        self._results += self._earlier.values()

    def has(self, result: Mapping[str, Any]) -> bool:
        """Return whether the line that came last is that of this result."""
        return self._file.has(result)

    def add(self, result: dict[str, Any], is_final: bool = True) -> None:
        """Write an item's line, and give it to the users' hooks.

        Tables do not have a result that isn't final, as pytest-rerunfailures runs the item again.
        """
        self._file.append(result)
        self._give_to_hooks(result)
        if is_final:
            earlier = self._earlier.pop(result["nodeid"], None)
            if earlier is not None:
                self._results.remove(earlier)
            self._results.append(_shown(result))

    def _give_to_hooks(self, result: Mapping[str, Any]) -> None:
        """Call the users' hooks; an error of one is told with its item, and fails the run."""
        try:
            self._config.hook.pytest_mlms_result(config=self._config, result=result)
        except pytest.exit.Exception:
            raise
        except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
            from pytest_mlms.core.text import visible

            frames = traceback.extract_tb(error.__traceback__)
            users = [frame for frame in frames if _is_of_a_user(frame.filename)]
            place = f"{os.path.relpath(users[0].filename)}:{users[0].lineno}: " if users else ""
            problem = f"the hook pytest_mlms_result raised {type(error).__name__}: {error}"
            self._errors.append(visible(f"{place}{result['nodeid']}: {problem}; mend the hook"))

    def note(self, kind: str, **fields: Any) -> None:
        """Write a line that belongs to no single item."""
        if self._opened_file is not None:
            self._opened_file.note(kind, fields)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        result = getattr(report, "mlms", None)
        if result is not None:
            outcome: str = report.outcome
            self.add(result, is_final=outcome != "rerun")
        teardown = getattr(report, "mlms_teardown", None)
        if teardown is not None:
            self._add_teardown(teardown)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        items = [item for item in session.items if "mlms_case" in getattr(item, "fixturenames", ())]
        if items:
            parameters = [getattr(item, "callspec", None) for item in items]
            cases = [each.params.get("mlms_case") for each in parameters if each is not None]
            self._check_folders([case for case in cases if case is not None])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: Sequence[str]) -> None:
        if any(nodeid.partition("::")[0].endswith(MANIFEST_SUFFIXES) for nodeid in ids):
            self._check_folders([])

    def _check_folders(self, cases: Sequence[Case]) -> None:
        """Refuse folders that can't be written, before anything is measured.

        With xdist the cases are the workers', which say it of the cache for each item.
        """
        measures_none = self._config.option.collectonly or self._config.option.setuponly
        if measures_none or self._session.config.fleet or self._is_checked:
            return
        self._is_checked = True
        self._check_writable("results", self._session.config.results)
        if self._need_cache(cases):
            self._check_writable("cache", self._session.cache)

    def _need_cache(self, cases: Sequence[Case]) -> bool:
        """Return whether what cases need is made, fetched or unpacked in the cache."""
        from pytest_mlms.provide.artifacts.fetch import NO_CACHE, needs_cache

        if self._session.cache == NO_CACHE:
            return False  # its items say that HOME is not set
        if any(stack.requirements for case in cases for stack in case.stacks):
            return True
        by_model = {(id(case.model), id(case.model_against)): case for case in cases}
        files = [file for case in by_model.values() for file in case.files]
        return any(needs_cache(file, self._session.cache) for file in files)

    def _check_writable(self, name: str, folder: Path) -> None:
        from pytest_mlms.show.report.run_folders import check_writable

        try:
            check_writable(folder)
        except OSError as error:
            is_named = is_set(self._config, f"mlms_{name}")
            source = source_of(self._config, f"mlms_{name}") if is_named else f"--mlms-{name}"
            problem = f"{folder} can't be written: {error.strerror}"
            advice = "make room or grant access, or name another folder"
            raise pytest.UsageError(f"{source}: {problem}; {advice}") from None

    def pytest_sessionstart(self) -> None:
        if os.environ.get("GITHUB_ACTIONS") == "true":
            from pytest_mlms.show.report.github_annotations import leave_items_to_us

            leave_items_to_us(self._config.pluginmanager)

    def pytest_unconfigure(self) -> None:
        if self._opened_file is not None:
            self._opened_file.close()
        if self._opened_file is None and not self._collection_errors:
            return
        from pytest_mlms.show.report.ci_outputs import print_annotations

        print_annotations(self._ci_run())

    @pytest.hookimpl(trylast=True)
    def pytest_warning_recorded(self, warning_message: Any, nodeid: str) -> None:
        if "pytest_mlms.warning_types" not in sys.modules:  # so that it isn't one of ours
            return
        if self._warnings is None:
            from pytest_mlms.show.report.reasons import OwnWarnings

            self._warnings = OwnWarnings()
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        self._warnings.add(warning_message, nodeid, terminal)

    @contextlib.contextmanager
    def summing_up(self, terminal: pytest.TerminalReporter) -> Iterator[None]:
        """Have pytest's summaries tell each failure once, and leave our warnings to our tables."""
        if self._results:
            from pytest_mlms.show.report.reasons import tell_failures_once

            tell_failures_once(terminal, self._results)
        if self._warnings is None:
            yield
            return
        self._warnings.hide(terminal)
        try:
            yield
        finally:
            self._warnings.count_again(terminal)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._collection_errors.append(report.longreprtext)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        file = self._opened_file
        if file is None:
            if self._collection_errors:
                from pytest_mlms.show.report.ci_outputs import write_step_summary

                self._notes += write_step_summary(self._ci_run())
            return
        self._write_benchmark_json()
        self._write_documents()
        self._check_asked()
        self._check_own_predictors()
        self._fail_on_errors(session)
        file.finish(int(session.exitstatus))
        self._write_for_ci()
        self._add_to_history(file)
        self._write_report()
        self._write_upgrade_report()
        self._push()
        self._remove_old_runs()
        if file.error:
            self._errors.append(f"{file.error}; {len(file.unwritten)} lines were not written")
            self._fail_on_errors(session)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        file = self._opened_file
        if file is None:
            self._write_unfinished(terminalreporter)
            self._write_warnings(terminalreporter)
            return
        from pytest_mlms.show.pages.run import items_of
        from pytest_mlms.show.report.terminal import write_tables

        write_tables(terminalreporter, items_of(self._results, self._session.run_folder))
        self._write_nothing_measured(terminalreporter)
        self._write_warnings(terminalreporter)
        for line in file.unwritten:
            terminalreporter.write_line(line)
        for note in self._notes:
            terminalreporter.write_line(f"mlms: {note}", yellow=True)
        for error in self._errors:
            terminalreporter.write_line(f"mlms: {error}", red=True)
        for text in self._written:
            terminalreporter.write_line(f"mlms: {text}")
        if file.path.exists():
            terminalreporter.write_line(f"mlms: results in {file.path}")

    def write_last_line(self, terminal: pytest.TerminalReporter) -> None:
        """Sum up the run in a line, if it has results."""
        if not self._results:
            return
        from pytest_mlms.show.pages.run import items_of
        from pytest_mlms.show.report.terminal import summary_line

        terminal.write_line(summary_line(items_of(self._results, self._session.run_folder)))

    def _add_teardown(self, error: Mapping[str, Any]) -> None:
        """Write the line of a tear-down that failed; tables show its item as an error."""
        self.note("teardown", **error)
        for result in self._results:
            if _is_of(error, result):
                result.update(verdict="ERROR", outcome="failed", message=error["message"])

    def _write_benchmark_json(self) -> None:
        target = self._session.config.benchmark_json
        if target is None:
            return
        from pytest_mlms.show.report.benchmark_json import write_benchmark_json

        try:
            count = write_benchmark_json(target, self._results, self._session.run_folder)
        except MlmsError as error:
            self._errors.append(str(error))
            return
        if count == 0:
            self._notes.append(f"{target} is empty: no performance item was measured")

    def _write_documents(self) -> None:
        from pytest_mlms.show.report.ci_outputs import write_documents

        self._errors += write_documents(self._ci_run())

    def _write_for_ci(self) -> None:
        """Write what the page of a job shows; what can't be written changes no exit status."""
        from pytest_mlms.show.report.ci_outputs import attach_to_junit, write_step_summary

        run = self._ci_run()
        self._notes += write_step_summary(run)
        self._notes += attach_to_junit(run, self._config.getoption("xmlpath", None))

    def _write_report(self) -> None:
        """Write the HTML report; where it can't be written, that changes no exit status."""
        config = self._session.config
        target = config.report
        if target is None:
            return
        from pytest_mlms.show.pages.report import write_report
        from pytest_mlms.show.pages.run import read_run

        folder = self._session.run_folder
        try:
            problem = write_report(target, [read_run(folder)], address=config.history)
        except MlmsError as error:
            self._notes.append(f"{error}; try: mlms report {shlex.quote(str(folder))}")
            return
        self._written.append(f"report in {target}")
        self._notes += filter(None, [problem])

    def _write_upgrade_report(self) -> None:
        """Write the upgrades that regressed; where that fails, it changes no exit status."""
        target = self._session.config.upgrade_report
        if target is None:
            return
        from pytest_mlms.show.report.upgrade_report import write_run_upgrades

        line, note = write_run_upgrades(target, self._session.run_folder)
        self._written += line
        self._notes += note

    def _ci_run(self) -> CiRun:
        from pytest_mlms.show.report.ci_outputs import CiRun

        return CiRun(
            session=self._session,
            results=self._results,
            folder=self._config.invocation_params.dir,
            environ=os.environ,
            collection=list(dict.fromkeys(self._collection_errors)),
        )

    def _add_to_history(self, file: ResultsFile) -> None:
        address = self._session.config.history
        if address is None or not file.path.exists():
            return
        from pytest_mlms.show.report.run_folders import add_to_history

        outcome = add_to_history(address, self._session.config.results, file.path.parent)
        self._written += outcome.lines
        self._notes += outcome.notes

    def _push(self) -> None:
        """Push the run, and those that wait, to a portal; a failure costs no verdict."""
        config = self._session.config
        if config.push is None:
            return
        from pytest_mlms.core.portal_address import read_token
        from pytest_mlms.show.report.push import Portal, push_after_run

        try:
            token = read_token(config.push_token_file)
            portal = Portal(config.push, token, config.push_token_file)
        except MlmsError as error:
            self._notes.append(f"not pushed: {error}")
            return
        self._notes += push_after_run(portal, config.results, self._session.run_folder)

    def _remove_old_runs(self) -> None:
        from pytest_mlms.show.report.run_folders import remove_old_runs

        config = self._session.config
        count = remove_old_runs(config.results, config.keep)
        if count:
            noun = "run" if count == 1 else "runs"
            note = (
                f"removed {count:,} old {noun} of {config.results}; the last {config.keep:,} stay"
            )
            self._notes.append(f"{note} (--mlms-keep)")

    def _check_asked(self) -> None:
        """Fail a run whose upgrades, or soaks, were all skipped: none of them was judged."""
        for kind in ("upgrade", "soak"):
            asked = [result for result in self._results if result["kind"] == kind]
            if asked and _all_skipped(asked):
                self._errors.append(
                    f"no {kind} was judged: all were skipped, which is no answer; -rs says why"
                )

    def _check_own_predictors(self) -> None:
        """Fail a run that measured nothing because a predictor that the user names has a mistake.

        What it imports may be a framework that this host lacks; so it is where others are measured.
        """
        if not self._results or not _all_skipped(self._results):
            return
        for framework in sorted({one.get("framework", "") for one in self._results}):
            file = self._session.predictors.get(framework)
            if file is None or file.parent not in self._session.config.predictors:
                continue
            messages = [
                one["message"] or "" for one in self._results if one.get("framework") == framework
            ]
            found = next(filter(None, map(_UNIMPORTABLE.search, messages)), None)
            if found is None:
                continue
            from pytest_mlms.provide.host.capabilities import line_of_import

            line = line_of_import(file, found["module"] or found["of"], found["name"])
            problem = f"no module {found['module']!r}"
            if found["name"]:
                problem = f"no {found['name']!r} in module {found['of']!r}"
            advice = "correct the import, or install it in the stack"
            place = f"{os.path.relpath(file)}:{line}"
            self._errors.append(f"{place}: nothing was measured: {problem}; {advice}")

    def _fail_on_errors(self, session: pytest.Session) -> None:
        """Have the run end as failed where there are errors, even if all its items passed."""
        if self._errors and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _write_unfinished(self, terminal: pytest.TerminalReporter) -> None:
        """Name the folder of a run that was interrupted during its first item.

        With xdist, workers may have written artifacts there. A draft of --mlms-model is none.
        """
        folder = self._session.run_folder
        if os.path.isdir(folder) and any(path.is_dir() for path in folder.iterdir()):
            terminal.write_line(
                f"mlms: no item was finished; what they had measured is in {folder}"
            )

    def _write_warnings(self, terminal: pytest.TerminalReporter) -> None:
        if self._warnings is not None:
            self._warnings.write(terminal)

    def _write_nothing_measured(self, terminal: pytest.TerminalReporter) -> None:
        """Warn where all items were skipped, which ends with status 0 as in every pytest run."""
        was_asked = any(result["kind"] in ("upgrade", "soak") for result in self._results)
        if not self._results or was_asked or not _all_skipped(self._results):
            return
        count = len(self._results)
        skipped = f"all {count:,} items were skipped"
        if count == 1:
            skipped = "the only item was skipped"
        advice = "; --mlms-strict fails what can't run"
        if self._session.config.strict:
            advice = ""
        text = f"mlms: nothing was measured: {skipped}, -rs says why{advice}"
        terminal.write_line(text, yellow=True)


def _check_templates(config: pytest.Config) -> None:
    """Refuse a report that no library is there for, before anything is measured."""
    from pytest_mlms.show.pages.html import require_templates

    try:
        require_templates()
    except MlmsError as error:
        raise pytest.UsageError(f"{source_of(config, 'mlms_report')}: {error}") from None


def _check_benchmark(config: pytest.Config) -> None:
    """Refuse a document of pytest-benchmark without that, before anything is measured."""
    from pytest_mlms.show.report.benchmark_json import require_benchmark

    try:
        require_benchmark()
    except MlmsError as error:
        raise pytest.UsageError(f"{source_of(config, 'mlms_benchmark_json')} {error}") from None


def _shown(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in _SHOWN_FIELDS if name in result}


def _is_of_a_user(file: str) -> bool:
    """Return whether a file is neither this one nor one of those by which it calls hooks."""
    return file != __file__ and Path(file).parent.name not in ("pluggy", "_pytest")


def _is_of(error: Mapping[str, Any], result: Mapping[str, Any]) -> bool:
    """Return whether the tear-down that failed is that of this item, and of this run of it."""
    fields = ("nodeid", "repetition")
    return all(error.get(name) == result.get(name) for name in fields)


def _all_skipped(results: Iterable[Mapping[str, Any]]) -> bool:
    return all(result["verdict"] == "SKIPPED" for result in results)
