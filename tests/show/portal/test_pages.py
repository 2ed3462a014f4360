"""Pages of a real portal: what they show, with names of strangers, and in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote, urldefrag

import pytest

from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.store import open_history
from pytest_mlms.show.pages.numbers import estimate_text
from pytest_mlms.show.pages.run import read_run
from tests.support.browser import check_accessibility, open_browser, overflow
from tests.support.histories import item_line, run_lines, run_name, write_lines, write_run
from tests.support.portals import TOKEN, Portal, serving
from tests.support.project import HANG_GUARD, copy_digits
from tests.support.report_runs import HEAD, hostile
from tests.support.report_runs import write_lines as write_items
from tests.support.result_lines import line_of, traced, upgrade

HOSTILE = "<script>alert(1)</script>\"'><svg onload=alert(2)>&amp;{{7*7}}"
HREFS = "all => all.map(one => new URL(one.getAttribute('href'), document.baseURI).href)"
OWNED = "alert('owned')"
PAYLOADS = [
    f"<script>{OWNED}</script>\"'><svg onload={OWNED}>",
    f"\" autofocus onfocus={OWNED} x=\"' onmouseover={OWNED} y='",
    f"</style></title></textarea></script><img src=x onerror={OWNED}>",
    f"javascript:{OWNED}//",
    f"]]>--><!--{{{{7*7}}}}${{{OWNED}}}<iframe srcdoc='<script>parent.{OWNED}</script>'>",
]
NUMBER = 1  # of the line of the first item


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three runs, the last of which is of a stranger."""
    folder = tmp_path_factory.mktemp("portal") / "results"
    history = open_history(folder.parent / "history.sqlite")
    for number in range(3):
        run = folder / run_name(number)
        write_lines(run, hostile_lines() if number == 2 else list(run_lines(number, items=2)))
        add_run(history, run)
    history.dispose()
    return folder


def hostile_lines(text: str = HOSTILE) -> list[dict[str, Any]]:
    """Return lines whose every name holds HTML, SVG, script, and a template."""
    lines = list(run_lines(2))
    line = item_line(2)
    line.update(verdict="FAILED", message=text, framework=text, device=text, case=text)
    line["nodeid"] = f"m.yaml::test_performance[{text}]"
    line["manifest"] = {"path": text, "name": text, "version": text}
    line["stack"]["name"] = text
    line["machine"]["host"] = text
    line["versions"] = {text: text}
    line["artifacts"] = {text: f"items/{text}"}
    line["limits"] = [{"quantity": text, "max": 1.0, "place": text, "verdict": "FAILED"}]
    line["framework"] = text
    line["trace"] = traced()["trace"]
    line["trace"]["cost"].update(counter=text, unknown=[text])
    line["trace"]["cost"]["types"][0]["type"] = text
    lines[0]["command"] = [text]
    lines[1] = line
    return lines


@pytest.fixture(scope="module")
def portal(results: Path) -> Iterator[Portal]:
    manifests = results.parent / "manifests"
    copy_digits(manifests)
    history = f"--history={results.parent / 'history.sqlite'}"
    allowed = ("--allow-run", "--allow-predict")
    with serving(results, history, *allowed, f"--manifests={manifests}") as made:
        yield made


def item_path(run: int) -> str:
    return f"/runs/{run_name(run)}/items/{NUMBER}"


def links(text: str) -> list[str]:
    """Return the links of a page to pages of the portal."""
    found = [unescape(link) for link in re.findall(r'href="([^"]*)"', text)]
    return [link for link in found if link.startswith("/") and not link.startswith("/static")]


def test_every_page_that_is_linked_is_there_and_escapes_all_names(portal: Portal) -> None:
    waiting = ["/", "/search?q=a"]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        answer = portal.get(path)
        # The files of the stranger's run are named, but aren't there.
        assert answer.status == 200 or "/artifacts/" in path, path
        if not answer.headers.get("Content-Type", "").startswith("text/html"):
            continue
        assert "<script>alert" not in answer.text, path
        assert "<svg onload" not in answer.text, path
        assert "&amp;amp;49" not in answer.text, "a name was taken for a template"
        new = set(links(answer.text)) - seen
        seen |= new
        waiting += sorted(new)
    for part in ("/models/", "/hosts/", "/stacks/", "/series/", "/items/", "/artifacts/"):
        assert any(part in path for path in seen), part


