"""Tests of GitHub's workflow commands, read back as its runner reads them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.text import visible
from pytest_mlms.show.report.workflow_commands import workflow_command

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
