from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import pytest

from tests.support.fileserver import FileServer, serving


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        import_module("pytest_mlms.provide.artifacts.download"), "_WAITS", (0, 0, 0)
    )
