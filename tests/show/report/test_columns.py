"""Tables of the terminal: their titles, and the cells that a result has in their columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_mlms.core.serialization import to_plain
from pytest_mlms.show.report.columns import TABLES
from tests.support.upgrades import alike, result_of
from tests.support.views import view_of

COLUMNS = {table.title: table.columns for table in TABLES}


def estimate(value: float, unit: str = "s", **fields: Any) -> dict[str, Any]:
    low = 0.9 * value
    high = 1.1 * value
    return {"value": value, "low": low, "high": high, "unit": unit, **fields}


def cell(title: str, header: str) -> Callable[[dict[str, Any]], str]:
    """Return a function of a line."""
    return lambda line: COLUMNS[title][header](view_of(line))


def test_the_tables_and_their_columns_are_in_order() -> None:
    headers = {title: list(columns) for title, columns in COLUMNS.items()}
    assert "WER (interval)" in headers["accuracy of texts"]
    of_tasks = {title for title in headers if title.startswith("accuracy of ")}
    assert {title: headers[title] for title in headers.keys() - of_tasks} == {
        "accuracy": ["top-1 (interval)", "top-5 (interval)", "inputs"],
        "agreement with the reference": [
            "of tolerance",
            "largest difference",
            "same top-1",
            "largest KL",
        ],
        "latency and throughput": ["p50", "p90", "p99", "throughput", "on GPU", "waited"],
        "tokens": ["to the first", "each", "p99 of gaps", "rate"],
        "queries under load": [
            "latency",
            "to the first",
            "each",
            "goodput",
            "rate",
            "peak",
            "queue delay",
            "issue delay",
            "waited",
        ],
        "start-up and memory": [
            "start",
            "load",
            "first call",
            "peak memory",
            "GPU memory",
            "imports",
            "growth a call",
            "processes",
        ],
        "soaks": [
            "growth a call",
            "threads",
            "descriptors",
            "latency drift",
            "throughput drift",
            "outputs",
        ],
        "upgrades, latency": ["A", "B", "B / A", "tolerance", "spent"],
        "noise of this machine": ["tolerance", "noise floor", "finds from", "rounds"],
    }


def test_an_estimate_is_shown_with_its_unit() -> None:
    result = {"estimates": {"latency_p90": estimate(0.00123, lacking="")}}
    assert cell("latency and throughput", "p90")(result) == "1.23 ms"


def test_an_estimate_that_is_missing_or_of_too_little_is_a_dash() -> None:
    show = cell("latency and throughput", "p90")
    assert show({"estimates": {}}) == "-"
    few = estimate(0.1, lacking="needs 22 calls")
    assert show({"estimates": {"latency_p90": few}}) == "-"


def test_the_median_is_shown_with_its_spread() -> None:
    show = cell("latency and throughput", "p50")
    known = estimate(0.001, lacking="")
    assert show({"estimates": {"latency_p50": known}}) == "1.00 ms ±10 %"
    wide = estimate(0.001, lacking="", high=0.0134)
    assert show({"estimates": {"latency_p50": wide}}) == "1.00 ms ±625 %"
    unbounded = estimate(0.001, lacking="", high=None)
    assert show({"estimates": {"latency_p50": unbounded}}) == "1.00 ms"


@pytest.mark.parametrize(
    ("shares", "shown"),
    [
        ([0.46, 0.54], "50 %"),
        ([0.01, 0.02], "-"),
        ([None], "-"),
    ],
)
def test_a_long_wait_for_a_core_has_a_column(shares: list[float | None], shown: str) -> None:
    estimates = {"latency_p50": estimate(0.001, lacking="")}
    processes = [{"waited": share} for share in shares]
    result = {"estimates": estimates, "processes": processes}
    assert cell("latency and throughput", "waited")(result) == shown
    assert cell("latency and throughput", "p50")(result) == "1.00 ms ±10 %"


def test_accuracy_is_shown_with_its_interval() -> None:
    top1 = estimate(0.5, "fraction", low=0.45, high=0.55, replicates=1200, lacking="")
    result = {"estimates": {"top1": top1}}
    assert cell("accuracy", "top-1 (interval)")(result) == "50.00 (45.00 to 55.00) %"
    assert cell("accuracy", "top-5 (interval)")(result) == "-"
    assert cell("accuracy", "inputs")(result) == "1,200"


def test_processes_and_rounds_are_counted() -> None:
    processes = cell("start-up and memory", "processes")
    assert processes({"processes": [{}, {}]}) == "2"
    rounds = cell("noise of this machine", "rounds")
    assert rounds({"rounds": [{}, {}, {}]}) == "3"


def upgrade(value: float) -> dict[str, Any]:
    """Return the line of an upgrade whose latency changed by exp(value)."""
    result = to_plain(result_of(alike(value)))
    return {**result, "seconds": {"setup": 1.0, "call": 2.5}}


def test_an_upgrade_is_shown_by_its_latency() -> None:
    line = upgrade(0.1)
    cells = [show(view_of(line)) for show in COLUMNS["upgrades, latency"].values()]
    assert cells[:2] == ["1.00 ms", "1.11 ms"]
    assert cells[2] == "×1.105 (1.101 to 1.108)"
    assert cells[3:] == ["3 %", "3.5 s"]


def test_the_time_spent_is_a_dash_where_it_is_not_known() -> None:
    assert cell("upgrades, latency", "spent")({}) == "-"


@pytest.mark.parametrize(
    ("header", "shown"), [("tolerance", "3 %"), ("noise floor", "±0.42 %"), ("finds from", "3.4 %")]
)
def test_the_noise_of_a_machine_is_shown_in_percent(header: str, shown: str) -> None:
    assert cell("noise of this machine", header)(upgrade(0.0)) == shown


def test_a_single_round_has_dashes_for_the_noise_of_a_machine() -> None:
    line = to_plain(result_of(alike(0.0)[:1]))
    assert cell("noise of this machine", "noise floor")(line) == "-"
    assert cell("noise of this machine", "finds from")(line) == "-"


def test_an_upgrade_without_latency_has_dashes() -> None:
    assert cell("upgrades, latency", "B / A")({"comparisons": []}) == "-"
