"""Runs read from results.jsonl alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Verdict
from pytest_mlms.show.pages.run import read_run


def line(type_: str, **fields: Any) -> str:
    common = {"format": 1, "run": "r1", "time": "2026-11-23T10:00:00.000+00:00", "type": type_}
    return json.dumps({**common, **fields}) + "\n"


def item(nodeid: str = "m.yaml::test_performance[x]", **fields: Any) -> str:
    known = {
        "nodeid": nodeid,
        "kind": "performance",
        "verdict": "PASSED",
        "manifest": {"name": "m", "path": "m.yaml", "version": "1"},
        "stack": {"name": "here", "threads": None, "cores": []},
    }
    return line("item", **{**known, **fields})


def write(folder: Path, *lines: str) -> Path:
    (folder / "results.jsonl").write_text("".join(lines))
    return folder


def test_a_run_that_was_killed_has_the_items_that_finished(tmp_path: Path) -> None:
    cut_off = item("other")[:40]
    run = read_run(write(tmp_path, line("run", plugin="1.0"), item(), cut_off))
    assert run.name == "r1"
    assert run.exit_status is None
    assert [each.nodeid for each in run.items] == ["m.yaml::test_performance[x]"]


def test_the_last_line_of_an_item_counts(tmp_path: Path) -> None:
    first = item(verdict="ERROR")
    run = read_run(
        write(tmp_path, line("run"), first, line("run"), item(), line("end", exit_status=0))
    )
    assert run.counts == {Verdict.PASSED: 1}
    assert run.sessions == 2
    assert run.exit_status == 0


def test_a_run_that_was_resumed_and_killed_has_no_exit_status(tmp_path: Path) -> None:
    run = read_run(write(tmp_path, line("run"), item(), line("end", exit_status=1), line("run")))
    assert run.exit_status is None


def test_a_failed_teardown_makes_its_item_an_error(tmp_path: Path) -> None:
    failed = line("teardown", nodeid="m.yaml::test_performance[x]", verdict="ERROR", message="no")
    (only,) = read_run(write(tmp_path, item(), failed)).items
    assert only.verdict is Verdict.ERROR
    assert only.teardown == "no"


def test_items_are_sorted_worst_first(tmp_path: Path) -> None:
    lines = [item("good", margin=0.5), item("near", margin=0.1), item("bad", verdict="FAILED")]
    run = read_run(write(tmp_path, *lines))
    assert [each.nodeid for each in run.worst_first] == ["bad", "near", "good"]


def test_a_line_of_something_else_is_named(tmp_path: Path) -> None:
    write(tmp_path, item(), item(limits=[{"max": 1}]))
    with pytest.raises(MlmsError, match=r"results\.jsonl:2: limits\.0\.quantity: Field required"):
        read_run(tmp_path)


def test_a_field_that_a_test_noted_otherwise_is_left_out_and_named(tmp_path: Path) -> None:
    (only,) = read_run(write(tmp_path, item(rounds=3, ended=["x"], verdict="FAILED"))).items
    assert only.verdict is Verdict.FAILED
    assert (only.rounds, only.ended) == ((), "")
    assert only.unread == {
        "rounds": "Input should be a valid tuple",
        "ended": "Input should be a valid string",
    }


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([item(), line("end", exit_status=0)], "m: 1 item, none failed"),
        ([item()], "m: 1 item, none failed, but it has not ended"),
        (
            [item(), line("end", exit_status=2)],
            "m: 1 item, none failed, but it ended with status 2",
        ),
        ([item(), '{"nodeid": \n', line("end", exit_status=0)], "but 1 line can't be read"),
        ([item(verdict="SKIPPED"), line("end", exit_status=0)], "m: 1 of 1 skipped"),
        ([item(verdict="SKIPPED")], "m: 1 of 1 skipped, but it has not ended"),
        ([item(verdict="FAILED")], "m: 1 of 1 failed"),
        (
            [item(), item("b", verdict="INCONCLUSIVE"), line("end", exit_status=1)],
            "m: 1 of 2 undecided, but it ended with status 1",
        ),
    ],
)
def test_none_failed_is_said_of_whole_runs_alone(
    tmp_path: Path, lines: list[str], said: str
) -> None:
    assert read_run(write(tmp_path, line("run"), *lines)).headline.endswith(said)


def test_a_folder_without_results_is_named(tmp_path: Path) -> None:
    with pytest.raises(MlmsError, match="name the folder of a run"):
        read_run(tmp_path)
    with pytest.raises(MlmsError, match="no line of a run"):
        read_run(write(tmp_path, "\n"))


def test_an_artifact_outside_of_the_run_is_none_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "secret").write_text("x")
    (folder / "inside").write_text("x")
    (folder / "link").symlink_to(tmp_path / "secret")
    names = {"a": "../secret", "b": str(tmp_path / "secret"), "c": "inside", "d": "link", "e": "no"}
    (only,) = read_run(write(folder, item(artifacts=names))).items
    found = [name for name in names if only.artifact(name)]
    assert found == ["c"]


def test_a_line_of_a_later_format_is_refused_as_its_fields_mean_something_else(
    tmp_path: Path,
) -> None:
    with pytest.raises(MlmsError, match=r"results.jsonl:2: it has format 2, this version reads 1"):
        read_run(write(tmp_path, line("run"), item(format=2)))


@pytest.mark.parametrize("head", [{"nodeid": ["m"]}, {}, {"nodeid": "m", "repetition": "x"}])
def test_a_tear_down_that_names_no_item_is_refused_as_one_may_have_failed(
    head: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(MlmsError, match=r"results.jsonl:2: .*no line of an item's tear-down"):
        read_run(write(tmp_path, item(), line("teardown", message="it leaks", **head)))


@pytest.mark.parametrize("repetition", [1, "1", None])
def test_a_tear_down_fails_its_item_in_whichever_form_its_repetition_is(
    repetition: object, tmp_path: Path
) -> None:
    failed = line(
        "teardown", nodeid="m.yaml::test_performance[x]", message="x", repetition=repetition
    )
    assert read_run(write(tmp_path, item(), failed)).counts == {Verdict.ERROR: 1}


@pytest.mark.parametrize("status", ["", [], {}, None, "0", 0.0])
def test_an_end_without_an_exit_status_is_none(status: object, tmp_path: Path) -> None:
    run = read_run(write(tmp_path, item(), line("end", exit_status=status)))
    assert run.headline == "m: 1 item, none failed, but it has not ended"


def test_items_are_ordered_by_their_margins_also_where_one_is_no_number(tmp_path: Path) -> None:
    margins = [float("nan"), -0.1, -0.5, float("nan"), -0.3]
    items = [
        item(str(number), verdict="FAILED", margin=margin) for number, margin in enumerate(margins)
    ]
    order = [each.nodeid for each in read_run(write(tmp_path, *items)).worst_first]
    assert order == ["2", "4", "1", "0", "3"]
