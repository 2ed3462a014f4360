"""Two hosts as the two sides of an upgrade, for what can't live on one machine, such as drivers.

The weaker design: nothing is paired, and a difference between the hosts is in the difference
between the sides. Each case is measured in several visits, far apart in time; how the visits of a
side scatter is the drift of its host, and the noise that a change must pass. docs/distribution.md
says more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import pytest

from pytest_mlms.config import Config
from pytest_mlms.quantities import QUANTITIES, upgrade_rules
from pytest_mlms.records import Comparison, Verdict
from pytest_mlms.report.table import format_table
from pytest_mlms.serialization import to_plain
from pytest_mlms.stacks.labels import label_of
from pytest_mlms.statistics import student_quantile
from pytest_mlms.units import format_quantity
from pytest_mlms.upgrade.decision import RISK_OF_FAILING, RISK_OF_PASSING

__all__ = ["Sides", "compare_sides"]

_QUANTITIES = {
    "latency": "latency_p50",
    "throughput": "throughput",
    "first_inference": "first_inference",
    "load_time": "load_time",
    "peak_memory": "peak_memory",
}


_HEADER = ["verdict", "case", "quantity", "A", "B", "B / A", "noise"]


class Sides:
    """A plugin of the controller where --mlms-stack and --mlms-against name labels.

    Compares them at the end.
    """

    def __init__(self, options: Config, earlier: Iterable[Mapping[str, Any]]) -> None:
        self._a, self._b = options.sides[1], options.sides[0]
        self._strict = options.strict
        self._tolerances = {} if options.tolerance is None else {"latency": options.tolerance}
        self._results: list[dict[str, Any]] = []
        self._found: dict[str, list[Comparison]] = {}
        for result in earlier:
            self.pytest_mlms_result(result)

    @pytest.hookimpl
    def pytest_mlms_result(self, result: Mapping[str, Any]) -> None:
        """Keep what is compared."""
        kept = ("nodeid", "kind", "stack", "estimates")
        self._results.append({key: result[key] for key in kept if key in result})

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Compare, write it down, and fail the run where B is surely worse (--mlms-strict: or
        nobody can say).

        Where nothing could be compared, as where no host carries one of the labels, it fails too:
        that is no answer.
        """
        self._found = compare_sides(self._results, self._a, self._b, self._tolerances)
        reporter = session.config.pluginmanager.getplugin("mlms-reporter")
        verdicts = set()
        for case, comparisons in self._found.items():
            verdicts |= {one.verdict for one in comparisons}
            reporter.note(
                "sides",
                case=case,
                a=self._a,
                b=self._b,
                comparisons=to_plain(comparisons),
            )
        bad = Verdict.REGRESSED in verdicts or (self._strict and Verdict.INCONCLUSIVE in verdicts)
        if (bad or self._unanswered) and session.exitstatus in (
            pytest.ExitCode.OK,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @property
    def _unanswered(self) -> bool:
        return bool(self._results) and not self._found

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the comparisons, and how weak they are."""
        if self._unanswered:
            terminalreporter.write_line(
                "mlms: nothing was compared: no case was measured on both sides", red=True
            )
        if not self._found:
            return
        terminalreporter.write_sep(
            "-", f"mlms: {self._b} (B) against {self._a} (A), on different hosts"
        )
        rows = [_row(case, one) for case, comparisons in self._found.items() for one in comparisons]
        header, *lines = format_table(
            _HEADER, rows, max(terminalreporter._tw.fullwidth, 80), left=3
        )
        for folded in (header, *lines):
            for line in folded:
                terminalreporter.write_line(line)
        terminalreporter.write_line(_WEAKER)


_WEAKER = (
    "The sides are unpaired: what differs between the hosts is in these differences too, and the noise is how each "
    "host drifted between visits. Two stacks on one host are the stronger design."
)


def _row(case: str, one: Comparison) -> list[str]:
    change = f"{100 * (one.ratio - 1):+.1f} %" if math.isfinite(one.ratio) else "-"
    noise = f"±{100 * one.floor:.1f} %" if math.isfinite(one.floor) else one.lacking or "-"
    a, b = (format_quantity(value, one.unit) for value in (one.a, one.b))
    return [one.verdict.value, case.rpartition("::")[2], one.quantity, a, b, change, noise]


class _Drift(NamedTuple):
    """How the visits of one side scatter: the variance of the log, and its degrees of freedom."""

    variance: float
    freedom: int


def compare_sides(
    results: Iterable[Mapping[str, Any]], a: str, b: str, tolerances: Mapping[str, float]
) -> dict[str, list[Comparison]]:
    """Return, for each case that both sides measured, how B differs from A in each quantity.

    ``a`` and ``b`` are labels, ``results`` items' lines. The difference of the means of the logs
    over visits has the hosts' drifts as its variance (Welch 1947, Biometrika 34:28), each pooled
    over all cases of its side.
    """
    values = _values(results)
    cases = sorted({case for case, _, _ in values})
    found: dict[str, list[Comparison]] = {case: [] for case in cases}
    for quantity, rule in upgrade_rules().items():
        drifts = {
            side: _drift(
                [logs for (_, at, name), logs in values.items() if (at, name) == (side, quantity)]
            )
            for side in (a, b)
        }
        for case in cases:
            first, second = values.get((case, a, quantity)), values.get((case, b, quantity))
            if first and second:
                tolerance = tolerances.get(quantity, rule.tolerance)
                found[case].append(
                    _compare(quantity, first, second, drifts[a], drifts[b], tolerance)
                )
    return {case: comparisons for case, comparisons in found.items() if comparisons}


def _values(results: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], list[float]]:
    """Return the logs of the estimates by case, side and quantity, one a visit."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for result in results:
        stack = result["stack"]["name"]
        label = label_of(stack)
        if label and result["kind"] == "performance":
            side = "=".join(label)
            case = result["nodeid"].replace(stack, "*")
            for quantity, estimate in _QUANTITIES.items():
                value = result.get("estimates", {}).get(estimate, {}).get("value")
                if value:
                    found.setdefault((case, side, quantity), []).append(
                        math.log(value + upgrade_rules()[quantity].base)
                    )
    return found


def _drift(groups: Sequence[Sequence[float]]) -> _Drift:
    freedom = sum(len(group) - 1 for group in groups)
    squares = sum((value - fmean(group)) ** 2 for group in groups for value in group)
    return _Drift(squares / freedom if freedom else math.inf, freedom)


def _compare(
    name: str,
    a: Sequence[float],
    b: Sequence[float],
    drift_a: _Drift,
    drift_b: _Drift,
    tolerance: float,
) -> Comparison:
    default = QUANTITIES[name]
    base = upgrade_rules()[name].base
    first, second = (math.exp(fmean(side)) - base for side in (a, b))
    made = Comparison(
        name, first, second, default.unit, tolerance, True, min(len(a), len(b)), "visits"
    )
    parts = [drift_a.variance / len(a), drift_b.variance / len(b)]
    if not all(map(math.isfinite, parts)):
        return made.but(lacking="needs 2 visits of each side")
    error = math.sqrt(sum(parts))
    spread = sum(
        part**2 / drift.freedom for part, drift in zip(parts, (drift_a, drift_b), strict=True)
    )
    freedom = sum(parts) ** 2 / spread if spread else 1.0
    change, limit = default.sign * (fmean(b) - fmean(a)), math.log1p(tolerance)
    low = change - student_quantile(freedom, 1 - RISK_OF_FAILING) * error
    high = change + student_quantile(freedom, 1 - RISK_OF_PASSING) * error
    ends = sorted(math.exp(default.sign * value) for value in (low, change, high))
    verdict = (
        Verdict.REGRESSED if low > limit else Verdict.IMPROVED if high < -limit else Verdict.PASSED
    )
    if verdict is Verdict.PASSED and high >= limit:
        verdict = Verdict.INCONCLUSIVE
    return made.but(
        low=ends[0], ratio=ends[1], high=ends[2], verdict=verdict, floor=math.expm1(change - low)
    )
