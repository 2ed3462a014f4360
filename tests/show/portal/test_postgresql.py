"""A portal whose history is in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.packed_runs import pack_run
from tests.support.portals import Portal, serving
from tests.support.postgresql import Server, running_server

pytestmark = pytest.mark.slow

PAGES = ("/series", "/changes", "/api/v1/series", "/api/v1/changes")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as made:
        yield made


@pytest.fixture
def portal(server: Server, tmp_path: Path) -> Iterator[Portal]:
    with serving(tmp_path, f"--history={server.database()}") as made:
        yield made


def push(portal: Portal, *numbers: int) -> None:
    for number in numbers:
        answer = portal.post("/api/v1/runs", pack_run(number))
        assert (answer.status, answer.json["history"]) == (201, "")


def test_runs_that_are_pushed_become_points_of_series(portal: Portal) -> None:
    push(portal, 1, 2, 3)
    listed = portal.get("/api/v1/series").json
    assert listed["total"] > 0
    number = listed["series"][0]["id"]
    points = portal.get(f"/api/v1/series/{number}/points").json["points"]
    assert len(points) == 3
    assert "<svg" in portal.get(f"/series/{number}").text
    for page in PAGES:
        assert portal.get(page).status == 200, page


def test_a_server_that_is_away_is_said_to_be_and_nothing_is_lost(
    portal: Portal, server: Server
) -> None:
    push(portal, 1)
    server.stop()
    try:
        for page in PAGES:
            answer = portal.get(page)
            assert answer.status == 503, page
            assert "s3cret" not in answer.text
        answer = portal.post("/api/v1/runs", pack_run(2))
        assert answer.status == 201
        assert answer.json["history"]
        assert "s3cret" not in answer.text
        assert portal.get("/runs").status == 200
    finally:
        server.start()
    push(portal, 3)
    number = portal.get("/api/v1/series").json["series"][0]["id"]
    assert len(portal.get(f"/api/v1/series/{number}/points").json["points"]) == 3
