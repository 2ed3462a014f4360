"""Annotations of GitHub Actions."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.text import visible
from pytest_mlms.show.report.github_annotations import (
    github_annotations,
    leave_items_to_us,
    place_of,
    workflow_command,
)
from pytest_mlms.warning_types import MlmsInconclusive
from tests.support.result_lines import HOSTILE, broken_limit, line_of, undecided, upgrade
from tests.support.views import view_of, views_of


@pytest.fixture
def plugins(pytester: pytest.Pytester) -> pytest.PytestPluginManager:
    config = pytester.parseconfigure()
    assert config.pluginmanager.hasplugin("annotate_errors"), "the real plugin is there"
    leave_items_to_us(config.pluginmanager)
    return config.pluginmanager


def test_reports_of_other_tests_reach_the_plugin_and_those_of_items_do_not(
    plugins: pytest.PytestPluginManager,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    fields: dict[str, Any] = {"nodeid": "t.py::test", "location": ("t.py", 1, "test")}
    report = pytest.TestReport(
        keywords={}, outcome="failed", longrepr="it failed", when="call", **fields
    )
    annotator = cast(Any, plugins.getplugin("annotate_errors"))
    annotator.pytest_runtest_logreport(report)
    assert capsys.readouterr().err.startswith("::error file=t.py,line=2::")
    report.mlms = {}  # type: ignore[attr-defined]
    annotator.pytest_runtest_logreport(report)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("category", "seen"), [(UserWarning, 1), (MlmsInconclusive, 0)])
def test_warnings_of_undecided_items_do_not_reach_the_plugin(
    plugins: pytest.PytestPluginManager,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    category: type[Warning],
    seen: int,
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    warning = SimpleNamespace(filename="m.yaml", lineno=3, message="open", category=category)
    annotator = cast(Any, plugins.getplugin("annotate_warnings"))
    annotator.pytest_warning_recorded(warning, "runtest", "m.yaml::test", None)
    assert capsys.readouterr().err.count("::warning") == seen


COMMAND = re.compile(r"::(?P<name>\w+)(?: (?P<properties>.*?))?::(?P<data>.*)")
UNESCAPES = {"%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ",", "%25": "%"}


def unescaped(text: str) -> str:
    return re.sub("%(0D|0A|3A|2C|25)", lambda found: UNESCAPES[found[0]], text)


@given(st.text(), st.text(min_size=1))
def test_any_text_stays_one_command_and_comes_back(message: str, path: str) -> None:
    line = workflow_command("error", message, {"file": path, "line": "3"})
    assert len(line.splitlines()) == 1
    found = COMMAND.fullmatch(line)
    assert found is not None
    pairs = dict(pair.split("=", 1) for pair in found["properties"].split(","))
    assert found["name"] == "error"
    assert unescaped(pairs["file"]) == visible(path)
    assert pairs["line"] == "3"
    assert unescaped(found["data"]) == visible(message)


def test_a_command_without_properties_has_no_space() -> None:
    assert workflow_command("warning", "50 %", {}) == "::warning::50 %25"


FOLDER = Path("/home/runner/work/repository/sub")
WORKSPACE = Path("/home/runner/work/repository")


def annotated(*results: dict[str, object]) -> list[str]:
    return list(github_annotations(views_of(results), [], FOLDER, WORKSPACE))


def test_a_broken_limit_is_an_error_at_its_line() -> None:
    (command,) = annotated(broken_limit(), line_of(2))
    head, _, message = command.removeprefix("::error ").partition("::")
    properties = dict(pair.split("=") for pair in head.split(","))
    assert properties == {
        "file": "sub/models/m.yaml",
        "line": "88",
        "title": "digits here-cpu-b1%3A FAILED",
    }
    reason = "latency p50 4.00 ms (3.00 ms to 5.00 ms), limit at most 1.00 ms"
    where = (
        "the summary of this job has the whole text: models/m.yaml::test_performance[here-cpu-b1]"
    )
    assert message == f"{reason}%0A{where}"


def test_without_a_summary_of_the_job_its_log_is_named() -> None:
    views = views_of([broken_limit(number) for number in range(1, 12)])
    commands = list(github_annotations(views, [], FOLDER, WORKSPACE, has_summary=False))
    assert not any("summary" in command for command in commands)
    assert "%0Athe log of this job has the whole text: models/m.yaml::" in commands[0]
    assert commands[-1].endswith("::and 2 more failed items; the log of this job lists them")


def test_an_undecided_item_is_a_warning() -> None:
    (command,) = annotated(undecided())
    assert command.startswith("::warning file=sub/models/m.yaml,line=88,")


def test_nine_errors_and_nine_warnings_come_worst_first_and_the_tenth_counts_the_rest() -> None:
    results = [broken_limit(number) for number in range(1, 13)]
    results += [undecided(number) for number in range(20, 30)]
    commands = annotated(*results)
    errors = [command for command in commands if command.startswith("::error ")]
    warnings = [command for command in commands if command.startswith("::warning ")]
    assert len(errors) == len(warnings) == 10
    assert "here-cpu-b12%3A" in errors[0]
    assert errors[-1].endswith("::and 3 more failed items; the summary of this job lists them")
    assert "::and 1 more undecided item;" in warnings[-1]


def test_the_tenth_annotation_counts_items_and_not_their_reasons() -> None:
    plain: dict[str, Any] = {"limits": [], "estimates": {}, "outcome": "failed"}
    lines = [
        line_of(number, "ERROR", message=f"reason {number % 11}", **plain) for number in range(33)
    ]
    *_, last = annotated(*lines)
    assert last.endswith("::and 6 more failed items; the summary of this job lists them")


def test_an_upgrade_is_annotated_at_its_tolerances() -> None:
    line = upgrade()
    line["terms"] = {"places": {"latency": "models/m.yaml:12"}}
    (command,) = annotated(line)
    assert command.startswith("::error file=sub/models/m.yaml,line=12,")
    line["terms"] = {"places": {"latency": "--mlms-tolerance"}}
    (command,) = annotated(line)
    assert command.startswith("::error file=sub/models/m.yaml,line=95,")


def test_an_error_is_annotated_at_the_line_that_it_names() -> None:
    message = "models/m.yaml:12: no such file; name one"
    failed = line_of(verdict="ERROR", outcome="failed", limits=None, message=message)
    assert place_of(view_of(failed)) == "models/m.yaml:12"
    elsewhere = {**failed, "message": "/etc/passwd:1: it is not yours"}
    assert place_of(view_of(elsewhere)) == "models/m.yaml:9"


def test_items_that_failed_with_one_text_have_one_annotation() -> None:
    errors = []
    for number in (1, 8, 64):
        text = f"models/m.yaml:4: digits here-cpu-b{number}: m.onnx is not an ONNX model; export it"
        command = f"reproduce: pytest models/m.yaml::b{number}"
        fields: dict[str, Any] = {"outcome": "failed", "limits": [], "estimates": {}}
        errors.append(line_of(number, "ERROR", message=f"{text}\n{command}", **fields))
    (command,) = annotated(*errors)
    assert command.startswith("::error file=sub/models/m.yaml,line=4,title=digits here-cpu-b1%3A")
    told = (
        "::m.onnx is not an ONNX model; export it%0Athe same for 2 more: here-cpu-b8, here-cpu-b64"
    )
    assert told in command


def test_a_manifest_outside_of_the_workspace_has_no_file() -> None:
    failed = broken_limit(limits=None, place="../../else/m.yaml:3")
    (command,) = annotated(failed)
    assert command.startswith("::error title=")


def test_a_strangers_name_and_message_begin_no_command_of_their_own() -> None:
    model = {"path": "models/m.yaml", "name": HOSTILE, "version": "1.0.0"}
    (command,) = annotated(broken_limit(manifest=model, nodeid=HOSTILE, case=HOSTILE))
    assert "\n" not in command
    assert command.count("::error") == 2  # the command, and the escaped line of its message
    assert "%0A::error::d" in command
    long = broken_limit(message="x" * 1_000_000, limits=[])  # hours, were it quadratic
    assert len(annotated(long)[0]) < 5000


def test_each_error_of_a_manifest_is_annotated_at_its_line() -> None:
    text = "models/m.yaml:3: unknown key 'nam'; did you mean 'name'?\nmodels/m.yaml:9: no model\n"
    traceback = "E   ImportError: no module\ntest_own.py:3: in <module>"
    commands = list(
        github_annotations(views_of([broken_limit()]), [text, traceback], FOLDER, WORKSPACE)
    )
    assert [command.partition(",title")[0] for command in commands] == [
        "::error file=sub/models/m.yaml,line=3",
        "::error file=sub/models/m.yaml,line=9",
        "::error file=sub/models/m.yaml,line=88",
    ]
