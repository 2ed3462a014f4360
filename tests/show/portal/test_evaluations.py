"""Evaluations that are started from a portal: one at a time, of its folder only, ended with it."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_mlms.show.portal.evaluations import (
    BadRequest,
    EvaluationRequest,
    read_request,
    whole_characters,
)
from pytest_mlms.show.portal.settings import Limits
from tests.support.portals import TOKEN, Answer, Portal, serving
from tests.support.project import PREDICTORS, Project, copy_digits
from tests.support.small_disk import fill, mount_small_disk
from tests.support.waiting import wait_until

HOSTILE = [
    "../secret.yaml",
    "/etc/passwd",
    "linked.yaml",
    "folder/../digits.yaml",
    "--mlms-allow-code",
    "-p evil",
    "digits.yaml --mlms-allow-code",
    "digits.yaml::test_accuracy",
    "digits.yaml\n",
    "broken.yaml",
    "conftest.py",
    "",
    None,
    ["digits.yaml"],
]


QUICKLY = """\
[pytest]
mlms_processes = 1
mlms_duration = 0.01
mlms_budget = 600
"""

IN_STEPS = """
import os, pathlib, time, pytest

def wait_for(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.02)

def pytest_sessionstart():
    os.write(1, b"it took 5 \\xc2")
    wait_for("second")
    os.write(1, b"\\xb5s\\n")
    wait_for("third")
    pytest.exit("it went on", returncode=7)
"""
"""A conftest that prints half of a character, and goes on as files appear."""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    return folder


@pytest.fixture
def manifests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the model of digits; it is measured quickly, and waits for no device."""
    monkeypatch.setenv("MLMS_LOCKS", str(tmp_path / "locks"))
    copy_digits(tmp_path / "manifests")
    (tmp_path / "manifests" / "pytest.ini").write_text(QUICKLY)
    return tmp_path / "manifests"


@pytest.fixture
def hanging(manifests: Path) -> Path:
    """Return a folder of manifests whose model never answers."""
    project = Project.__new__(Project)
    project.folder = manifests
    project.manifest = manifests / "digits.yaml"
    project.use_faulty(at="predict", fault="hang", pids=str(manifests.parent / "pids"))
    (manifests / "pytest.ini").write_text(f"[pytest]\nmlms_predictors = {PREDICTORS}\n")
    return manifests


@pytest.fixture
def in_steps(manifests: Path) -> Path:
    """Return a folder of manifests whose evaluation prints half of a character and waits."""
    (manifests / "pytest.ini").write_text("[pytest]\naddopts = -s\n")
    (manifests / "conftest.py").write_text(IN_STEPS)
    return manifests


@pytest.fixture
def portal(results: Path, manifests: Path) -> Iterator[Portal]:
    with allowing(results, manifests) as made:
        yield made


def allowing(results: Path, manifests: Path) -> Any:
    return serving(results, "--allow-run", f"--manifests={manifests}")


def start(portal: Portal, manifest: object = "digits.yaml", **fields: object) -> Answer:
    return portal.post("/api/v1/evaluations", json.dumps({"manifest": manifest, **fields}))


def evaluation(portal: Portal, name: str) -> Any:
    return portal.get(f"/api/v1/evaluations/{name}").json


def follow(portal: Portal, name: str) -> socket.socket:
    """Return a connection that an evaluation's events come on."""
    connection = portal.connect()
    request = f"GET /evaluations/{name}/events HTTP/1.1\r\nHost: localhost\r\n"
    connection.sendall(f"{request}Authorization: Bearer {TOKEN}\r\n\r\n".encode())
    return connection


def receive(connection: socket.socket, wanted: bytes) -> bytes:
    """Return what comes, up to what is wanted at least."""
    received = b""
    while wanted not in received:
        part = connection.recv(65536)
        assert part, f"the stream ended before {wanted!r}: {received!r}"
        received += part
    return received


def descendants(process_id: int) -> list[psutil.Process]:
    return psutil.Process(process_id).children(recursive=True)


