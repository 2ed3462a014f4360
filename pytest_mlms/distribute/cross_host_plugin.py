"""Plugin that compares two hosts at the end of a run: --mlms-stack and --mlms-against are labels.

The statistics are in ``pytest_mlms/decide/upgrade/cross_host.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from pytest_mlms.config import Config
from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.cross_host import Visit, compare_sides, read_visit
from pytest_mlms.options import read_share
from pytest_mlms.session import REPORTER
from pytest_mlms.show.report.table import format_table

_HEADER = ["verdict", "case", "quantity", "A", "B", "B / A", "noise"]
_TEXT_COLUMNS = 3
_NARROWEST = 80  # columns

_LIMITS_OF_DESIGN = (
    "The sides are unpaired: what differs between the hosts is in these differences too, and the "
    "noise is how each host drifted between visits. Outputs are not compared: limits of accuracy "
    "or of agreement judge those of each host. Two stacks on one host are the stronger design."
)


def register_comparison(config: pytest.Config, options: Config) -> None:
    """Register the plugin; a run that is resumed begins with the results that it has."""
    comparison = CrossHostComparison(options)
    resumed = config.pluginmanager.getplugin("mlms-resume")
    if resumed:
        for line in resumed.lines.values():
            comparison.add(line)
    config.pluginmanager.register(comparison, "mlms-sides")


class CrossHostComparison:
    """A plugin of the controller; side B is --mlms-stack, and side A --mlms-against."""

    def __init__(self, options: Config) -> None:
        self._b, self._a = options.sides
        self._strict = options.strict
        self._tolerances: dict[str, float] = {}
        self._gates: list[str] = []
        if options.tolerance is not None:
            self._tolerances["latency"] = options.tolerance
        for gate in options.gate:
            name, _, share = gate.partition("=")
            self._tolerances[name] = read_share(share)
            self._gates.append(name)
        self._has_results = False
        self._visits: dict[str, Visit] = {}
        self._found: dict[str, list[Comparison]] = {}

    def add(self, result: Mapping[str, Any]) -> None:
        """Keep the compared values of an item's last line of results: it may run again."""
        self._has_results = True
        visit = read_visit(result)
        if visit:
            self._visits[result["nodeid"]] = visit

    @pytest.hookimpl
    def pytest_mlms_result(self, result: Mapping[str, Any]) -> None:
        """Keep the compared values of a result."""
        self.add(result)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Compare the sides, write the comparisons to the results, and fail the run if need be.

        A run fails where B is worse, where nothing could be compared, and under --mlms-strict
        where a verdict is INCONCLUSIVE.
        """
        self._found = compare_sides(
            self._visits.values(), self._a, self._b, self._tolerances, self._gates
        )
        reporter = session.config.pluginmanager.getplugin(REPORTER)
        for case, comparisons in self._found.items():
            reporter.note(
                "sides", case=case, a=self._a, b=self._b, comparisons=to_plain(comparisons)
            )
        successful = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if self._has_failed() and session.exitstatus in successful:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _has_failed(self) -> bool:
        if self._has_nothing_compared():
            return True
        verdicts: set[Verdict] = set()
        for comparisons in self._found.values():
            verdicts.update(comparison.verdict for comparison in comparisons)
        if Verdict.REGRESSED in verdicts:
            return True
        return self._strict and Verdict.INCONCLUSIVE in verdicts

    def _has_nothing_compared(self) -> bool:
        """Return whether there are results, but none of both sides."""
        return self._has_results and not self._found

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the comparisons, and how much they can say."""
        if self._has_nothing_compared():
            message = "mlms: nothing was compared: no case was measured on both sides"
            terminalreporter.write_line(message, red=True)
        if not self._found:
            return
        title = f"mlms: {self._b} (B) against {self._a} (A), on different hosts"
        terminalreporter.write_sep("-", title)
        for line in self._table(max(terminalreporter._tw.fullwidth, _NARROWEST)):
            terminalreporter.write_line(line)
        terminalreporter.write_line(_LIMITS_OF_DESIGN)

    def _table(self, width: int) -> list[str]:
        rows = []
        for case, comparisons in self._found.items():
            rows += [_row(case, comparison) for comparison in comparisons]
        lines = []
        for folded in format_table(_HEADER, rows, width, left=_TEXT_COLUMNS):
            lines += folded
        return lines


def _row(case: str, comparison: Comparison) -> list[str]:
    change = "-"
    if math.isfinite(comparison.ratio):
        change = f"{100 * (comparison.ratio - 1):+.1f} %"
    noise = comparison.lacking or "-"
    if math.isfinite(comparison.floor):
        noise = f"±{100 * comparison.floor:.1f} %"
    return [
        comparison.verdict.value,
        case.rpartition("::")[2],
        comparison.quantity,
        format_quantity(comparison.a, comparison.unit),
        format_quantity(comparison.b, comparison.unit),
        change,
        noise,
    ]
