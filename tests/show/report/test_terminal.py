"""Tables of results in the terminal."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_mlms.core.serialization import to_plain
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.report.reporter import _shown
from pytest_mlms.show.report.terminal import original_lines, write_tables
from tests.support.project import DIGITS, HANG_GUARD, Project
from tests.support.upgrades import alike, changed, result_of
from tests.support.views import view_of, views_of


class FakeTerminal:
    """A terminal that keeps its lines, and how each is marked up."""

    def __init__(self, width: int) -> None:
        self._tw = SimpleNamespace(fullwidth=width)
        self.lines: list[str] = []
        self.markup: dict[str, Any] = {}

    def write_line(self, line: str, **markup: bool) -> None:
        self.lines.append(line)
        self.markup[line] = markup

    def write_sep(self, separator: str, title: str) -> None:
        self.lines.append(f"[{title}]")


def written(results: Sequence[dict[str, Any]], width: int = 80) -> FakeTerminal:
    terminal = FakeTerminal(width)
    write_tables(cast(pytest.TerminalReporter, terminal), views_of(results))
    return terminal


def limited(quantity: str, verdict: str) -> dict[str, Any]:
    return {"quantity": quantity, "verdict": verdict}


def performance(verdict: str = "PASSED", **fields: Any) -> dict[str, Any]:
    """Return the line of a performance item."""
    seconds = {"value": 0.001, "low": 0.0009, "high": 0.0011, "unit": "s", "lacking": ""}
    estimates = {"latency_p50": seconds, "load_time": seconds}
    line = {
        "nodeid": "m.yaml::test_performance[here-cpu-b8]",
        "kind": "performance",
        "verdict": verdict,
        "manifest": {"name": "digits"},
        "case": "here-cpu-b8",
        "margin": 0.5,
        "estimates": estimates,
        "limits": [limited(name, verdict) for name in estimates],
        "processes": [{"steady": True}],
    }
    return {**line, **fields}


def upgrade(value: float, baseline: str = "old", **fields: Any) -> dict[str, Any]:
    """Return the line of an upgrade whose latency changed by exp(value)."""
    made = result_of(alike(value))
    line = {
        "nodeid": "m.yaml::test_upgrade[new-vs-old-cpu-b8]",
        "kind": "upgrade",
        "verdict": made.verdict.value,
        "manifest": {"name": "digits"},
        "case": "new-vs-old-cpu-b8",
        "stack": {"name": "new"},
        "against": {"name": baseline},
        "framework": "mxnet",
        "device": "cpu",
        "batch_size": 8,
        **to_plain(made),
    }
    return {**line, **fields}


def test_a_table_is_written_for_each_kind_of_item() -> None:
    lines = written([performance()]).lines
    assert lines[0] == "[mlms: latency and throughput, worst first]"
    assert lines[1].split() == ["verdict", "model", "case", "p50", "p90", "p99", "throughput"]
    assert lines[2].split()[:5] == ["PASSED", "digits", "here-cpu-b8", "1.00", "ms"]
    assert lines[3] == "[mlms: start-up and memory, worst first]"


def test_columns_of_gpus_are_there_where_an_item_has_them() -> None:
    on_gpu = performance(case="here-cuda-b8")
    memory = {"value": 2.0**30, "low": 2.0**30, "high": 2.0**30, "unit": "B", "lacking": ""}
    on_gpu["estimates"] = {**on_gpu["estimates"], "device_memory": {**memory, "replicates": 3}}
    for results, is_there in (([performance()], False), ([performance(), on_gpu], True)):
        lines = written(results, 140).lines
        assert any("GPU memory" in line for line in lines) is is_there
        assert not any("on GPU" in line for line in lines)
    assert any("here-cuda-b8" in line and "1.00 GiB" in line for line in lines)


def accuracy(case: str, *quantities: str) -> dict[str, Any]:
    """Return the line of an accuracy item with these quantities."""
    share = {"value": 0.5, "low": 0.4, "high": 0.6, "unit": "fraction", "lacking": ""}
    estimates = {name: {**share, "replicates": 40} for name in quantities}
    limits = [limited(name, "PASSED") for name in quantities]
    return performance(kind="accuracy", case=case, estimates=estimates, limits=limits)


def test_tasks_that_share_a_table_have_columns_of_their_own() -> None:
    results = [
        accuracy("ocr", "wer", "cer", "exact_match"),
        accuracy("answers", "exact_match", "answer_f1"),
        accuracy("spoken", "cer", "wer"),
        accuracy("summary", "rouge1", "rouge2", "rouge_l"),
    ]
    lines = written(results, width=120).lines
    assert lines[0] == "[mlms: accuracy of texts, worst first]"
    shown = [line.split()[2] for line in lines[1:]]
    assert shown == ["case", "ocr", "spoken", "case", "answers", "case", "summary"]
    assert "-" not in lines[2].split()
    assert lines[6].split()[3:6] == ["ROUGE-1", "ROUGE-2", "ROUGE-L"]


def test_nothing_is_written_without_results() -> None:
    assert written([]).lines == []


def test_the_worst_items_come_first_and_then_the_nearest_to_their_limits() -> None:
    results = [
        performance("PASSED", case="far", margin=0.9),
        performance("PASSED", case="near", margin=0.1),
        performance("PASSED", case="none", margin=None),
        performance("FAILED", case="broken"),
    ]
    rows = [line for line in written(results).lines[2:7] if not line.startswith("  ")]
    assert [row.split()[2] for row in rows] == ["broken", "near", "far", "none"]


def test_rows_have_the_colour_of_their_verdicts() -> None:
    terminal = written([performance("FAILED"), performance("PASSED")])
    assert terminal.markup[terminal.lines[1]] == {"bold": True}
    assert terminal.markup[terminal.lines[2]] == {"red": True}
    assert terminal.lines[3].startswith("  latency p50 1.00 ms (900 µs to 1.10 ms), limit ")
    assert terminal.markup[terminal.lines[3]] == {"red": True}
    assert terminal.markup[terminal.lines[4]] == {}


def test_more_than_a_hundred_rows_are_counted() -> None:
    lines = written([performance() for _ in range(103)]).lines
    assert "… and 3 that did no worse; results.jsonl has them all" in lines
    assert len([line for line in lines if line.startswith("PASSED")]) == 200


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_are_no_wider_than_the_terminal(width: int) -> None:
    long = performance(case="a-stack-with-a-long-name-" * 8)
    lines = written([long], width).lines
    assert width - 10 <= max(len(line) for line in lines) <= width


def verdicts_of(result: dict[str, Any]) -> list[str]:
    """Return the verdicts of the rows of an item: of its speed, and of its start-up."""
    rows = [line for line in written([result]).lines if "here-cpu-b8" in line]
    return [row.partition("  ")[0] for row in rows]


def test_a_table_shows_the_verdict_on_its_own_quantities() -> None:
    limits = [limited("latency_p95", "FAILED"), limited("peak_memory", "PASSED")]
    assert verdicts_of(performance("FAILED", limits=limits)) == ["FAILED", "PASSED"]
    assert verdicts_of(performance("FAILED", limits=limits[:1])) == ["FAILED", "no limit"]
    assert verdicts_of(performance("PASSED", limits=limits[1:])) == ["no limit", "PASSED"]
    assert verdicts_of(performance("PASSED", limits=[])) == ["no limit", "no limit"]


def test_a_verdict_that_no_limit_explains_is_in_every_table() -> None:
    limits = [limited("latency_p50", "FAILED")]
    assert verdicts_of(performance("XFAILED", limits=limits)) == ["XFAILED", "XFAILED"]
    assert verdicts_of(performance("FAILED", limits=[])) == ["FAILED", "FAILED"]


def test_the_rows_of_a_table_are_ordered_by_the_verdicts_that_it_shows() -> None:
    slow = performance("FAILED", case="slow", limits=[limited("latency_p50", "FAILED")])
    large = performance(
        "INCONCLUSIVE", case="large", limits=[limited("peak_memory", "INCONCLUSIVE")]
    )
    rows = [line.split() for line in written([slow, large]).lines]
    cases = [row[2 if row[0] != "no" else 3] for row in rows if {"slow", "large"} & set(row)]
    assert cases == ["slow", "large", "large", "slow"]


def test_upgrades_are_written_by_the_stacks_that_they_compare() -> None:
    terminal = written([upgrade(0.2), upgrade(0.0, baseline="older")])
    assert terminal.lines[0] == "[mlms: upgrades, latency, worst first]"
    assert terminal.lines[1] == "new (B) against old (A), mxnet"
    assert terminal.lines[3].split()[:3] == ["REGRESSED", "digits", "cpu-b8"]
    assert terminal.lines[4] == "new (B) against older (A), mxnet"
    assert not any("noise" in line for line in terminal.lines)


def test_a_stack_against_itself_shows_the_noise_of_the_machine() -> None:
    lines = written([upgrade(0.0, baseline="new")]).lines
    assert "[mlms: noise of this machine, worst first]" in lines


def test_two_variants_in_one_stack_are_no_noise_of_the_machine() -> None:
    line = {**upgrade(0.0), "stack": {"name": "here"}, "variant": "int8"}
    line["against"] = {"name": "here", "variant": "fp32"}
    terminal = written([_shown(line)])
    assert terminal.lines[1] == "int8 (B) against fp32 (A), mxnet"
    assert not any("noise" in shown for shown in terminal.lines)


def test_the_quantities_that_decided_an_upgrade_are_named_below_it() -> None:
    rounds = [{"latency": changed(0.2), "peak_memory": changed(1.0, a=1e8)}] * 8
    made = result_of(rounds)
    terminal = written([upgrade(0.0, **to_plain(made), verdict="REGRESSED")])
    assert "  also peak_memory ×2.718" in terminal.lines
    assert terminal.markup["  also peak_memory ×2.718"] == {"red": True}
    memory = result_of([{"latency": changed(0.0), "peak_memory": changed(1.0, a=1e8)}] * 8)
    lines = written([upgrade(0.0, **to_plain(memory), verdict="REGRESSED")]).lines
    assert any(line.startswith("  peak_memory ×2.718 (2.7") for line in lines)


def test_latency_alone_is_not_named_again() -> None:
    assert not any(line.startswith("  ") for line in written([upgrade(0.2)]).lines)


def test_an_upgrade_without_room_for_its_tolerance_has_it_below_with_its_change() -> None:
    lines = written([upgrade(1.2)], 60).lines
    assert "  latency ×3.320 (3.306 to 3.329), tolerance 3 %" in lines
    narrow = written([upgrade(1.2)], 40).lines
    row = narrow.index("REGRESSED  digits  cpu-b8")
    below = ["  B / A ×3.320 (3.306 to 3.329)", "  latency ×3.320, tolerance 3 %"]
    assert narrow[row + 1 : row + 3] == below


def test_figures_of_own_tests_have_room_before_the_whole_names_of_tests() -> None:
    own = {"value": 0.5, "unit": "", "better": "lower"}
    nodeid = "t.py::test_recall_of_neighbours_with_a_long_name[here-cpu-b8]"
    names = ("rmse", "recall", "delay", "model")
    line = performance(nodeid=nodeid, estimates={}, quantities=dict.fromkeys(names, own))
    assert written([line]).lines[2].endswith("  0.500   0.500  0.500  0.500")
    narrow = written([line], 40).lines
    assert narrow[2].startswith("PASSED   digits  ")
    assert narrow[2].endswith("  0.500")


def test_how_far_the_outputs_agree_is_told_of_an_upgrade_that_passes_too() -> None:
    line = to_plain(upgrade(0.0))
    told = "outputs are equal on 600 of 600 inputs"
    agreement = {**line["comparisons"][0], "quantity": "agreement", "of": "outputs", "told": told}
    line["comparisons"] = [*line["comparisons"], agreement]
    assert f"  {told}" in written([_shown(line)]).lines


def test_many_packages_that_one_side_lacks_are_counted_below_those_of_both() -> None:
    few = ["onnxruntime 1.22.0 → 1.23.0", "six 1.0 → none", "sympy none → 1.14"]
    many = [*few, *(f"p{number} 1.0 → none" for number in range(5))]
    lines = written([upgrade(0.0, changed_packages=few)]).lines
    assert f"  packages: {', '.join(few)}" in lines
    lines = written([upgrade(0.0, changed_packages=many)]).lines
    told = "  packages: onnxruntime 1.22.0 → 1.23.0, 6 that only A has, 1 that only B has"
    assert told in lines


def test_what_to_know_of_processes_is_shown() -> None:
    doubts = "1 of 3 processes stands apart"
    item = performance(processes=[{"steady": True}, {"steady": False}], doubts=doubts)
    (line,) = [line for line in written([item]).lines if line.startswith(doubts)]
    assert line.startswith(f"{doubts}: m.yaml::test_performance")
    early = written([{**item, "ended": "early"}])
    assert not [line for line in early.lines if line.startswith(doubts)]


def test_processes_that_were_not_steady_are_named() -> None:
    terminal = written([performance(processes=[{"steady": True}, {"steady": False}])])
    line = terminal.lines[-1]
    assert line.startswith("warm-up did not reach a steady state: m.yaml::test_performance")
    assert terminal.markup[line] == {"yellow": True}


def test_corrupt_elements_that_were_left_out_are_named_once() -> None:
    skipped = [{"element": f"labels.csv:{line}: x.png", "error": "…"} for line in range(2, 9)]
    fields: Any = {"dataset": {"name": "photos"}, "skipped_elements": skipped}
    lines = written([_shown(performance(**fields)), _shown(performance(**fields))]).lines
    first = "digits: 7 corrupt elements of photos left out: labels.csv:2: x.png, labels.csv:3: "
    [line] = [line for line in lines if "corrupt" in line]
    assert line.startswith(first)
    assert line.endswith("labels.csv:6: x.png, …")


def test_items_without_a_result_are_listed() -> None:
    failed = performance("ERROR", estimates=None, processes=None)
    skipped = performance("SKIPPED", estimates=None, processes=None)
    assert written([skipped, failed]).lines == [
        "[mlms: without a result]",
        "ERROR  m.yaml::test_performance[here-cpu-b8]",
    ]


def test_items_without_a_result_that_are_not_listed_are_counted_and_not_their_reasons() -> None:
    lines = []
    for number in range(204):
        nodeid = f"m.yaml::test_performance[cpu-b{number}]"
        message = f"reason {number % 102}"
        none: dict[str, Any] = {"estimates": None, "processes": None, "limits": []}
        lines.append(performance("ERROR", nodeid=nodeid, message=message, **none))
    assert written(lines).lines[-1] == "… and 4 that did no worse; results.jsonl has them all"


class SlowModel(BaseHTTPRequestHandler):
    """A server of the digits' model that takes seconds."""

    def do_GET(self) -> None:
        data = (DIGITS / "digits_cnn.onnx").read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        for first in range(0, len(data), 20_000):
            time.sleep(1)
            self.wfile.write(data[first : first + 20_000])
            self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def slow_url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), SlowModel) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def run_pytest(
    project: Project, options: str, on_terminal: bool
) -> subprocess.CompletedProcess[str]:
    """Run pytest on the manifests, in a terminal of its own or with its output in a pipe."""
    command = f"{sys.executable} -m pytest --mlms-manifests=manifests --mlms-cache=cache {options}"
    arguments = command.split()
    if on_terminal:
        arguments = ["script", "-qec", command, "/dev/null"]
    return subprocess.run(
        arguments, cwd=project.path, capture_output=True, text=True, timeout=HANG_GUARD
    )


