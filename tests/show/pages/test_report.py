"""The report of runs as one HTML file."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Verdict
from pytest_mlms.show.pages.report import MOST_BYTES, render_report, write_report
from tests.support.report_runs import every_verdict, hostile, many, read_lines
from tests.support.result_lines import HOSTILE, broken_limit, line_of, traced, upgrade

VOID = {"meta", "br", "link"}


class Elements(HTMLParser):
    """The elements and texts of a page; fails on one that isn't closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_report_needs_nothing_from_elsewhere_and_runs_nothing(tmp_path: Path) -> None:
    page = render_report([read_lines(tmp_path, every_verdict())])
    elements = Elements(page)
    assert not {"script", "link", "iframe", "object", "img"} & set(elements.tags)
    assert not {name for name in elements.attributes if name.startswith("on")}
    assert not {"style", "src"} & elements.attributes
    assert "url(" not in page
    assert set(re.findall(r"https?://[\w.]+", page)) <= {"http://www.w3.org"}


def test_names_of_strangers_stay_text(tmp_path: Path) -> None:
    plain = Elements(render_report([read_lines(tmp_path / "a", every_verdict())]))
    elements = Elements(render_report([read_lines(tmp_path / "b", hostile())]))
    assert set(elements.tags) == set(plain.tags)
    assert elements.attributes == plain.attributes
    assert "<script>alert(1)</script>" in elements.text


def test_a_stack_with_a_hostile_name_stays_text_in_charts(tmp_path: Path) -> None:
    lines = []
    for batch in (1, 8):
        stack = {"name": HOSTILE}
        lines.append(line_of(batch, batch_size=batch, stack=stack, scenario="offline"))
    elements = Elements(render_report([read_lines(tmp_path, lines)]))
    assert elements.tags.count("svg") >= 1
    assert "script" not in elements.tags


def test_the_worst_item_comes_first_and_passing_ones_are_folded(tmp_path: Path) -> None:
    page = render_report([read_lines(tmp_path, every_verdict())])
    shown = re.findall(
        r'<(article|details)[^>]*class="(?:item|row)[^>]*>.*?<b class="\w+">(\w+)<', page, re.S
    )
    verdicts = [verdict for _, verdict in shown]
    assert verdicts == [verdict.value for verdict in Verdict]
    folded = {verdict for element, verdict in shown if element == "details"}
    assert folded == {"XFAILED", "PASSED", "IMPROVED", "SKIPPED"}


def test_a_failure_says_what_by_how_much_against_which_limit_and_where_it_is_set(
    tmp_path: Path,
) -> None:
    text = Elements(render_report([read_lines(tmp_path, every_verdict())])).text
    words = " ".join(text.split())
    assert (
        "latency p50: 4.00 ms (3.00 ms to 5.00 ms), limit at most 1.00 ms — 4 times as much, "
        "set in models/m.yaml:88" in words
    )
    assert (
        "latency: 264 µs → 285 µs, ×1.079 (1.071 to 1.088), tolerance 3 % more — is 7.9 % more, "
        "set in models/m.yaml:95" in words
    )


def test_the_command_that_reproduces_an_item_and_its_machine_are_shown(tmp_path: Path) -> None:
    machine = {"host": "h1", "cpu": {"model": "EPYC"}, "cores": {"logical": 8}, "memory": 1 << 34}
    line = line_of(1, "FAILED", reproduce="pytest 'm.yaml::test[x]'", machine=machine)
    text = Elements(render_report([read_lines(tmp_path, [line])])).text
    assert "pytest 'm.yaml::test[x]'" in text
    assert "h1, EPYC, 8 cores, 16.0 GiB" in text


