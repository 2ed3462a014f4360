"""Outputs for CI."""

from __future__ import annotations

import json
import os
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, cast

import pytest
from junitparser.xunit2 import JUnitXml

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.session import Session
from pytest_mlms.show.report.ci_outputs import (
    CiRun,
    attach_artifacts,
    attach_to_junit,
    write_step_summary,
)
from tests.support.project import Project
from tests.support.result_lines import broken_limit, line_of

LIMITS = "  top1: {min: 0.99}"

ATTRIBUTES = {
    "testsuites": {"name"},
    "testsuite": {
        "name",
        "errors",
        "failures",
        "skipped",
        "tests",
        "time",
        "timestamp",
        "hostname",
    },
    "testcase": {"classname", "name", "time"},
    "property": {"name", "value"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message", "type"},
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase", "properties"},
    "testcase": {"properties", "failure", "error", "skipped", "system-out", "system-err"},
    "properties": {"property"},
}
"""Attributes and children of the xUnit 2 schema, and ``properties`` of a test case.

The schema that pytest names (Jenkins' junit-10.xsd) has properties of suites only; pytest writes
them to test cases in every family, and GitLab, Jenkins' JUnit plugin and junitparser read them.
"""


@pytest.fixture
def on_github(monkeypatch: pytest.MonkeyPatch, project: Project) -> Path:
    """Set what GitHub sets; return the file of the summary."""
    summary = project.path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.path))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    return summary


def commands(result: pytest.RunResult) -> list[str]:
    lines = result.outlines + result.errlines
    return [line for line in lines if re.match(r"\s*::(error|warning)", line)]


def fail_twice(project: Project) -> None:
    """Have the accuracy of two manifests fail; the second one has a line more."""
    other = project.fork("other")
    for each in (project, other):
        each.use_faulty()
        each.set_thresholds(LIMITS)
    other.manifest.write_text("# the other\n" + other.manifest.read_text())


def line_with(project: Project, text: str) -> int:
    lines = project.manifest.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_on_github_a_run_annotates_limits_and_appends_a_summary(
    project: Project, on_github: Path
) -> None:
    fail_twice(project)
    on_github.write_text("what the step wrote before\n")
    (project.path / "test_own.py").write_text("def test_own(): assert False")
    result = project.run("-pno:terminal", "-k", "accuracy or own", "manifests", "test_own.py")
    found = commands(result)
    own = [command for command in found if "test_own.py" in command]
    ours = [command for command in found if command not in own]
    assert len(own) == 1  # by pytest-github-actions-annotate-failures, which is installed here
    places = [command.partition("title=")[0] for command in ours]
    line = line_with(project, "top1:")
    assert sorted(places) == [
        f"::error file=manifests/digits.yaml,line={line},",
        f"::error file=manifests/other/digits.yaml,line={line + 1},",
    ]
    text = on_github.read_text()
    assert text.startswith("what the step wrote before\n## mlms: 2 models: 2 failed")
    assert "### FAILED (2)" in text


@pytest.mark.slow
def test_with_xdist_nothing_is_annotated_twice(project: Project, on_github: Path) -> None:
    fail_twice(project)
    result = project.run("-n2", "-q", "-k", "accuracy")
    assert len(commands(result)) == 2
    assert on_github.read_text().count("## mlms") == 1


def test_a_manifest_that_is_wrong_is_annotated_at_its_lines(
    project: Project, on_github: Path
) -> None:
    project.edit("element_type: float32", "element_type: float31")
    (command,) = commands(project.run("-q"))
    line = line_with(project, "float31")
    assert command.startswith(f"::error file=manifests/digits.yaml,line={line},title=mlms")
    text = on_github.read_text()
    assert text.startswith("## mlms: manifests with errors\n\n```\n")
    assert f"manifests/digits.yaml:{line}: " in text


def test_a_summary_that_can_not_be_written_is_said(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "summary.md"
    environ = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(path)}
    run = CiRun(cast(Session, None), [broken_limit()], tmp_path, environ)
    problem = f"GITHUB_STEP_SUMMARY: {path} can't be written: No such file or directory"
    assert write_step_summary(run) == [problem]


