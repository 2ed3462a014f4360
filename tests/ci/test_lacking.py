"""Tests of parts that a machine lacks are skipped, and fail where CI promises these."""

from __future__ import annotations

import pytest

from tests.support.lacking import REQUIRED, lack


def test_what_is_missing_is_skipped_for_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRED, "openssh")
    with pytest.raises(pytest.skip.Exception, match="no chromium"):
        lack("browser", "no chromium")


def test_what_is_missing_fails_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRED, "openssh browser")
    with pytest.raises(pytest.fail.Exception, match="no chromium; MLMS_TESTS_REQUIRE says"):
        lack("browser", "no chromium")
