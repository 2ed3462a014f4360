from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fileserver import FileServer, serving


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_mlms.provide.artifacts.download.time.sleep", lambda seconds: None)
