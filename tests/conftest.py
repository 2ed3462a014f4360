"""Fixtures and settings of all tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.project import Project

_SLOW_IS_FINE = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
settings.register_profile(
    "same", deadline=None, derandomize=True, suppress_health_check=_SLOW_IS_FINE
)
settings.register_profile(
    "search", settings.get_profile("same"), derandomize=False, max_examples=2000
)
settings.load_profile(
    "same"
)  # the same examples each time; --hypothesis-profile=search looks for new ones

# What starts the tests may ignore Ctrl-C, as shells do for what they start in the background, and
# processes inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
for name in ("CI", "BUILD_NUMBER"):  # where one is set, pytest prints summaries of another form
    os.environ.pop(name, None)


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Project:
    monkeypatch.setenv(
        "MLMS_LOCKS", str(tmp_path / "locks")
    )  # nothing here depends on how fast a model is
    monkeypatch.setenv(
        "PYTEST_ADDOPTS", "-p no:hypothesispytest"
    )  # it takes most of a second to import
    monkeypatch.setenv("COLUMNS", "200")
    return Project(pytester)