def test_a_run_that_was_killed_is_said_to_be(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = read_lines(folder, [line_of()])
    assert "was killed" not in render_report([run])
    path = folder / "results.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    from pytest_mlms.show.pages.run import read_run

    assert "was killed or still goes on" in render_report([read_run(folder)])


def test_a_large_report_leaves_out_the_least_and_says_so(tmp_path: Path) -> None:
    run = read_lines(tmp_path, many(1000, bad=2))
    page = render_report([run])
    assert len(page.encode()) <= MOST_BYTES
    assert page.count("<article") == 2
    assert "To keep this file below 1.91 MiB, 998 items are without pictures. " in page
    assert page.count("<th>value (interval)</th>") == 1000
    article = page[page.index("<article") : page.index("</article>")]
    assert "<svg" in article
    assert page.count("test_performance") + page.count("onnxruntime-cpu") >= 1000


def test_many_failing_items_keep_what_failed_and_its_command_but_not_their_messages(
    tmp_path: Path,
) -> None:
    lines = []
    for number in range(300):
        message = "\n".join(f"row {row} is wrong" for row in range(600))
        lines.append({**broken_limit(number), "message": message, "reproduce": f"pytest {number}"})
    page = render_report([read_lines(tmp_path, lines)])
    assert len(page.encode()) <= MOST_BYTES
    items = page.partition("What failed or is undecided")[2]
    assert items.count("limit at most 1.00 ms") == items.count("<article") == 300
    assert len(re.findall(r"<code>pytest \d+</code>", page)) == 300
    said = re.search(r"(\d+) of them also without tables and messages", page)
    assert said is not None
    assert page.count("Message of the test") == 300 - int(said[1])


def test_items_of_several_runs_name_their_run(tmp_path: Path) -> None:
    runs = [read_lines(tmp_path / name, [{**line_of(), "run": name}]) for name in ("r1", "r2")]
    page = render_report(runs)
    assert [page.count(f"<dt>Run</dt><dd>{run}</dd>") for run in ("r1", "r2")] == [1, 1]
    anchors = re.findall(r'id="(item-\w+)"', page)
    assert len(set(anchors)) == 2


def test_two_runs_are_compared(tmp_path: Path) -> None:
    slower = {"latency_p50": {"value": 0.008, "low": 0.007, "high": 0.009, "unit": "s"}}
    before = read_lines(tmp_path / "a", [line_of(1), line_of(2)])
    after = read_lines(tmp_path / "b", [line_of(1, estimates=slower), line_of(3, batch_size=3)])
    text = " ".join(Elements(render_report([after], before)).text.split())
    assert "On both sides: 1; changed: 1" in text
    assert "4.00 ms (3.00 ms to 5.00 ms)8.00 ms (7.00 ms to 9.00 ms)+100 %" in text


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    run = read_lines(tmp_path / "run", [line_of()])
    report = tmp_path / "report.html"
    write_report(report, [run])
    assert report.read_text().startswith("<!DOCTYPE html>")
    with pytest.raises(MlmsError, match=r"no/report\.html: the report can't be written: No such"):
        write_report(tmp_path / "no" / "report.html", [run])
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["report.html"]


def test_a_report_of_few_items_folds_none(tmp_path: Path) -> None:
    few = render_report([read_lines(tmp_path / "a", [line_of(1), line_of(2)])])
    assert len(re.findall(r'<details class="row good" id="item-\w+" open>', few)) == 2
    more = render_report([read_lines(tmp_path / "b", map(line_of, range(1, 7)))])
    assert re.search(r'<details class="row[^>]* open', more) is None


def test_an_item_that_passed_names_its_machine_where_the_run_has_several(tmp_path: Path) -> None:
    lines = [line_of(1, machine={"host": "h1"}), line_of(2, machine={"host": "h1"})]
    one = render_report([read_lines(tmp_path / "a", lines)])
    lines[1]["machine"] = {"host": "h2"}
    two = render_report([read_lines(tmp_path / "b", lines)])
    assert (one.count("<dt>Machine</dt>"), two.count("<dt>Machine</dt>")) == (1, 4)


def test_the_table_of_an_upgrade_says_what_was_asked_for_in_place_of_a_wider_tolerance(
    tmp_path: Path,
) -> None:
    line = upgrade()
    line["comparisons"][0].update(tolerance=0.0857, asked=0.05, least_change=0.6e-6)
    page = render_report([read_lines(tmp_path, [line])])
    why = "instead of 5 %: 600 ns is the least change that is judged"
    assert re.search(rf"<td[^>]*>8.57 % \({why}\)</td>", page)


def test_a_trace_shows_what_its_model_costs(tmp_path: Path) -> None:
    page = render_report([read_lines(tmp_path, [traced()])])
    text = " ".join(Elements(page).text.split())
    assert "Structure and cost Layers3 Parameters25.5 M Multiply-accumulates4.09 G" in text
    assert "Conv223.5 M4.08 G89.6 MiB39.1 MiB" in text
    assert "Counted by onnx, without running the model." in text
    without = traced()
    del without["trace"]["cost"]
    assert "Structure and cost" not in render_report([read_lines(tmp_path / "b", [without])])


def test_what_a_test_noted_under_the_name_of_another_field_is_named(tmp_path: Path) -> None:
    lines = [line_of(1, rounds=3), line_of(2, "FAILED", rounds=3)]
    page = render_report([read_lines(tmp_path, lines)])
    note = "the test noted rounds, which is a field of other items: Input should be a valid tuple"
    assert page.count(f'<p class="warn">{note}</p>') == 2
