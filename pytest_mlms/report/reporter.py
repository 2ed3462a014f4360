"""Where items' results arrive, in the process that the user started.

Written at once, shown at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest

from pytest_mlms.errors import MlmsError
from pytest_mlms.session import Session

if TYPE_CHECKING:
    from pytest_mlms.report.results import ResultsFile

__all__ = ["Reporter"]

_SHOWN = (
    *(
        "nodeid",
        "case",
        "kind",
        "verdict",
        "margin",
        "estimates",
        "processes",
        "manifest",
        "artifacts",
        "trace",
    ),
    *("framework", "device", "batch_size", "scenario", "versions"),
    *("stack", "against", "comparisons", "rounds", "seconds"),
)


class Reporter:
    """A plugin object of its own, so that a run without manifests has nothing but this."""

    def __init__(self, config: pytest.Config, session: Session) -> None:
        self._config = config
        self._session = session
        self._file: ResultsFile | None = None
        self._results: list[dict[str, Any]] = []
        self._faults: list[str] = []

    def go_on(self, results: Iterable[dict[str, Any]]) -> None:
        """Show what a run that goes on had finished, too."""
        from pytest_mlms.report.results import ResultsFile

        self._file = ResultsFile(self._session.run_folder)
        self._file.go_on()
        self._results += [
            {key: result[key] for key in _SHOWN if key in result} for result in results
        ]

    def add(self, result: dict[str, Any]) -> None:
        """Write a result, tell whoever listens, and remember what the tables show of it."""
        if self._file is None:
            from pytest_mlms.report.results import ResultsFile

            self._file = ResultsFile(self._session.run_folder)
        self._file.append(result)
        self._config.hook.pytest_mlms_result(config=self._config, result=result)
        self._results.append({key: result[key] for key in _SHOWN if key in result})

    def note(self, kind: str, **facts: Any) -> None:
        """Write a line that is of no single item."""
        if self._file is not None:
            self._file.note(kind, facts)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        result = getattr(report, "mlms", None)
        if result is not None:
            self.add(result)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self._file is None:
            return
        target = self._session.config.benchmark_json
        if target:
            from pytest_mlms.report.benchmark_json import write_benchmark_json

            try:
                write_benchmark_json(target, self._results, self._session.run_folder)
            except MlmsError as error:
                self._faults.append(str(error))
        upgrades = [result["verdict"] for result in self._results if result["kind"] == "upgrade"]
        if upgrades and set(upgrades) == {"SKIPPED"}:
            self._faults.append(
                "no upgrade was judged: all were skipped, which is no answer; -rs says why"
            )
        self._fail(session)
        self._file.finish(int(session.exitstatus))
        if self._file.fault:
            self._faults.append(
                f"{self._file.fault}; {len(self._file.unwritten)} lines were not written"
            )
            self._fail(session)

    def _write_nothing_measured(self, terminal: pytest.TerminalReporter) -> None:
        """Warn where all was skipped, which ends with status 0 as in every pytest run.

        All upgrades are a fault.
        """
        count = len(self._results)
        if not count or any(
            one["verdict"] != "SKIPPED" or one["kind"] == "upgrade" for one in self._results
        ):
            return
        skipped = f"all {count:,} items were skipped" if count > 1 else "the only item was skipped"
        strict = "" if self._session.config.strict else "; --mlms-strict fails what can't run"
        terminal.write_line(
            f"mlms: nothing was measured: {skipped}, -rs says why{strict}", yellow=True
        )

    def _fail(self, session: pytest.Session) -> None:
        """Have the run end as failed where anything is at fault, whatever its items say."""
        if self._faults and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        folder = self._session.run_folder
        if self._file is None:
            if (
                folder.exists()
            ):  # interrupted under xdist, whose workers keep to themselves what they were at
                terminalreporter.write_line(
                    f"mlms: no item was finished; what they had measured is in {folder}"
                )
            return
        from pytest_mlms.report.terminal import write_tables

        write_tables(terminalreporter, self._results)
        self._write_nothing_measured(terminalreporter)
        for line in self._file.unwritten:
            terminalreporter.write_line(line)
        for fault in self._faults:
            terminalreporter.write_line(f"mlms: {fault}", red=True)
        if self._file.path.exists():
            terminalreporter.write_line(f"mlms: results in {self._file.path}")
