"""Tests of attachments in JUnit files."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.show.report.attachments import attach_artifacts
from tests.support.result_lines import broken_limit, line_of

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