def test_a_page_its_json_and_the_view_show_the_same_numbers(portal: Portal, results: Path) -> None:
    item = read_run(results / run_name(0)).items[0]
    page = unescape(portal.get(item_path(0)).text)
    plain = portal.get(f"/api/v1{item_path(0)}").json
    for name, estimate in item.estimates.items():
        assert estimate_text(estimate) in page
        assert plain["estimates"][name]["value"] == estimate.value
        assert plain["estimates"][name]["low"] == estimate.low
    assert item.verdict.value in page
    assert plain["verdict"] == item.verdict.value


def test_models_are_chosen_by_task_framework_and_licence(portal: Portal) -> None:
    assert "digits-cnn" in portal.get("/models?task=image-classification").text
    assert "digits-cnn" not in portal.get("/models?framework=pytorch").text
    assert "model-0" in portal.get("/models?framework=onnxruntime").text
    assert "There is no such model" in portal.get("/models?license=none").text


def test_items_are_compared_side_by_side(portal: Portal, results: Path) -> None:
    both = "&".join(f"item={run_name(run)}:{NUMBER}" for run in (0, 1))
    page = portal.get(f"/compare?{both}").text
    assert page.count('scope="row">latency p50') == 1
    assert estimate_text(read_run(results / run_name(0)).items[0].estimates["latency_p50"]) in page
    assert portal.get(f"/compare?item={run_name(0)}:{NUMBER}").status == 400
    nine = portal.get("/compare?" + "&".join([f"item={run_name(0)}:{NUMBER}"] * 9))
    assert nine.status == 400
    assert "choose 2 to 8 items" in nine.text
    assert portal.get("/compare?item=../x:1&item=y:2").status == 404


def test_upgrades_and_own_quantities_are_compared_too(tmp_path: Path) -> None:
    own = {"words": {"value": 12.5, "unit": "", "better": "higher"}}
    lines = [{**HEAD, "type": "run"}]
    for item in (upgrade(), line_of(quantities=own)):
        lines.append({**HEAD, "type": "item", **item, "against": {"name": "old"}})
    write_lines(tmp_path / str(HEAD["run"]), lines)
    with serving(tmp_path, token=None) as portal:
        page = portal.get(f"/compare?item={HEAD['run']}:1&item={HEAD['run']}:2").text
    page = re.sub(r"<td[^>]*>", "<td>", page)
    assert '<th scope="row">latency, B / A</th><td>×1.079 (1.071 to 1.088)</td><td></td>' in page
    assert '<th scope="row">words</th><td></td><td>12.5</td>' in page


@pytest.fixture
def moved(tmp_path: Path) -> Iterator[Portal]:
    """A portal of two runs: a host gets another version of a framework, and traces a model."""
    write_fleet(tmp_path)
    with serving(tmp_path, token=None) as made:
        yield made


def write_fleet(folder: Path) -> None:
    """Write what two hosts measured, one of which got another version between two runs."""
    for number, version in enumerate(("1.30.0", "1.31.0")):
        time = f"2026-11-0{number + 1}T10:00:00.000+00:00"
        head = {**HEAD, "run": run_name(number), "time": time}
        items = [on_host("one", line_of(1), version), on_host("one", traced(), version)]
        items.append(on_host("one", traced(case="b8", batch_size=8), version))
        if number:
            items.append(on_host("two", both_sides(), version))
        lines = [{**head, "type": "run"}, *({**head, "type": "item", **item} for item in items)]
        write_lines(folder / run_name(number), lines)


def on_host(host: str, line: dict[str, Any], version: str) -> dict[str, Any]:
    return {**line, "machine": {"host": host}, "versions": {"onnxruntime": version}}


def both_sides() -> dict[str, Any]:
    """Return an upgrade whose rounds name the software of both sides."""
    sides = {side: {"versions": {"onnxruntime": f"2.{side}"}, "python": "3"} for side in "ab"}
    return {**upgrade(), "against": {"name": "old"}, "rounds": [{"figures": {}, "sides": sides}]}