needs_script = pytest.mark.skipif(
    shutil.which("script") is None, reason="needs util-linux's script"
)


@pytest.mark.slow
@needs_script
@pytest.mark.parametrize("on_terminal", [True, False])
def test_the_progress_of_a_long_download_is_shown(
    project: Project, slow_url: str, on_terminal: bool
) -> None:
    project.edit("graph: digits_cnn.onnx", f"graph: {slow_url}/digits_cnn.onnx")
    done = run_pytest(project, "-k accuracy", on_terminal)
    assert done.returncode == 0, done.stdout
    assert "mlms: waiting for the files of digits-cnn: downloading digits_c" in done.stdout
    if on_terminal:
        assert "manifests/digits.yaml " in done.stdout.rpartition("waiting for")[2]


@pytest.mark.slow
@needs_script
@pytest.mark.parametrize("on_terminal", [True, False])
def test_the_steps_of_a_long_installation_are_shown(
    project: Project, on_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    stacks = "odd: {framework: onnxruntime, requirements: [no-such-distribution]}"
    (project.path / "stacks.yaml").write_text(stacks)
    done = run_pytest(project, "--mlms-stack=odd -k accuracy", on_terminal)
    assert "No matching distribution found for no-such-distribution" in done.stdout
    assert "mlms: waiting for stack odd: " in done.stdout
    if on_terminal:
        assert "manifests/digits.yaml " in done.stdout.rpartition("stack odd: ")[2]


def result(place: str, text: str, key: str = "decisions", **fields: Any) -> ItemView:
    """Return an item with one remark."""
    remark = {"place": place, "text": text}
    original = {"dialect": "A2", "decisions": [], "warnings": [], key: [remark]}
    manifest = {"name": "m", "path": place.partition(":")[0]}
    return view_of({"manifest": manifest, "original": original, **fields})


def test_a_decision_is_told_once_with_its_first_line() -> None:
    results = [
        result("a.yml:3", "rare"),
        result("a.yml:7", "softmax: added"),
        result("a.yml:7", "softmax: added"),
        result("b.yml:9", "softmax: added"),
    ]
    assert list(original_lines(results)) == [
        "a.yml:7 and 1 more: softmax: added",
        "a.yml:3: rare",
    ]


def test_warnings_say_that_they_are() -> None:
    lines = list(original_lines([result("a.yml:3", "no md5", "warnings")]))
    assert lines == ["a.yml:3: warning: no md5"]


def test_other_versions_come_first() -> None:
    text = "asked for tensorflow ==1.12.*, ran with 2.21.0 of stack tf"
    found = list(original_lines([result("a.yml:3", "softmax: added", other_version=text)]))
    assert found == [f"a.yml: {text}", "a.yml:3: softmax: added"]


def test_native_manifests_have_no_lines() -> None:
    assert list(original_lines([view_of({})])) == []