def hanging_processes(portal: Portal, manifests: Path) -> list[psutil.Process]:
    """Wait until the model hangs; return pytest, the agent, and what that has started."""
    pids = manifests.parent / "pids"
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    of_agent = [psutil.Process(int(pid)) for pid in pids.read_text().split()]
    pids.unlink()
    return [*descendants(portal.process.pid), *of_agent]


def are_gone(processes: list[psutil.Process]) -> bool:
    return not any(each.is_running() and each.status() != "zombie" for each in processes)


@pytest.mark.slow
def test_an_evaluation_runs_shows_its_progress_and_is_kept(portal: Portal) -> None:
    name = start(portal).json["id"]
    with follow(portal, name) as connection:
        received = receive(connection, b"event: end")
    assert b"event: output" in received
    assert b"test session starts" in received
    wait_until(lambda: evaluation(portal, name)["status"] is not None)
    done = evaluation(portal, name)
    assert done["status"] in (0, 1)  # limits of speed may be broken on a busy machine
    assert "results.jsonl" in done["output"]
    assert portal.get(f"/api/v1/runs/{done['run']}").json["items"]
    page = portal.get(f"/evaluations/{name}").text
    assert "test session starts" in page
    assert TOKEN not in done["output"]


@pytest.mark.slow
def test_a_character_that_comes_in_two_parts_is_shown_as_one(results: Path, in_steps: Path) -> None:
    with allowing(results, in_steps) as portal:
        name = start(portal).json["id"]
        with follow(portal, name) as connection:
            first = receive(connection, b"it took 5")
            page = portal.get(f"/evaluations/{name}").text
            (in_steps / "second").touch()
            received = first + receive(connection, b"s\\n")
            (in_steps / "third").touch()
            receive(connection, b"event: end")
    assert rb"\u00b5s\n" in received
    assert rb"\ufffd" not in received
    assert "\ufffd" not in page


@pytest.mark.slow
def test_clients_that_go_away_leave_nothing_and_the_evaluation_goes_on(
    results: Path, in_steps: Path
) -> None:
    with allowing(results, in_steps) as portal:
        name = start(portal).json["id"]
        process = psutil.Process(portal.process.pid)
        for _ in range(Limits.connections + 50):
            with follow(portal, name) as connection:
                receive(connection, b"it took 5")
        # A portal that counts as many requests as it may have answers 429.
        assert portal.get(f"/evaluations/{name}").status == 200
        wait_until(lambda: len(process.net_connections()) == 1)
        (in_steps / "second").touch()
        (in_steps / "third").touch()
        wait_until(lambda: evaluation(portal, name)["status"] is not None)
        done = evaluation(portal, name)
        assert done["status"] == 7
        assert "it took 5 µs" in done["output"]
        assert portal.end()[2] == ""


@settings(max_examples=50)
@given(st.text(max_size=20), st.binary(max_size=20), st.integers(0, 100))
def test_parts_of_an_output_are_the_text_of_all_of_it(text: str, rest: bytes, cut: int) -> None:
    output = text.encode(errors="surrogatepass") + rest
    cut %= len(output) + 1
    first, length = whole_characters(output[:cut], False)
    second, end = whole_characters(output[length:], True)
    assert first + second == output.decode(errors="replace")
    assert length + end == len(output)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_however_the_portal_ends_its_child_and_the_agents_end(
    results: Path, hanging: Path, number: int
) -> None:
    with allowing(results, hanging) as portal:
        assert start(portal).status == 201
        processes = hanging_processes(portal, hanging)
        portal.end(number)
        wait_until(lambda: are_gone(processes))


