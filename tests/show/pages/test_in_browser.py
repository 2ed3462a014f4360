"""The report in a real browser: narrow and wide, light and dark, without scripts, under Jenkins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.show.pages.report import write_report
from tests.support.browser import (
    JENKINS_POLICY,
    check_accessibility,
    open_browser,
    overflow,
    serve_folder,
)
from tests.support.histories import item_line
from tests.support.report_runs import every_verdict, hostile, read_lines

pytestmark = pytest.mark.slow


def measured_items(folder: Path) -> list[dict[str, Any]]:
    """Return failing items of several batch sizes with their raw samples."""
    rng = np.random.default_rng(3)
    folder.mkdir()
    lines = []
    for batch in (1, 8, 64):
        start = np.arange(500.0)
        end = start + 1e-4 * batch * np.exp(rng.normal(0, 0.2, 500))
        name = f"samples-{batch}.npz"
        np.savez(folder / name, start=start, end=end)
        line = item_line(1, 0, batch, batch_size=batch, verdict="FAILED")
        line["nodeid"] += str(batch)
        line["artifacts"] = {name: name}
        line["limits"] = [
            {"quantity": "latency_p50", "max": 1e-9, "place": "m.yaml:8", "verdict": "FAILED"}
        ]
        lines.append(line)
    return lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a report of every verdict, with charts and with names of strangers."""
    made = tmp_path_factory.mktemp("report")
    items = [*every_verdict(), *measured_items(made / "run")]
    baseline = read_lines(made / "before", every_verdict()[:4])
    write_report(made / "report.html", [read_lines(made / "run", items)], baseline)
    write_report(made / "hostile.html", [read_lines(made / "strangers", hostile())])
    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_screen_and_axe_finds_nothing_serious(
    browser: Any, folder: Path, width: int, scheme: str
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    for name in ("report.html", "hostile.html"):
        page = context.new_page()
        page.goto((folder / name).as_uri())
        assert overflow(page) == 0, name
        page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
        assert overflow(page) == 0, name
        for table in page.locator(".scroll").all() if width == 400 else ():
            assert table.evaluate("one => one.scrollWidth <= one.clientWidth"), name
        check_accessibility(page)
    context.close()


def test_the_colours_are_those_of_the_scheme(browser: Any, folder: Path) -> None:
    found = []
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto((folder / "report.html").as_uri())
        fill = "getComputedStyle(document.querySelector('svg text')).fill"
        ground = "getComputedStyle(document.body).backgroundColor"
        found.append((page.evaluate(fill), page.evaluate(ground)))
        page.close()
    assert found[0] != found[1]


@pytest.mark.parametrize("width", [400, 1280])
def test_under_the_policy_of_jenkins_it_is_readable_without_styles(
    browser: Any, folder: Path, width: int
) -> None:
    with serve_folder(folder, {"Content-Security-Policy": JENKINS_POLICY}) as address:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark", java_script_enabled=False
        )
        page = context.new_page()
        refused: list[str] = []
        page.on("console", lambda message: refused.append(message.text))
        page.goto(f"{address}/report.html")
        assert page.locator("h1").inner_text()
        assert page.locator("article").first.is_visible()
        assert page.locator("svg").first.is_visible()
        assert any("style" in text for text in refused)
        for picture in page.locator("article svg").all():
            box = picture.bounding_box()
            assert 0 < box["x"] + box["width"] <= width
        fills = page.locator("svg text").evaluate_all(
            "all => all.map(one => getComputedStyle(one).fill)"
        )
        assert "rgb(0, 0, 0)" not in fills
        context.close()


def test_nothing_of_a_hostile_run_is_run(browser: Any, folder: Path) -> None:
    page = browser.new_page()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((folder / "hostile.html").as_uri())
    assert page.locator("script").count() == 0
    assert dialogs == []
    assert requests == [(folder / "hostile.html").as_uri()]
    page.close()


def test_details_open_without_scripts(browser: Any, folder: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((folder / "report.html").as_uri())
    inner = page.locator("details.row dl").first
    assert not inner.is_visible()
    page.locator("details.row summary").first.click()
    assert inner.is_visible()
    context.close()