def test_elsewhere_nothing_is_written_for_ci(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    run = CiRun(cast(Session, None), [broken_limit()], tmp_path, {"GITHUB_STEP_SUMMARY": str(path)})
    assert write_step_summary(run) == []
    assert attach_to_junit(run, "junit.xml") == []
    assert not path.exists()


def test_on_gitlab_the_junit_file_names_artifacts_and_documents_are_written(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("CI_PROJECT_DIR", str(project.path))
    fail_twice(project)
    documents = ["--mlms-bencher-json=bencher.json", "--mlms-metrics=metrics.txt"]
    options = ["-k", "accuracy", "--junitxml=junit.xml", "-ojunit_logging=all", *documents]
    result = project.run(*options)
    assert commands(result) == []
    path = project.path / "junit.xml"
    check_structure(ElementTree.parse(path).getroot())
    cases = [case for suite in JUnitXml.fromfile(str(path)) for case in suite]
    items = {item["nodeid"]: item for item in project.items()}
    for case in cases:
        properties = {entry.name: entry.value for entry in case.properties()}  # type: ignore[attr-defined]
        item = items[properties["mlms_item"]]
        assert properties["mlms_verdict"] == item["verdict"] == "FAILED"
        attached = re.findall(r"\[\[ATTACHMENT\|([^\[\]|]+)\]\]", case.system_out)
        assert len(attached) >= len(item["artifacts"]) > 0
        assert all((project.path / name).is_file() for name in attached)
    metrics = (project.path / "metrics.txt").read_text()
    assert "\nmlms_top1{" in metrics
    assert 'mlms_items{verdict="FAILED"} 2' in metrics
    benchmarks = json.loads((project.path / "bencher.json").read_text())
    assert set(benchmarks) == set(items)


def check_structure(element: ElementTree.Element) -> None:
    """Hold an element and those in it to the xUnit 2 schema."""
    assert set(element.attrib) <= ATTRIBUTES.get(element.tag, set()), element.attrib
    outputs = [child.tag for child in element if child.tag.startswith("system-")]
    assert len(outputs) == len(set(outputs)), "GitLab can't read two outputs of one kind"
    for child in element:
        assert child.tag in CHILDREN[element.tag]
        check_structure(child)


@pytest.mark.parametrize("option", ["--mlms-bencher-json", "--mlms-metrics"])
def test_a_document_needs_a_folder_that_exists(pytester: pytest.Pytester, option: str) -> None:
    result = pytester.runpytest(f"{option}=nowhere/file", "-pno:cacheprovider")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {option}: there is no folder *{os.sep}nowhere; make it*"])


JUNIT = """\
<testsuites><testsuite name="pytest">
<testcase name="a"><properties><property name="mlms_item" value="{}"/></properties>
<failure message="no"/><system-out>what the test printed</system-out></testcase>
<testcase name="other"/>
</testsuite></testsuites>
"""


def attached(folder: Path, item: dict[str, Any], project: Path | None = None) -> list[str]:
    paths = [*item.get("artifacts", {}).values(), *item.get("logs", ())]
    for path in (folder / "run" / name for name in paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    path = folder / "junit.xml"
    path.write_text(JUNIT.format(item["nodeid"]))
    attach_artifacts(path, [item], folder / "run", project or folder)
    (output,) = ElementTree.parse(path).getroot().iter("system-out")
    return (output.text or "").splitlines()


def test_pictures_come_first_and_the_output_of_the_test_stays(tmp_path: Path) -> None:
    artifacts = {"samples.npz": "items/a/s.npz", "p.csv": "items/a/p.csv", "w.png": "items/a/w.png"}
    lines = attached(tmp_path, broken_limit(artifacts=artifacts, logs=["agents/x.log"]))
    assert lines == [
        "[[ATTACHMENT|run/items/a/w.png]]",
        "[[ATTACHMENT|run/items/a/p.csv]]",
        "[[ATTACHMENT|run/items/a/s.npz]]",
        "[[ATTACHMENT|run/agents/x.log]]",
        "what the test printed",
    ]


def test_an_item_that_passed_has_none(tmp_path: Path) -> None:
    lines = attached(tmp_path, line_of(artifacts={"a": "items/a"}))
    assert lines == ["what the test printed"]


def test_files_outside_of_the_project_and_names_that_break_the_tag_are_left_out(
    tmp_path: Path,
) -> None:
    artifacts = {"a": "items/a]]x", "b": "items/b|c"}
    assert attached(tmp_path, broken_limit(artifacts=artifacts)) == ["what the test printed"]
    outside = attached(tmp_path, broken_limit(artifacts={"a": "items/a"}), tmp_path / "project")
    assert outside == ["what the test printed"]


def test_a_file_that_is_no_xml_is_said_to_be_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    path.write_text("<testsuites>")
    with pytest.raises(MlmsError, match=r"junit.xml: no attachments could be added: no element"):
        attach_artifacts(path, [broken_limit()], tmp_path, tmp_path)
