"""Coexistence with pytest-github-actions-annotate-failures, from its version 0.4 on.

It annotates every failed test and every warning, and knows nothing of GitHub's ten. What it would
say of items of manifests is left to ``show/report/github_annotations.py``.
"""

from __future__ import annotations

from typing import Any

import pytest

from pytest_mlms.warning_types import MlmsInconclusive

_ERRORS = "annotate_errors"
_WARNINGS = "annotate_warnings"
"""The names by which that plugin registers its parts."""


def leave_items_to_us(plugins: pytest.PytestPluginManager) -> None:
    """Keep failed and undecided items from the other plugin, where it is there."""
    errors = plugins.getplugin(_ERRORS)
    if hasattr(errors, "pytest_runtest_logreport"):
        plugins.unregister(name=_ERRORS)
        plugins.register(_OtherErrors(errors), _ERRORS)
    warnings = plugins.getplugin(_WARNINGS)
    if hasattr(warnings, "pytest_warning_recorded"):
        plugins.unregister(name=_WARNINGS)
        plugins.register(_OtherWarnings(warnings), _WARNINGS)


class _OtherErrors:
    """Hands over the reports that have no result of ours."""

    def __init__(self, annotator: Any) -> None:
        self._annotator = annotator

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not hasattr(report, "mlms"):
            self._annotator.pytest_runtest_logreport(report)


class _OtherWarnings:
    """Hands over the warnings that are not of undecided items."""

    def __init__(self, annotator: Any) -> None:
        self._annotator = annotator

    def pytest_warning_recorded(
        self, warning_message: Any, when: str, nodeid: str, location: Any
    ) -> None:
        if not issubclass(warning_message.category, MlmsInconclusive):
            self._annotator.pytest_warning_recorded(warning_message, when, nodeid, location)
