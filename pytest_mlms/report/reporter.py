"""Where items' results arrive, in the process that the user started: written at once, shown at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_mlms.errors import MlmsError
from pytest_mlms.session import Session

if TYPE_CHECKING:
    from pytest_mlms.report.results import ResultsFile

__all__ = ["Reporter"]

_SHOWN = (
    *("nodeid", "case", "kind", "verdict", "margin", "estimates", "processes", "manifest", "artifacts"),
    *("framework", "device", "batch_size", "scenario", "versions"),
)


class Reporter:
    """A plugin object of its own, so that a run without manifests has nothing but this."""

    def __init__(self, config: pytest.Config, session: Session) -> None:
        self._config = config
        self._session = session
        self._file: ResultsFile | None = None
        self._results: list[dict[str, Any]] = []
        self._faults: list[str] = []

    def add(self, result: dict[str, Any]) -> None:
        """Write a result, tell whoever listens, and remember what the tables show of it."""
        if self._file is None:
            from pytest_mlms.report.results import ResultsFile

            self._file = ResultsFile(self._session.run_folder)
        self._file.append(result)
        self._config.hook.pytest_mlms_result(config=self._config, result=result)
        self._results.append({key: result[key] for key in _SHOWN if key in result})

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
            from pytest_mlms.report.benchmark import write_benchmark_json

            try:
                write_benchmark_json(target, self._results, self._session.run_folder)
            except MlmsError as error:
                self._faults.append(str(error))
        self._file.finish(int(exitstatus))
        if self._file.fault:
            self._faults.append(f"{self._file.fault}; {len(self._file.unwritten)} lines were not written")
        if self._faults and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._file is None:
            return
        from pytest_mlms.report.terminal import write_tables

        write_tables(terminalreporter, self._results)
        for line in self._file.unwritten:
            terminalreporter.write_line(line)
        for fault in self._faults:
            terminalreporter.write_line(f"mlms: {fault}", red=True)
        terminalreporter.write_line(f"mlms: results in {self._file.path}")
