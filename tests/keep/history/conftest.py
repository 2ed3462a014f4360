"""A history of each kind of database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.postgresql import Server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a new history, on each kind of database."""
    if request.param == "sqlite":
        return str(tmp_path / "history.sqlite")
    server: Server = request.getfixturevalue("postgresql")
    return server.database()
