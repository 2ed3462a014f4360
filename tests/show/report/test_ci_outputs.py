"""Outputs for CI of real runs, and what happens where they can't be written."""

from __future__ import annotations

import json
import os
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import cast

import pytest
from junitparser.xunit2 import JUnitXml

from pytest_mlms.session import Session
from pytest_mlms.show.report.ci_outputs import CiRun, attach_to_junit, write_step_summary
from tests.support.project import Project
from tests.support.result_lines import broken_limit

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
