"""The headline of an item, and its findings: what decided it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.records import Verdict
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.decide.upgrade.crash import crash_comparison
from pytest_mlms.show.pages.item import findings_of
from tests.support.report_runs import read_lines
from tests.support.result_lines import broken_limit, estimate, line_of, upgrade
from tests.support.views import view_of


def test_the_headline_of_calls_is_their_median() -> None:
    estimates = {"throughput": estimate(200, 190, 210, "/s"), "latency_p50": estimate(0.004, 0, 1)}
    assert view_of({"estimates": estimates}).headline == "latency p50 4.00 ms"


def test_the_headline_of_queries_is_the_percentile_that_is_limited() -> None:
    estimates = {"latency_p50": estimate(0.004, 0, 1), "query_latency": estimate(0.009, 0, 1)}
    item = view_of({"estimates": estimates, "load": {"latency": 0.01, "percentile": 90.0}})
    assert item.headline == "query latency p90 9.00 ms"


def test_the_headline_of_what_is_worse_is_that() -> None:
    (latency,) = upgrade()["comparisons"]
    fine = {**latency, "verdict": "PASSED", "ratio": 1.002}
    memory = {**latency, "quantity": "peak_memory", "ratio": 1.5, "low": 1.4, "high": 1.6}
    item = view_of({**upgrade(), "comparisons": [fine, memory]})
    assert item.headline == "peak memory ×1.500 (1.400 to 1.600)"
    limit = {"quantity": "load_time", "max": 1.0, "place": "m.yaml:1", "verdict": "FAILED"}
    estimates = {"latency_p50": estimate(0.004, 0.003, 0.005), "load_time": estimate(2.0, 1.9, 2.1)}
    assert view_of({"estimates": estimates, "limits": [limit]}).headline == "load time 2.00 s"


def test_the_case_tells_what_the_gpu_did_where_no_text_of_an_upgrade_does() -> None:
    notes = ["GPU 1980 MHz, 412 W, 47 °C", "L2 hot (3.0 MiB of 60.0 MiB)"]
    text = view_of({"device_used": "cuda:0", "gpu_notes": notes}).case_text
    assert text == f"cuda:0, batch size 1, {notes[0]}, {notes[1]}"
    assert notes[0] not in view_of({"kind": "upgrade", "gpu_notes": notes}).case_text
    assert view_of({"gpu_notes": 7}).case_text


def test_the_headline_of_nothing_is_empty() -> None:
    assert view_of({}).headline == ""


def test_limits_that_hold_are_no_findings(tmp_path: Path) -> None:
    (item,) = read_lines(tmp_path, [line_of()]).items
    assert findings_of(item) == []


def test_a_broken_limit_is_one(tmp_path: Path) -> None:
    (item,) = read_lines(tmp_path, [broken_limit()]).items
    (finding,) = findings_of(item)
    assert finding.quantity == "latency p50"
    assert finding.verdict is Verdict.FAILED
    assert finding.distance == "4 times as much"
    assert finding.place == "models/m.yaml:88"


def test_a_limit_on_what_was_not_measured_is_one(tmp_path: Path) -> None:
    (item,) = read_lines(tmp_path, [broken_limit(estimates={})]).items
    (finding,) = findings_of(item)
    assert finding.measured == "not measured"
    assert finding.bound == "limit at most 1.00 ms"


def test_an_interval_without_an_upper_end_is_unbounded(tmp_path: Path) -> None:
    estimates = {"latency_p50": estimate(0.004, 0.003, None)}
    (item,) = read_lines(tmp_path, [broken_limit(estimates=estimates)]).items
    (finding,) = findings_of(item)
    assert finding.measured == "4.00 ms (3.00 ms to unbounded)"


def test_a_tolerance_of_a_rate_says_how_much_less_that_is(tmp_path: Path) -> None:
    (compared,) = upgrade()["comparisons"]
    rate = {**compared, "quantity": "throughput", "tolerance": 0.05}
    (item,) = read_lines(tmp_path, [{**upgrade(), "comparisons": [rate]}]).items
    (finding,) = findings_of(item)
    assert finding.bound == "default tolerance 5 %, which is 4.76 % less"


@pytest.mark.parametrize("verdict", ["REGRESSED", "INCONCLUSIVE"])
def test_exits_that_failed_are_one_without_a_tolerance(tmp_path: Path, verdict: str) -> None:
    lacking = "of 7 exits of each side B failed in 1, A in 0"
    exits = to_plain(crash_comparison(lacking).but(verdict=Verdict(verdict), gate=False))
    (item,) = read_lines(tmp_path, [{**upgrade(), "comparisons": [exits]}]).items
    (finding,) = findings_of(item)
    assert (finding.measured, finding.bound, finding.reason) == ("", "", lacking)


def test_a_tolerance_that_was_widened_says_what_was_asked_for_and_why(tmp_path: Path) -> None:
    (compared,) = upgrade()["comparisons"]
    wide = {**compared, "tolerance": 0.0857, "asked": 0.05, "least_change": 0.6e-6}
    (item,) = read_lines(tmp_path, [{**upgrade(), "comparisons": [wide]}]).items
    (finding,) = findings_of(item)
    reason = "600 ns is the least change that is judged"
    assert finding.bound == f"tolerance 8.57 % more (instead of 5 %: {reason})"


@pytest.mark.parametrize(
    ("places", "shown"), [({"latency": "--mlms-tolerance"}, "--mlms-tolerance"), ({}, "")]
)
def test_a_tolerance_has_the_place_that_set_it_and_a_default_has_none(
    tmp_path: Path, places: dict[str, str], shown: str
) -> None:
    line = {**upgrade(), "terms": {"places": places}}
    (item,) = read_lines(tmp_path, [line]).items
    assert [finding.place for finding in findings_of(item)] == [shown]


def compared(**fields: Any) -> dict[str, Any]:
    return {**upgrade()["comparisons"][0], **fields}


def test_a_time_that_has_the_tolerance_of_latency_has_its_place_and_others_are_defaults(
    tmp_path: Path,
) -> None:
    others = [compared(quantity="cpu_time"), compared(quantity="wall_time", tolerance=0.1)]
    line = upgrade()
    line["comparisons"] += others
    (item,) = read_lines(tmp_path, [line]).items
    found = [(finding.bound, finding.place) for finding in findings_of(item)]
    place = "models/m.yaml:95"
    assert found[1:] == [("tolerance 3 % more", place), ("default tolerance 10 % more", "")]


def test_wrong_outputs_are_a_multiple_of_what_is_allowed(tmp_path: Path) -> None:
    wrong = {"quantity": "agreement", "of": "outputs", "a": None, "b": None, "ratio": 646.4}
    line = {**upgrade(), "comparisons": [compared(tolerance=1e-4, **wrong)]}
    (item,) = read_lines(tmp_path, [line]).items
    (finding,) = findings_of(item)
    assert finding.measured == "outputs differ by up to 646 times what is allowed"
    assert finding.bound == "default relative tolerance 0.01 %"
    assert finding.distance == ""


def test_a_change_without_an_interval_shows_none(tmp_path: Path) -> None:
    first = compared(verdict="INCONCLUSIVE", low=0.0, high=None, lacking="needs 3 rounds, had 1")
    (item,) = read_lines(tmp_path, [{**upgrade(), "comparisons": [first]}]).items
    (finding,) = findings_of(item)
    assert finding.measured == "264 µs → 285 µs, ×1.079"
    assert finding.reason == "needs 3 rounds, had 1"


@pytest.mark.parametrize(("ratio", "shown"), [(1.4, ["load time"]), (1.02, [])])
def test_an_open_guard_of_an_upgrade_that_passed_is_one_where_it_looks_worse(
    tmp_path: Path, ratio: float, shown: list[str]
) -> None:
    guard = compared(
        quantity="load_time", gate=False, verdict="INCONCLUSIVE", a=0.1, b=0.1 * ratio, ratio=ratio
    )
    line = {**upgrade(), "verdict": "PASSED", "comparisons": [compared(verdict="PASSED"), guard]}
    (item,) = read_lines(tmp_path, [line]).items
    assert [finding.quantity for finding in findings_of(item)] == shown
