"""Runs that are pushed to a real portal, and uploads that are no runs."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import tarfile
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_mlms.show.portal.settings import Limits
from tests.support.histories import item_line, run_lines, run_name, write_run
from tests.support.packed_runs import pack, pack_run, results_of
from tests.support.portals import TOKEN, Answer, Portal, serving
from tests.support.small_disk import fill, mount_small_disk

FILE = "items/one/table.csv"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def portal(results: Path) -> Iterator[Portal]:
    history = f"--history={results.parent / 'history.sqlite'}"
    with serving(results, history, "--upload-limit=1 MiB") as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_is_left(results: Path) -> Iterator[None]:
    """Check that no upload leaves files beside runs, whatever became of it."""
    yield
    while list((results / ".portal").glob("upload-*")):  # of a client that has just gone
        time.sleep(0.01)
    assert all(path.name in (".portal", "latest") or path.is_dir() for path in results.iterdir())


def push(portal: Portal, data: bytes) -> Answer:
    return portal.post("/api/v1/runs", data)


def test_a_run_that_is_pushed_is_there_with_its_files_and_in_the_history(
    portal: Portal, results: Path
) -> None:
    artifacts = {"table.csv": FILE}
    answer = push(portal, pack_run(1, {FILE: b"a,b\n"}, artifacts=artifacts))
    name = run_name(1)
    assert (answer.status, answer.json) == (201, {"run": name, "state": "new", "history": ""})
    run = portal.get(f"/api/v1/runs/{name}").json
    assert run["items"][0]["verdict"] == "PASSED"
    number = run["numbers"][run["items"][0]["nodeid"]]
    content = portal.get(f"/api/v1/runs/{name}/items/{number}/artifacts/table.csv")
    assert content.text == "a,b\n"
    series = portal.get("/api/v1/series?contains=model-0").json
    assert series["total"] == 9
    points = portal.get(f"/api/v1/series/{series['series'][0]['id']}/points").json["points"]
    assert name in [point["run"] for point in points]  # other tests push to this portal, too


def test_the_same_run_pushed_again_changes_nothing(portal: Portal, results: Path) -> None:
    data = pack_run(2)
    assert push(portal, data).json["state"] == "new"
    path = results / run_name(2) / "results.jsonl"
    before = (path.stat().st_mtime_ns, path.stat().st_ino)
    assert push(portal, data).json["state"] == "unchanged"
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


def test_a_run_that_went_on_is_continued_and_never_cut_short(portal: Portal) -> None:
    lines = list(run_lines(3, items=2))
    short = pack({"results.jsonl": results_of(lines[:2]), "items/a": b"1"})
    whole = pack({"results.jsonl": results_of(lines), "items/a": b"2", "items/b": b"3"})
    states = [push(portal, data).json["state"] for data in (short, whole, short, whole)]
    assert states == ["new", "longer", "unchanged", "unchanged"]
    assert len(portal.get(f"/api/v1/runs/{run_name(3)}").json["items"]) == 2


@pytest.mark.parametrize(("first", "second"), [("items/x", "items/x/y"), ("items/x/y", "items/x")])
def test_a_run_whose_file_is_a_folder_of_what_was_pushed_is_refused_and_replaces_nothing(
    tmp_path: Path, first: str, second: str
) -> None:
    results = tmp_path / "results"
    results.mkdir()
    lines = list(run_lines(3, items=2))
    with serving(results) as portal:
        push(portal, pack({"results.jsonl": results_of(lines[:2]), "items/a": b"1", first: b""}))
        files = {"results.jsonl": results_of(lines), "items/a": b"2", second: b""}
        answer = push(portal, pack(files))
    assert answer.status == 409
    assert "items/x is a folder" in answer.json["detail"]
    assert (results / run_name(3) / "items" / "a").read_bytes() == b"1"


def test_another_run_of_the_same_name_is_refused(portal: Portal) -> None:
    push(portal, pack_run(4))
    answer = push(portal, pack_run(4, ratio=2.0))
    assert answer.status == 409
    assert "the portal has another run of this name" in answer.json["detail"]


def test_a_run_is_of_the_token_that_pushed_it(tmp_path: Path) -> None:
    results, tokens = tmp_path / "results", tmp_path / "tokens"
    one, two, reader = (f"token-number-{number}-of-the-tests" for number in (1, 2, 3))
    tokens.write_text(f"push:{one}\npush:{two}\n{reader}\n")
    tokens.chmod(0o600)
    lines = list(run_lines(3, items=2))
    short, whole = (pack({"results.jsonl": results_of(part)}) for part in (lines[:2], lines))
    local = results / run_name(1)
    local.mkdir(parents=True)
    (local / "results.jsonl").write_bytes(results_of(list(run_lines(1))))
    with serving(results, f"--token-file={tokens}", token=None) as portal:

        def status(token: str, data: bytes) -> int:
            return portal.post("/api/v1/runs", data, Authorization=f"Bearer {token}").status

        assert status(one, short) == 201
        others = [status(token, data) for token in (two, reader) for data in (short, whole)]
        assert others == [409] * 4, "whether they have the same lines or not"
        assert (status(one, short), status(one, whole)) == (200, 200)
        assert status(two, pack_run(1)) == 409, "a run that nobody pushed"
        assert status(reader, pack_run(1)) == 200


def test_one_run_pushed_by_many_at_once_is_added_once(portal: Portal) -> None:
    data = pack_run(5)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: push(portal, data), range(8)))
    states = [answer.json["state"] for answer in answers]
    assert sorted(states) == ["new"] + ["unchanged"] * 7


def link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = tarfile.SYMTYPE
    member.linkname = target
    return member


def zip_with_link() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        member = zipfile.ZipInfo("items/x")
        member.external_attr = 0o120777 << 16
        archive.writestr(member, "/etc/passwd")
    return buffer.getvalue()


GOOD = results_of(list(run_lines(9)))
NO_RUNS = {
    "no archive": (b"hello", "can't be unpacked"),
    "nothing": (b"", "can't be unpacked"),
    "cut off": (pack_run(9)[:-40], "can't be unpacked"),
    "no results": (pack({"items/a": b""}), "there is no results.jsonl at the top"),
    "other files": (
        pack({"results.jsonl": GOOD, "run.sh": b""}),
        "run.sh: a run has results.jsonl",
    ),
    "lock": (pack({"results.jsonl": GOOD, ".lock": b""}), "and nothing else"),
    "up": (pack({"results.jsonl": GOOD, "items/../../x": b""}), "can't be unpacked"),
    "absolute": (pack({"results.jsonl": GOOD, "/tmp/x": b""}), "can't be unpacked"),
    "long name": (pack({"results.jsonl": GOOD, f"items/{'x' * 300}": b""}), "File name too long"),
    "link": (pack({"results.jsonl": link("results.jsonl", "/etc/passwd")}), "is a link"),
    "linked folder": (pack({"results.jsonl": GOOD, "items": link("items", "/")}), "is a link"),
    "linked in zip": (zip_with_link(), "is a link"),
    "no lines": (pack({"results.jsonl": b""}), "it has the lines of 0 runs"),
    "two runs": (
        pack({"results.jsonl": GOOD + results_of(list(run_lines(10)))}),
        "it has the lines of 2 runs",
    ),
    "no JSON": (pack({"results.jsonl": GOOD + b"hello\n"}), "results.jsonl:4: it is no line"),
    "other format": (
        pack({"results.jsonl": results_of([{"format": 2, "run": "x", "type": "run"}])}),
        "results.jsonl:1: it is no line of results, format 1",
    ),
    "no item": (
        pack(
            {
                "results.jsonl": GOOD
                + results_of([{"format": 1, "run": run_name(9), "type": "item"}])
            }
        ),
        "results.jsonl:4: nodeid",
    ),
    "name": (
        pack({"results.jsonl": results_of([{"format": 1, "run": "../x", "type": "run"}])}),
        "is no name of a run",
    ),
    **{
        name: (
            pack({"results.jsonl": results_of([{"format": 1, "run": name, "type": "run"}])}),
            "is no name of a run",
        )
        for name in ("history.sqlite", "history.sqlite-journal", "Latest", "a.lock", "a.1.lock")
    },
    "hidden": (
        pack({"results.jsonl": results_of([{"format": 1, "run": ".portal", "type": "run"}])}),
        "is no name of a run",
    ),
}


@pytest.mark.parametrize("what", list(NO_RUNS))
def test_what_is_no_run_is_refused_and_leaves_nothing(
    portal: Portal, results: Path, what: str
) -> None:
    data, reason = NO_RUNS[what]
    before = sorted(results.iterdir())
    answer = push(portal, data)
    assert answer.status == 400
    assert reason in answer.json["detail"]
    assert str(results) not in answer.text
    assert sorted(results.iterdir()) == before


TEXTS_OF_NO_FILE = ["\ud800", "\0", "a\r\nSet-Cookie: b", "x" * 300]


@pytest.mark.parametrize("text", TEXTS_OF_NO_FILE)
def test_names_that_nothing_can_have_spoil_neither_the_run_nor_the_others(
    portal: Portal, text: str
) -> None:
    number = 20 + TEXTS_OF_NO_FILE.index(text)
    line = item_line(number, artifacts={text: f"items/{text}", "worst.json": f"items/{text}"})
    line["nodeid"] = line["manifest"]["name"] = line["machine"]["host"] = text
    line["message"] = text
    first, _, last = run_lines(number)
    status = push(portal, pack({"results.jsonl": results_of([first, line, last])})).status
    assert status == (400 if text == "\ud800" else 201)
    paths = ["/api/v1/runs", "/api/v1/items", "/api/v1/hosts", "/runs", "/models", "/hosts"]
    if status == 201:
        paths += [f"/runs/{run_name(number)}", f"/runs/{run_name(number)}/items/1"]
    for path in paths:
        assert portal.get(path).status == 200, path
    assert push(portal, pack_run(number + 10)).status == 201


NUMBERS_OF_NO_DATABASE = [
    {"exit_status": 10**30},
    {"exit_status": "x"},
    {"repetition": 10**30},
    {"command": 5},
    {"git": {"sha": 5, "branch": [1]}},
]


@pytest.mark.parametrize("fields", NUMBERS_OF_NO_DATABASE)
def test_values_of_other_types_spoil_neither_the_run_nor_the_others(
    portal: Portal, results: Path, fields: dict[str, object]
) -> None:
    number = 40 + NUMBERS_OF_NO_DATABASE.index(fields)
    lines = [{**line, **fields} for line in run_lines(number)]
    answer = push(portal, pack({"results.jsonl": results_of(lines)}))
    assert answer.status == 201
    assert str(results) not in answer.text
    for path in ("/api/v1/runs", f"/api/v1/runs/{run_name(number)}", f"/runs/{run_name(number)}"):
        assert portal.get(path).status == 200


def test_a_bomb_is_refused_by_what_it_unpacks_to(portal: Portal) -> None:
    zeros = pack({"results.jsonl": GOOD, "items/zeros": bytes(9 << 20)})
    assert len(zeros) < 20_000
    answer = push(portal, zeros)
    assert answer.status == 400
    assert "it unpacks to more than 8.00 MiB or 100,000 files" in answer.json["detail"]


def test_a_bomb_of_bombs_is_refused(portal: Portal) -> None:
    answer = push(portal, gzip.compress(gzip.compress(bytes(64 << 20))))
    assert answer.status == 400


def test_a_line_that_is_too_long_is_refused(tmp_path: Path) -> None:
    line = {**item_line(0), "text": "x" * (100 << 20)}
    data = pack({"results.jsonl": results_of([line])})
    with serving(tmp_path) as portal:
        answer = push(portal, data)
        assert answer.status == 400
        assert "results.jsonl:1: the line has 104," in answer.json["detail"]


def test_a_long_line_in_the_folder_of_results_is_left_out(tmp_path: Path) -> None:
    lines = list(run_lines(0, items=3))
    lines[2]["text"] = "x" * (17 << 20)
    folder = tmp_path / run_name(0)
    folder.mkdir()
    (folder / "results.jsonl").write_bytes(results_of(lines))
    with serving(tmp_path) as portal:
        run = portal.get("/api/v1/runs").json["runs"][0]
        assert run["left_out"] == 1
        assert run["counts"] == {"PASSED": 2}
        assert run["exit_status"] == 0


def test_an_upload_that_is_too_large_is_refused_before_it_is_sent(portal: Portal) -> None:
    answer = portal.request("POST", "/api/v1/runs", b"", {"Content-Length": str(2 << 20)})
    assert answer.status == 413


def test_a_portal_whose_disk_is_full_shows_what_it_has(tmp_path: Path) -> None:
    with mount_small_disk(tmp_path / "disk", "8m") as disk, serving(disk) as portal:
        assert push(portal, pack_run(1)).status == 201
        for number in range(3, 20):  # they come by another way
            write_run(disk, number)
        filler = fill(disk)
        answer = push(portal, pack_run(2))
        assert answer.status == 507
        assert "No space left on device" in answer.json["detail"]
        time.sleep(1.1)  # the index isn't brought up to date more often than once a second
        for path in ("/runs", f"/runs/{run_name(1)}", "/stacks", "/api/v1/runs"):
            assert portal.get(path).status == 200, path
        filler.unlink()
        assert push(portal, pack_run(2)).status == 201
        assert portal.get("/api/v1/runs").json["total"] == 19
        errors = portal.end()[2]
    assert "index.sqlite can't be written: database or disk is full" in errors
    assert "Traceback" not in errors


def test_a_client_that_goes_away_leaves_nothing(portal: Portal, results: Path) -> None:
    data = pack_run(6)
    with portal.connect() as connection:
        head = f"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n"
        connection.sendall(f"{head}Authorization: Bearer {portal.token}\r\n\r\n".encode())
        connection.sendall(data[:-1])
    assert push(portal, pack_run(7)).status == 201  # after it, in the order of the disk's names
    assert not (results / run_name(6)).exists()


def test_a_run_that_names_files_elsewhere_shows_none_of_them(portal: Portal) -> None:
    artifacts = {"passwd": "/etc/passwd", "up": "items/../../x", "index": ".portal/index.sqlite"}
    assert push(portal, pack_run(8, artifacts=artifacts)).status == 201
    assert portal.get(f"/api/v1/runs/{run_name(8)}/items/1/artifacts").json == {"artifacts": {}}


def test_clients_that_send_slowly_keep_no_other_from_pushing(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    head = f"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    with serving(results) as portal, contextlib.ExitStack() as stack:
        for _ in range(6):  # more than are unpacked at a time
            slow = stack.enter_context(portal.connect())
            slow.sendall(f"{head}Content-Length: 1000000\r\n\r\n".encode() + b"x")
        assert push(portal, pack_run(1)).status == 201


def test_a_token_leaves_connections_to_the_others(tmp_path: Path) -> None:
    results, tokens = tmp_path / "results", tmp_path / "tokens"
    results.mkdir()
    one, two = (f"token-number-{number}-of-the-tests" for number in (1, 2))
    tokens.write_text(f"push:{one}\npush:{two}\n")
    tokens.chmod(0o600)
    head = f"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {one}\r\n"
    most = Limits().uploads_of_token
    with serving(results, f"--token-file={tokens}", token=None) as portal:

        def status(token: str) -> int:
            return portal.post("/api/v1/runs", pack_run(1), Authorization=f"Bearer {token}").status

        with contextlib.ExitStack() as stack:
            for _ in range(most):
                slow = stack.enter_context(portal.connect())
                slow.sendall(f"{head}Content-Length: 1000000\r\n\r\n".encode() + b"x")
            while len(list((results / ".portal").glob("upload-*"))) < most:
                time.sleep(0.01)
            assert (status(one), status(two)) == (429, 201)
        while list((results / ".portal").glob("upload-*")):
            time.sleep(0.01)
        assert status(one) == 409, "once they have gone: it is a run of the other token"


@pytest.mark.slow
def test_eight_clients_push_a_hundred_runs_each_and_nothing_is_lost_or_twice(
    tmp_path: Path,
) -> None:
    results = tmp_path / "results"
    results.mkdir()
    history = f"--history={tmp_path / 'history.sqlite'}"
    numbers = range(800)
    again = numbers[::8]
    with serving(results, history) as portal:
        for expected, pushed in (("new", numbers), ("unchanged", again)):
            with ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda number: push(portal, pack_run(number)), pushed))
            assert {answer.status for answer in answers} <= {200, 201}
            assert {answer.json["state"] for answer in answers} == {expected}
            assert {answer.json["history"] for answer in answers} == {""}
        listed = portal.get("/api/v1/runs?limit=1000").json
        assert sorted(run["name"] for run in listed["runs"]) == sorted(map(run_name, numbers))
        series = portal.get("/api/v1/series").json["series"]
        assert len(series) == 9
        for one in series:
            points = portal.get(f"/api/v1/series/{one['id']}/points?limit=1000").json["points"]
            assert len(points) == len({point["run"] for point in points}) == 800
    for number in numbers:
        text = (results / run_name(number) / "results.jsonl").read_text()
        assert [json.loads(line) for line in text.splitlines()] == list(run_lines(number))
    assert len(os.listdir(results)) == 801