def cells_of(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading, row by row."""
    table = page.partition(f">{heading}</h2>")[2].partition("</table>")[0]
    table = re.sub(r'<time [^>]*title="([^"]*)">[^<]*</time>', r"\1", table)
    rows = re.findall(r"<tr>(<td.*?)</tr>", table)
    return [re.findall(r">([^<>]+)</", row) for row in rows]


def test_a_host_shows_the_stacks_and_versions_that_it_had(moved: Portal) -> None:
    page = moved.get("/hosts/one").text
    first, second = "2026-11-01 10:00:00 UTC", "2026-11-02 10:00:00 UTC"
    assert cells_of(page, "Stacks and versions") == [
        ["here", "onnxruntime", "1.31.0", "3", second, second],
        ["here", "onnxruntime", "1.30.0", "3", first, first],
    ]
    assert moved.get("/hosts/nobody").status == 404


def test_both_sides_of_an_upgrade_are_software_of_their_host(moved: Portal) -> None:
    software = moved.get("/api/v1/hosts/two").json["software"]
    assert {(row["stack"], row["version"]) for row in software} == {("here", "2.b"), ("old", "2.a")}
    assert moved.get("/api/v1/hosts/nobody").status == 404


def test_a_stack_shows_the_hosts_and_versions_that_had_it(moved: Portal) -> None:
    shown = {
        tuple(cells[:4]) for cells in cells_of(moved.get("/stacks/here").text, "Hosts and versions")
    }
    software = moved.get("/api/v1/stacks/here").json["software"]
    names = ("host", "framework", "version")
    assert shown == {(*(row[name] for name in names), str(row["items"])) for row in software}
    assert {(row["host"], row["version"]) for row in software} == {
        ("one", "1.30.0"),
        ("one", "1.31.0"),
        ("two", "2.b"),
    }


def test_a_model_shows_the_structure_and_cost_that_its_last_trace_recorded(moved: Portal) -> None:
    page = moved.get("/models/digits").text
    (structure,) = moved.get("/api/v1/models/digits").json["structures"]
    assert structure["cost"] == traced()["trace"]["cost"]
    assert structure["time"].startswith("2026-11-02")
    assert structure["batch_size"] == 1
    shown = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page)
    assert ("Multiply-accumulates", "4.09 G") in shown
    assert ("Parameters", "25.5 M") in shown
    assert cells_of(page, "Structure and cost")[0] == [
        "Conv",
        "2",
        "23.5 M",
        "4.08 G",
        "89.6 MiB",
        "39.1 MiB",
    ]
    assert "The sums leave out what is unknown of Loop." in page
    assert moved.get("/api/v1/models/nothing").status == 404


def test_a_model_without_a_trace_says_how_to_get_its_structure(portal: Portal) -> None:
    assert "pytest --mlms-trace=layer" in portal.get("/models/model-0").text
    assert portal.get("/api/v1/models/model-0").json == {"name": "model-0", "structures": []}


def test_lists_are_paged(portal: Portal) -> None:
    first = portal.get("/api/v1/runs?limit=2").json
    second = portal.get("/api/v1/runs?limit=2&offset=2").json
    assert (len(first["runs"]), len(second["runs"]), first["total"]) == (2, 1, 3)
    assert portal.get("/api/v1/runs?limit=0").status == 422
    assert portal.get("/api/v1/runs?offset=-1").status == 422


def test_a_page_after_the_last_says_how_many_there_are(portal: Portal) -> None:
    page = portal.get("/runs?offset=50").text
    assert "There are 3 runs, and none after the first 50" in page
    assert "no run yet" not in page


def test_cells_with_units_are_sorted_by_their_values(portal: Portal, results: Path) -> None:
    (item, *_) = read_run(results / run_name(0)).items
    assert f'data-value="{item.headline_order}"' in portal.get(f"/runs/{run_name(0)}").text
    slower = replace(item.estimates["latency_p50"], value=1.0)
    other = replace(item, estimates={**item.estimates, "latency_p50": slower})
    assert item.headline_order < other.headline_order


def test_the_interface_describes_itself(portal: Portal) -> None:
    paths = portal.get("/api/v1/openapi.json").json["paths"]
    assert {"/api/v1/runs", "/api/v1/series/{number}/points"} <= set(paths)
    assert not any(path.startswith("/login") for path in paths)


def test_the_history_of_the_folder_of_results_is_found(tmp_path: Path) -> None:
    run = tmp_path / run_name(0)
    write_lines(run, list(run_lines(0)))
    history = open_history(tmp_path / "history.sqlite")
    add_run(history, run)
    history.dispose()
    with serving(tmp_path) as portal:
        found = portal.get("/api/v1/series").json
        assert found["total"] == 9
        page = portal.get(f"/series/{found['series'][0]['id']}").text
        assert re.search(r'<svg [^>]*aria-label="[^"]+ over 1 run; last [^"]+"', page)
        assert portal.get("/series/999").status == 404


def test_a_portal_of_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    with serving(tmp_path) as portal:
        for path in ("/", "/runs", "/models"):
            page = portal.get(path).text
            assert "There is no run yet" in page
            assert "pytest --mlms-manifests=DIR" in page
            assert "--mlms-push=URL" in page
        assert "Start it with --history" in portal.get("/series").text
        for path in ("/models", "/hosts", "/stacks", "/changes"):
            assert portal.get(path).status == 200
        detail = "this portal has no history; start it with --history"
        assert portal.get("/api/v1/series").json == {"detail": detail}


@pytest.mark.slow
@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_pages_fit_and_can_be_used_by_all(
    portal: Portal, width: int, scheme: str, scripts: bool
) -> None:
    series = portal.get("/api/v1/series?contains=model-0").json["series"][0]["id"]
    both = "&".join(f"item={run_name(run)}:{NUMBER}" for run in (0, 1))
    paths = ["", "search?q=model", f"search?q={quote(HOSTILE)}", "search"]
    paths += ["runs", f"runs/{run_name(0)}", f"runs/{run_name(2)}", item_path(0)[1:]]
    paths += ["models", "models/model-0", f"compare?{both}", "hosts", "stacks", "series"]
    paths += [f"models/{quote(HOSTILE)}", f"hosts/{quote(HOSTILE)}", "stacks/here"]
    paths += [f"series/{series}", "changes", "evaluations", "nowhere"]
    with open_browser() as browser:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            java_script_enabled=scripts,
        )
        context.set_default_timeout(1000 * HANG_GUARD)
        page = context.new_page()
        refused: list[str] = []
        page.on("console", lambda message: refused.append(message.text))
        page.goto(f"{portal.url}models")  # leads to the form, and from there back
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_url(f"{portal.url}models")
        for path in paths:
            page.goto(portal.url + path)
            assert overflow(page) <= 0, path
            if scripts:
                check_accessibility(page)
        assert not [text for text in refused if "Content Security Policy" in text]
        context.close()


@pytest.mark.slow
def test_tables_fold_in_a_narrow_window_and_none_scrolls_within_its_frame(tmp_path: Path) -> None:
    results = tmp_path / "results"
    head, *items, end = run_lines(0, items=3)
    for item, verdict in zip(items, ("PASSED", "FAILED", "ERROR"), strict=True):
        item["verdict"] = verdict
        item["machine"]["host"] = "ip-10-0-13-200.eu-central-1.compute.internal"
    items += [{**HEAD, "type": "item", **both_sides()}, {**HEAD, "type": "item", **traced()}]
    write_lines(results / run_name(0), [head, *items, end])
    run = f"runs/{run_name(0)}"
    paths = ["runs", run, "models", "models/model-0", "models/digits", "hosts", "stacks"]
    paths += [f"{run}/items/{number}" for number in range(1, 6)]
    paths.append("compare?" + "&".join(f"item={run_name(0)}:{number}" for number in (1, 2, 4)))
    with serving(results, token=None) as portal, open_browser() as browser:
        page = browser.new_page(viewport={"width": 400, "height": 700})
        for path in paths:
            page.goto(portal.url + path)
            page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
            assert overflow(page) <= 0, path
            for table in page.locator(".scroll").all():
                assert table.evaluate("one => one.scrollWidth <= one.clientWidth"), path
            edges = table.evaluate("one => getComputedStyle(one).backgroundAttachment")
            assert edges == "local, local, scroll, scroll", "a shadow at the edge that is cut"


@pytest.mark.slow
def test_values_with_units_are_sorted_as_numbers(tmp_path: Path) -> None:
    head, *_, end = run_lines(0)
    ratios = {"model-0": 20.0, "model-1": 0.5, "model-2": 3.0}  # 13 ms, 327 µs, 2 ms
    items = [item_line(0, number, ratio) for number, ratio in enumerate(ratios.values())]
    write_lines(tmp_path / run_name(0), [head, *items, end])
    with serving(tmp_path, token=None) as portal, open_browser() as browser:
        page = browser.new_page()
        page.set_default_timeout(1000 * HANG_GUARD)
        page.goto(f"{portal.url}runs/{run_name(0)}")
        page.get_by_role("button", name="result").click()
        rows = [row.inner_text() for row in page.locator("tbody tr").all()]
    order = [name for row in rows for name in ratios if name in row]
    assert order == ["model-1", "model-2", "model-0"]


@pytest.mark.slow
def test_a_table_is_sorted_and_filtered_by_the_keyboard(tmp_path: Path) -> None:
    for number in range(12):
        write_lines(tmp_path / run_name(number), list(run_lines(number)))
    with serving(tmp_path, token=None) as portal, open_browser() as browser:
        page = browser.new_page()
        page.set_default_timeout(1000 * HANG_GUARD)
        page.goto(f"{portal.url}runs")
        first = page.locator("tbody tr").first
        assert run_name(11) in first.inner_text()
        page.locator("th button").first.focus()
        page.keyboard.press("Enter")
        assert run_name(0) in first.inner_text()
        assert page.locator("th").first.get_attribute("aria-sort") == "ascending"
        page.get_by_label("Filter rows").fill(run_name(7))
        assert page.locator("tbody tr:visible").count() == 1


@pytest.mark.slow
@pytest.mark.parametrize("text", PAYLOADS)
def test_scripts_of_strangers_never_run(tmp_path: Path, text: str) -> None:
    """Nothing of a hostile run is markup: even a script that the policy stops would be told."""
    write_lines(tmp_path / run_name(2), hostile_lines(text))
    write_items(tmp_path / str(HEAD["run"]), hostile(text))
    with serving(tmp_path, token=None) as portal, open_browser() as browser:
        page = browser.new_page()
        page.set_default_timeout(1000 * HANG_GUARD)
        told: list[str] = []

        def note(dialog: Any) -> None:
            told.append(dialog.message)
            dialog.dismiss()

        page.on("dialog", note)
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        waiting, seen = [portal.url], set[str]()
        for _ in range(25):
            answer = page.goto(waiting.pop(0))
            if not answer.headers.get("content-type", "").startswith("text/html"):
                continue
            strange = page.locator("script:not([src^='/static/']), iframe, [onload], [onerror]")
            assert strange.count() == 0
            found = page.eval_on_selector_all("a[href], area[href]", HREFS)
            assert not [link for link in found if not link.startswith(("http:", "https:"))]
            inside = {urldefrag(link).url for link in found if link.startswith(portal.url)} - seen
            waiting += sorted(inside)
            seen |= inside
        assert len(seen) > 10
        assert [line for line in told if "Content Security Policy" in line or "owned" in line] == []


def test_a_run_that_can_not_be_read_leaves_the_lists_of_hosts_and_stacks(tmp_path: Path) -> None:
    write_run(tmp_path, 1, machine={"host": "sound"})
    write_run(tmp_path, 2, machine={"host": "damaged", "gpus": "many"}, estimates=7)
    with serving(tmp_path) as portal:
        for page in ("/hosts", "/hosts/damaged", "/stacks", "/stacks/here"):
            assert portal.get(page).status == 200
        assert "damaged" in portal.get("/hosts").text