@pytest.mark.slow
def test_two_starts_at_once_and_a_cancel(results: Path, hanging: Path) -> None:
    with allowing(results, hanging) as portal:
        name = start(portal).json["id"]
        again = start(portal)
        assert (again.status, again.json["detail"]) == (
            409,
            "an evaluation goes on; wait for it, or cancel it",
        )
        processes = hanging_processes(portal, hanging)
        done = portal.post(f"/api/v1/evaluations/{name}/cancel")
        assert (done.status, done.json["cancelled"]) == (200, True)
        # Interrupted as by Ctrl-C, or ended by force where that takes too long.
        assert done.json["status"] in (2, -signal.SIGKILL)
        wait_until(lambda: are_gone(processes))
        assert portal.post(f"/api/v1/evaluations/{name}/cancel").status == 409
        assert start(portal).status == 201


def test_only_manifests_of_the_folder_and_listed_options_are_started(
    portal: Portal, manifests: Path
) -> None:
    (manifests.parent / "secret.yaml").write_text("name: secret")
    (manifests / "linked.yaml").symlink_to(manifests / "digits.yaml")
    (manifests / "broken.yaml").write_text("models: [")
    (manifests / "conftest.py").write_text("")
    for manifest in HOSTILE:
        answer = start(portal, manifest)
        assert answer.status == 400
        assert "there is no such manifest" in answer.json["detail"]
    fields: list[dict[str, object]] = [
        {"stack": "--mlms-allow-code"},
        {"stack": "onnxruntime==1.0"},
        {"trace": "layer,--mlms-allow-code"},
        {"args": ["--mlms-allow-code"]},
    ]
    for wrong in fields:
        assert start(portal, **wrong).status == 400
    for body in ("[]", "[" * 60_000, '{"manifest": "\\ud800"}', '{"\\ud800": 1}'):
        assert portal.post("/api/v1/evaluations", body).status == 400
    form = urlencode({"manifest": "digits.yaml", "allow_code": "on"})
    kind = "application/x-www-form-urlencoded"
    assert portal.post("/evaluations", form, Content_Type=kind).status == 400
    assert portal.get("/api/v1/evaluations").json == {"evaluations": []}
    assert not descendants(portal.process.pid)


def test_an_evaluation_that_is_not_there_is_not_found(portal: Portal, results: Path) -> None:
    (results / "about.json").write_text("{}")
    for name in ("../..", "%2e%2e%2f%2e%2e", "20260101-000000-abcdef", "x"):
        assert portal.get(f"/evaluations/{name}").status == 404
        assert portal.get(f"/evaluations/{name}/events").status == 404
        assert portal.post(f"/api/v1/evaluations/{name}/cancel").status == 404


def test_without_allow_run_nothing_can_be_started(results: Path) -> None:
    with serving(results) as portal:
        assert start(portal).status in (404, 405)
        assert portal.get("/evaluations").status == 404


def test_options_become_one_word_each() -> None:
    fields = {
        "manifest": "a.yaml",
        "stack": "x",
        "against": "y",
        "trace": "layer,model",
        "full": "on",
    }
    request = read_request(fields, ["a.yaml"], ["x", "y"])
    assert list(request.options()) == [
        "--mlms-stack=x",
        "--mlms-against=y",
        "--mlms-trace=model,layer",
        "--mlms-full",
    ]
    assert list(EvaluationRequest("a.yaml").options()) == []
    with pytest.raises(BadRequest, match="'args' is no field; there are manifest, stack"):
        read_request({"args": "x"}, [], [])


def test_a_full_disk_ends_an_evaluation_and_the_next_one_starts_once_there_is_room(
    tmp_path: Path, in_steps: Path
) -> None:
    """It was "busy" until somebody started the portal anew."""
    with mount_small_disk(tmp_path / "disk", "8m") as disk, allowing(disk, in_steps) as portal:
        name = start(portal).json["id"]
        with follow(portal, name) as events:
            receive(events, b"it took 5 ")
            filler = fill(disk)
            refused = start(portal)
            for step in ("second", "third"):
                (in_steps / step).touch()
            receive(events, b"event: end")
        assert refused.status == 409
        refused = start(portal)
        assert (refused.status, "No space left" in refused.text) == (507, True)
        filler.unlink()
        assert start(portal).status == 201
        assert "Traceback" not in portal.end()[2]
