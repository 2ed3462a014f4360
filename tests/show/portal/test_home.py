"""The portal's first page and its search, against a made history."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.changes import read_changes, set_cause
from pytest_mlms.keep.history.store import open_history
from tests.support.browser import check_accessibility, open_browser, overflow
from tests.support.histories import (
    SLOWER_FROM,
    add_slower_runs,
    item_line,
    run_lines,
    run_name,
    write_lines,
    write_run,
)
from tests.support.portals import Portal, serving
from tests.support.report_runs import HEAD
from tests.support.result_lines import upgrade, with_versions

NIGHTS = 24
GATE = run_name(NIGHTS)
FAILED: dict[str, Any] = {
    "verdict": "FAILED",
    "limits": [{"quantity": "latency_p50", "max": 1e-9, "place": "m:8"}],
}


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    """A portal of a model that became slower, as the gate confirmed in the last run."""
    results = tmp_path_factory.mktemp("home") / "results"
    address = str(results.parent / "history.sqlite")
    add_slower_runs(address, results, NIGHTS)
    write_gate(results)
    history = open_history(address)
    add_run(history, results / GATE)
    for change in read_changes(history):
        set_cause(history, change.id, "software", GATE)
    history.dispose()
    with serving(results, f"--history={address}", token=None) as made:
        yield made


def write_gate(results: Path) -> None:
    """Write the run of the gate, whose stacks have names that no other run has."""
    head, end = run_lines(NIGHTS, items=0)
    line = {**item_line(NIGHTS), **upgrade(), "run": GATE, "against": {"name": "before"}}
    line["stack"] = {**item_line(NIGHTS)["stack"], "name": "after"}
    line["manifest"] = item_line(NIGHTS)["manifest"]
    line["machine"] = item_line(NIGHTS)["machine"]
    write_lines(results / GATE, [head, line, end])


def text_of(portal: Portal, path: str) -> str:
    page = portal.get(path)
    assert page.status == 200, page.text
    body = page.text.partition("<main")[2]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def test_what_got_worse_is_told_with_its_size_versions_date_and_confirmation(
    portal: Portal,
) -> None:
    looks = text_of(portal, "/").partition("Look at these first")[2].partition("Each model")[0]
    assert "REGRESSED model-0: latency p50, onnxruntime-cpu-b64-offline" in looks
    assert "onnxruntime 1.32.0 → 1.33.0" in looks
    assert re.search(r"\+(9.\d|10|11) % \(\+\S+ % to \+\S+ %\) 65\d µs → 7[12]\d µs", looks)
    assert "confirmed by the gate" in looks
    assert "model-1" not in looks
    page = portal.get("/").text
    assert f'href="/runs/{GATE}">confirmed by the gate' in page
    assert f'<time datetime="2026-01-{SLOWER_FROM + 1}T02:00:00' in page
    assert len(set(re.findall(r'since <time datetime="([^"]*)"', page))) == 1
    assert f'title="2026-01-{SLOWER_FROM + 1} 02:00:00 UTC"' in page


def test_each_model_has_its_newest_verdict_and_trend_on_each_stack(portal: Portal) -> None:
    page = portal.get("/").text
    matrix = page.partition('<table class="matrix">')[2].partition("</table>")[0]
    assert matrix.count('<th scope="row">') == 2
    assert matrix.count("PASSED") == 2
    assert matrix.count('class="spark"') == 2
    assert re.findall(r'<th scope="col">(\w+) <small>([\d.]*)', matrix) == [
        ("onnxruntime", "1.33.0")
    ]


def test_a_run_of_the_gate_is_marked_and_is_no_stack_of_the_matrix(portal: Portal) -> None:
    for path in ("/", "/runs"):
        assert f"{GATE} confirmation of a change of model-0" in text_of(portal, path)
    assert "after" not in text_of(portal, "/").partition("Each model")[2].partition("Runs")[0]
    assert "The gate's confirmation of a change of model-0" in text_of(portal, f"/runs/{GATE}")
    assert "confirmation" not in text_of(portal, f"/runs/{run_name(3)}")


def test_changes_and_series_have_value_change_versions_and_cause_in_the_row(
    portal: Portal,
) -> None:
    changes = text_of(portal, "/changes")
    assert "model-0: latency p50 performance onnxruntime-cpu-b64-offline on " in changes
    assert "onnxruntime 1.32.0 → 1.33.0, mpmath none → 1, numpy 2.4.6 → 2.5.0" in changes
    assert "software, confirmed by a run of the gate" in changes
    assert re.search(r"\d µs → \d", changes)
    series = portal.get("/series?contains=latency_p50").text
    assert series.count('class="spark"') == 2
    rows = text_of(portal, "/series?contains=latency_p50")
    assert re.search(r"model-0: latency p50 .* µs \(.*confirmed by a run of the gate", rows)
    assert "to the median before" in rows.partition("model-1")[2]
    number = portal.get("/api/v1/series?contains=latency_p50").json["series"][0]["id"]
    one = text_of(portal, f"/series/{number}")
    assert re.search(r"\+\S+ %.* µs → .* µs since .* with onnxruntime 1.32.0 → 1.33.0", one)


def test_an_item_has_the_trend_of_its_series(portal: Portal) -> None:
    slower = text_of(portal, f"/runs/{run_name(NIGHTS - 1)}/items/1")
    assert re.search(r"latency p50 of the last runs \+\S+ %.* since .* confirmed by a run", slower)
    alike = portal.get(f"/runs/{run_name(NIGHTS - 1)}/items/2").text
    assert re.search(r'<a href="/series/\d+">latency p50 of the last runs</a>', alike)
    assert "to the median before" in alike


def test_the_api_has_the_changes_of_the_page(portal: Portal) -> None:
    changes = portal.get("/api/v1/changes").json["changes"]
    assert {change["confirmed_by"] for change in changes} == {GATE}
    assert {change["model"] for change in changes} == {"model-0"}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("model-1", "Models model-1"),
        ("MODEL-1 latency_p50", "Series model-1: latency p50"),
        ("onnxruntime b64", "Newest cases model-0: performance onnxruntime-cpu-b64-offline"),
        (run_name(7), f"Runs {run_name(7)}"),
        ("vm", "Hosts vm"),
    ],
)
def test_the_search_finds_models_cases_runs_hosts_and_series(
    portal: Portal, query: str, found: str
) -> None:
    assert found in text_of(portal, f"/search?q={query.replace(' ', '+')}")


@pytest.mark.parametrize("query", ["nothing-of-this-name", "%", "'", "model-0 model-1"])
def test_what_is_not_there_is_not_found(portal: Portal, query: str) -> None:
    found = text_of(portal, f"/search?q={query.replace('%', '%25').replace(' ', '+')}")
    assert "Nothing has all of these words" in found


def test_a_search_is_escaped_and_bounded(portal: Portal) -> None:
    page = portal.get("/search?q=%3Cscript%3E" + "a+" * 5000)
    assert page.status in (200, 414)
    assert "<script>a" not in page.text
    assert len(page.text) < 20_000


def test_a_later_run_of_a_part_hides_no_failure(tmp_path: Path) -> None:
    write_run(tmp_path, 0, items=1, **FAILED)
    head, end = run_lines(1, items=0)
    other = item_line(1, case="onnxruntime-cpu-b1")
    other["nodeid"] = "model-0.yaml::test_performance[onnxruntime-cpu-b1]"
    write_lines(tmp_path / run_name(1), [head, other, end])
    with serving(tmp_path, token=None) as portal:
        page = text_of(portal, "/")
        assert "1 failed , 1 passed" in page
        assert "✗ FAILED 1 of 2" in page
        write_run(tmp_path, 2, items=1)
        write_run(tmp_path, 2, items=1)
        fixed = wait_for(portal, "2 passed")
        assert "Nothing needs a look" in fixed


def wait_for(portal: Portal, text: str) -> str:
    """Return the first page once it has a text: the portal reads its folder each second."""
    for _ in range(100):
        page = text_of(portal, "/")
        if text in page:
            return page
        time.sleep(0.1)
    raise AssertionError(page)


def test_a_failure_stands_where_its_case_is_skipped_or_a_clock_is_ahead(tmp_path: Path) -> None:
    write_run(tmp_path, 0, **FAILED)
    write_run(tmp_path, 1, verdict="SKIPPED")
    write_run(tmp_path, 365 * 80)
    with serving(tmp_path, token=None) as portal:
        page = text_of(portal, "/")
        assert "1 failed , 1 passed" in page
        assert "Nothing needs a look" not in page


def test_a_clock_that_was_set_back_hides_no_failure_that_came_later(tmp_path: Path) -> None:
    write_run(tmp_path, 50)
    with serving(tmp_path, token=None) as portal:
        assert "Nothing needs a look" in text_of(portal, "/")
        write_run(tmp_path, 3, **FAILED)  # 47 days behind
        page = wait_for(portal, "1 failed")
        assert "✗ FAILED 1 of 2" in page
        assert "1 case has another newest result by its time" in page
        write_run(tmp_path, 51)
        assert "1 passed" in wait_for(portal, "Nothing needs a look")


def test_runs_have_what_started_them_and_how_long_they_took(tmp_path: Path) -> None:
    head, item, end = run_lines(0)
    job = {"service": "GitHub Actions", "url": "https://ci.example/7", "event": "schedule"}
    first = {**head, "ci": job, "began": "2026-01-01T01:59:30.000+00:00"}
    later = {**head, "ci": None, "began": "2026-01-03T01:00:00.000+00:00"}
    end["time"] = "2026-01-03T01:40:10.000+00:00"
    write_lines(tmp_path / run_name(0), [first, item, later, item, end])
    head, item, end = run_lines(4)
    write_lines(tmp_path / run_name(4), [{**head, "ci": {**job, "url": "javascript:a"}}, item])
    with serving(tmp_path, token=None) as portal:
        for path in ("/", "/runs"):
            page = text_of(portal, path)
            assert re.search(rf"{run_name(4)} schedule \S.* not ended", page)
            assert re.search(rf"{run_name(0)} schedule \S.* 1 PASSED 41 min", page)
        assert "Started by schedule Took 41 min" in text_of(portal, f"/runs/{run_name(0)}")
        assert "javascript" not in portal.get(f"/runs/{run_name(4)}").text
        row = portal.get("/api/v1/runs").json["runs"][1]
    assert (row["started_by"], row["seconds"]) == ("schedule", 2440.0)


def test_a_later_run_of_another_version_hides_no_failure_of_an_upgrade(tmp_path: Path) -> None:
    write_run(tmp_path, 0, versions={"onnxruntime": "1.32.0"}, **FAILED)
    write_run(tmp_path, 2, versions={"onnxruntime": "1.31.1"})
    head, end = run_lines(1, items=0)
    passed = with_versions({**item_line(1), **upgrade(), "verdict": "PASSED"}, "1.31.1", "1.32.0")
    for field in ("run", "time", "manifest", "stack", "machine"):
        passed[field] = item_line(1)[field]
    write_lines(tmp_path / run_name(1), [head, passed, end])
    with serving(tmp_path, token=None) as portal:
        page = text_of(portal, "/")
    assert "Not known for onnxruntime 1.32.0" in page
    assert "of its other items, 1 failed" in page


def test_a_run_that_was_killed_is_told_and_calls_nothing_fine(tmp_path: Path) -> None:
    write_run(tmp_path, 0)
    head, _ = run_lines(1, items=0)
    write_lines(tmp_path / run_name(1), [head])
    with serving(tmp_path, token=None) as portal:
        page = text_of(portal, "/")
    assert f"Not all is seen here: the run {run_name(1)} is not whole" in page
    assert "Nothing needs a look" not in page


def test_a_failure_on_one_kind_of_machine_is_not_hidden_by_another(tmp_path: Path) -> None:
    write_run(tmp_path, 0, **FAILED)
    large = {**item_line(0)["machine"], "memory": 2**40, "host": "large"}
    write_run(tmp_path, 1, machine=large)
    with serving(tmp_path, token=None) as portal:
        assert "1 failed , 1 passed" in text_of(portal, "/")


def test_it_is_told_since_when_a_case_fails(tmp_path: Path) -> None:
    for night, fields in enumerate(({}, FAILED, {}, FAILED, FAILED)):
        head, *others = run_lines(night, **fields)
        began = head["time"].replace("T02:00", "T01:30")  # as changes are dated
        write_lines(tmp_path / run_name(night), [{**head, "began": began}, *others])
    with serving(tmp_path, token=None) as portal:
        looks = portal.get("/").text.partition("Look at these")[2].partition("Each model")[0]
    (since,) = re.findall(r'since <time datetime="([^"]*)"', looks)
    assert since.startswith("2026-01-04T01:30")


def test_a_history_that_can_not_be_read_leaves_verdicts_and_runs(tmp_path: Path) -> None:
    write_run(tmp_path / "results", 0)
    (tmp_path / "history.sqlite").write_bytes(b"no database" * 100)
    with serving(
        tmp_path / "results", f"--history={tmp_path / 'history.sqlite'}", token=None
    ) as portal:
        page = text_of(portal, "/")
        assert "✓ PASSED" in page
        assert "The history can't be read now" in page
        assert "Nothing needs a look" not in page
        assert "no change for the worse" not in page.partition("of what was read")[0]
        assert text_of(portal, "/runs")
        assert "the history can't be read" in text_of(portal, "/search?q=model")


def test_many_models_and_stacks_are_bounded_and_the_worst_are_shown(tmp_path: Path) -> None:
    head, end = run_lines(0, items=0)
    items = [on_stack(number, f"stack-{number % 20}") for number in range(100)]
    items[77].update(FAILED)
    write_lines(tmp_path / run_name(0), [head, *items, end])
    with serving(tmp_path, token=None) as portal:
        page = text_of(portal, "/")
        matrix = page.partition("Each model")[2].partition("Without room")[0]
        assert matrix.index("model-77") < matrix.index("model-0")
        assert "Without room here: 70 models and 8 stacks" in page


def on_stack(number: int, name: str) -> dict[str, Any]:
    line = item_line(0, number)
    line["stack"]["name"] = name
    return line


def test_lines_of_strangers_leave_the_first_page(tmp_path: Path) -> None:
    broken: list[dict[str, Any]] = [
        {"verdict": "WORST"},
        {"machine": {"host": "h", "cpu": 7, "gpus": "many"}},
        {"manifest": {"name": "m"}, "stack": 3},
        {"estimates": 7, "verdict": "FAILED"},
        {"time": "tomorrow"},
        {"rounds": [{"sides": 5}], "kind": "upgrade"},
    ]
    for number, fields in enumerate(broken):
        write_run(tmp_path, number, **fields)
    lines = [{**HEAD, "type": "run"}, {**HEAD, "type": "item", "verdict": "FAILED"}]
    write_lines(tmp_path / str(HEAD["run"]), lines)
    with serving(tmp_path, token=None) as portal:
        assert "Runs" in text_of(portal, "/")
        assert text_of(portal, "/search?q=m")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_it_fits_the_screen_and_asks_nobody_else(portal: Portal, width: int, scheme: str) -> None:
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        for path in ("", "search?q=model", "series", "changes", "runs"):
            page.goto(portal.url + path)
            assert overflow(page) <= 0, path
            cut = page.eval_on_selector_all(
                ".attention *, .matrix td *, .sortable td, .sortable td *",
                f"all => all.filter(one => one.getBoundingClientRect().right > {width})"
                ".map(one => one.outerHTML)",
            )
            assert cut == [], path
            tables = page.eval_on_selector_all(
                ".scroll", "all => all.filter(one => one.scrollWidth > one.clientWidth).length"
            )
            assert tables == 0, path
            check_accessibility(page)
        assert {url for url in asked if not url.startswith((portal.url, "data:"))} == set()


@pytest.mark.slow
def test_the_search_of_the_header_needs_no_script(portal: Portal) -> None:
    with open_browser() as browser:
        context = browser.new_context(java_script_enabled=False)
        page = context.new_page()
        page.goto(portal.url)
        page.get_by_label("Search the whole bench").fill("model-1")
        page.get_by_role("button", name="Search").click()
        page.wait_for_url("**/search?q=model-1")
        assert "Models" in page.locator("main").inner_text()
        context.close()
