"""Tests of the coexistence with pytest-github-actions-annotate-failures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_mlms.show.report.other_annotations import leave_items_to_us
from pytest_mlms.warning_types import MlmsInconclusive


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
