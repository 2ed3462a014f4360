"""Decisions about original manifests at the end of a run."""

from __future__ import annotations

from typing import Any

from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.report.originals import original_lines
from tests.support.views import view_of


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
