"""Why items did not pass, in one line."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_mlms.show.report.reasons import by_reason, fitted, reasons_of
from tests.support.project import DIGITS, Project
from tests.support.result_lines import broken_limit, limit, line_of, undecided, upgrade
from tests.support.views import view_of, views_of

TEXT = "/home/me/models/m.onnx is not an ONNX model: a field is cut short; export it again"


def broken_file(number: int, text: str = TEXT) -> dict[str, Any]:
    """Return an item whose model could not be loaded."""
    case = f"here-cpu-b{number}"
    message = f"models/m.yaml:4: digits {case}: {text}\nreproduce: pytest models/m.yaml::{case}"
    fields: dict[str, Any] = {"limits": [], "estimates": {}, "outcome": "failed"}
    return line_of(number, "ERROR", message=message, **fields)


def test_an_upgrade_tells_the_quantity_that_decided_with_fewer_figures_where_room_is_scarce() -> (
    None
):
    assert reasons_of(view_of(upgrade())) == [
        "latency ×1.079 (1.071 to 1.088), tolerance 3 %",
        "latency ×1.079, tolerance 3 %",
        "latency ×1.079",
    ]


def test_several_quantities_are_counted() -> None:
    line = upgrade()
    memory = {**line["comparisons"][0], "quantity": "peak_memory", "of": "rounds"}
    passed = {**memory, "quantity": "load_time", "verdict": "PASSED"}
    line["comparisons"] = [memory, *line["comparisons"], passed]
    first, *_ = reasons_of(view_of(line))
    assert first == "latency ×1.079 (1.071 to 1.088), tolerance 3 %, and 1 more"


def test_a_limit_tells_what_was_measured_and_the_bound() -> None:
    forms = [
        "latency p50 4.00 ms (3.00 ms to 5.00 ms), limit at most 1.00 ms",
        "latency p50 4.00 ms, limit at most 1.00 ms",
        "latency p50 4.00 ms, limit 1.00 ms",
        "p50 4.00 ms",
    ]
    assert reasons_of(view_of(broken_limit())) == forms
    assert reasons_of(view_of(undecided()))[0].endswith(", limit at most 4.00 ms")
    share = {"value": 0.99, "low": 0.98, "high": 0.995, "unit": "fraction", "lacking": ""}
    bound = {"quantity": "top1", "min": 0.999, "place": "m.yaml:4", "verdict": "FAILED"}
    line = broken_limit(estimates={"top1": share}, limits=[bound])
    assert reasons_of(view_of(line))[1] == "top1 99.00 %, limit at least 99.90 %"


def test_an_error_tells_its_first_line_without_what_its_node_id_says() -> None:
    assert reasons_of(view_of(broken_file(1))) == [
        TEXT,
        "m.onnx is not an ONNX model: a field is cut short; export it again",
        "m.onnx is not an ONNX model: a field is cut short",
    ]


def test_a_run_that_can_not_be_trusted_tells_why_and_no_figures() -> None:
    message = "digits here-cpu-b1: the GPU was throttled\nreproduce: pytest"
    line = line_of(1, "INVALID", limits=[limit("INVALID", 0.001)], message=message)
    assert reasons_of(view_of(line))[0] == "the GPU was throttled"


def test_the_longest_form_that_has_room_is_taken_and_the_shortest_is_cut() -> None:
    forms = ["latency ×1.079, tolerance 3 %", "latency ×1.079"]
    assert [fitted(forms, room) for room in (29, 28, 14, 13, 0)] == [
        forms[0],
        forms[1],
        forms[1],
        "latency ×1.0…",
        "l…",
    ]


def test_items_of_one_text_are_grouped_and_those_of_figures_of_their_own_are_not() -> None:
    lines = [broken_file(1), broken_limit(2, message="x"), broken_limit(3, message="x")]
    lines += [broken_file(8), broken_file(9, "another text")]
    groups = [[item.case[-2:] for item in group] for group in by_reason(views_of(lines))]
    assert groups == [["b1", "b8"], ["b2"], ["b3"], ["b9"]]


@pytest.mark.parametrize("columns", ["80", "100"])
@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["alone", "xdist"])
def test_a_model_that_can_not_be_loaded_is_told_once_and_the_other_items_name_the_first(
    project: Project, monkeypatch: pytest.MonkeyPatch, columns: str, workers: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.delenv("CI", raising=False)
    project.replace_file("digits_cnn.onnx", (DIGITS / "digits_cnn.onnx").read_bytes()[:3000])
    result = project.run(*workers)
    lines = result.outlines
    count = len(project.items())
    assert count > 3
    summary = lines.index(next(line for line in lines if "short test summary" in line))
    whole = [line for line in lines[:summary] if "is not an ONNX model" in line]
    named = [line for line in lines[:summary] if ": the same as manifests/digits.yaml::" in line]
    assert (len(whole), len(named)) == (1, count - 1)
    assert len([line for line in lines if line.startswith("reproduce: ")]) == 1
    (without,) = [line for line in lines if line.startswith("ERROR  ")]
    assert without.endswith(f", and {count - 1} more for the same reason")
    short = [line for line in lines[summary:] if line.startswith("ERROR ")]
    assert len(short) == count
    assert all(len(line) <= int(columns) for line in short)


def test_a_broken_limit_is_told_whole_once_and_then_in_a_line_with_its_figures(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("CI", "true")
    project.set_thresholds("  top1: {min: 0.999}")
    result = project.run("-k", "accuracy")
    output = result.stdout.str()
    assert output.count("worst inputs:") == output.count("is not at least 99.90 %") == 1
    figures = "top1 99.00 (97.84 to 99.54) %, limit at least 99.90 %"
    assert f"  {figures}" in result.outlines  # below the row of the table
    (short,) = [line for line in result.outlines if line.startswith("FAILED manifests")]
    assert short.endswith(" - top1 99.00 %, limit at least 99.90 %")
    assert len(short) <= 100
    (annotation,) = [line for line in result.outlines if line.startswith("::error")]
    assert f"::{figures.replace('%', '%25')}%0Athe summary of this job" in annotation
