"""Predictions over REST: the command's answers, hostile inputs, tokens, and crowds."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
import shlex
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from starlette.exceptions import HTTPException

from pytest_mlms.show.portal.multipart import Part, given_of, parse_multipart
from pytest_mlms.show.portal.predict_api import read_asked
from tests.support.portals import TOKEN, Answer, Portal, serving
from tests.support.project import DIGITS, HANG_GUARD, ROOT
from tests.support.served_models import write_faulty_model, write_manifests

PATH = "/api/v1/predict"
PICTURES = np.load(DIGITS / "digits_test.npz")["image"]
BOUNDARY = "a-boundary"
FORM = f"multipart/form-data; boundary={BOUNDARY}"
OTHER = "a-token-for-predictions-only"


def png(picture: Any) -> bytes:
    data = io.BytesIO()
    Image.fromarray(picture).save(data, "PNG")
    return data.getvalue()


def form(**fields: str | bytes) -> bytes:
    """Return a form; bytes are a file, and ``input_NAME`` is input.NAME."""
    parts = []
    for name, value in fields.items():
        file = '; filename="a.png"' if isinstance(value, bytes) else ""
        head = f'Content-Disposition: form-data; name="{name.replace("_", ".")}"{file}'
        content = value if isinstance(value, bytes) else value.encode()
        parts.append(f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + content + b"\r\n")
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def ask(portal: Portal, **fields: str | bytes) -> Answer:
    return portal.post(PATH, form(**fields), Content_Type=FORM)


def ask_json(portal: Portal, **fields: Any) -> Answer:
    return portal.post(PATH, json.dumps(fields), Content_Type="application/json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the folders m, of manifests, and results."""
    folder = tmp_path_factory.mktemp("portal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLMS_LOCKS", str(folder / "locks"))
        patch.setenv("MLMS_CACHE", str(folder / "cache"))
        (folder / "results").mkdir()
        write_manifests(folder / "m")
        stacks = {"newer": {"framework": "onnxruntime", "requirements": ["onnxruntime>=99"]}}
        (folder / "m" / "stacks.yaml").write_text(json.dumps(stacks))
        (folder / "tokens").write_text(f"{TOKEN}\npredict:{OTHER}\nread:{OTHER}-not\n")
        yield folder


@pytest.fixture(scope="module")
def portal(folder: Path) -> Iterator[Portal]:
    options = ("--allow-predict", f"--manifests={folder / 'm'}")
    with serving(folder / "results", f"--token-file={folder / 'tokens'}", *options) as portal:
        yield portal


def test_an_answer_is_the_line_of_the_command(portal: Portal, folder: Path) -> None:
    names = [str(folder / f"{number}.png") for number in range(5)]
    for number, name in enumerate(names):
        Path(name).write_bytes(png(PICTURES[number]))
    command = [sys.executable, "-m", "pytest_mlms", "predict", "--json", "digits.yaml", *names]
    output = subprocess.run(command, cwd=folder / "m", capture_output=True, check=True).stdout
    for text, name in zip(output.splitlines(), names, strict=True):
        line = json.loads(text)
        found = ask(portal, manifest="digits.yaml", input=Path(name).read_bytes()).json
        assert found == {**line, "input": "a.png", "latency": None}
    timed = ask(portal, manifest="digits-cnn", latency="true", input=png(PICTURES[0])).json
    assert timed["latency"] > 0


def test_json_has_files_texts_and_arrays(portal: Portal) -> None:
    picture = {"base64": base64.b64encode(png(PICTURES[3])).decode()}
    of_file = ask_json(portal, manifest="digits.yaml", stack="here", input=picture)
    of_array = ask_json(portal, manifest="digits.yaml", input=PICTURES[3].tolist())
    assert of_file.json["answers"] == of_array.json["answers"]
    text = ask_json(portal, manifest="text/made.yaml", input="the cat sat")
    assert text.json["answers"]["logits"][0]["label"] == "about a cat"
    assert text.json["input"] == "the cat sat"
    added = ask_json(portal, manifest="sums.yaml", input={"a": [1, 2, 3], "b": "1 1 1"})
    assert added.json["answers"]["logits"]["values"] == [2, 3, 4]
    added = ask(portal, manifest="sums.yaml", input_a="1 2 3", input_b="1 1 1")
    assert added.json["answers"]["logits"]["values"] == [2, 3, 4]


def test_a_text_is_never_a_path(portal: Portal, folder: Path) -> None:
    secret = folder / "m" / "note.txt"
    secret.write_text("the cat sat")
    for text in (str(secret), "note.txt", f"file://{secret}"):
        answer = ask(portal, manifest="text/made.yaml", input=text)
        of_words = ask_json(portal, manifest="text/made.yaml", input=text)
        assert answer.json["answers"] == of_words.json["answers"]
        assert answer.json["answers"]["logits"][0]["score"] == pytest.approx(0.5)
    answer = ask(portal, manifest="digits.yaml", input=str(folder / "0.png"))
    assert answer.status == 400


WRONG: list[tuple[dict[str, Any], int, str]] = [
    ({"manifest": "digits.yaml", "input": "one two"}, 400, "'one two' is no numbers"),
    ({"manifest": "digits.yaml", "input": [[1.0, 2.0]]}, 400, ""),
    ({"manifest": "digits.yaml", "input": [[1], [2, 3]]}, 400, "no array of numbers"),
    ({"manifest": "digits.yaml", "input": ["1"]}, 400, "no array of numbers"),
    ({"manifest": "digits.yaml", "input": [1 << 70]}, 400, "no array of numbers"),
    ({"manifest": "digits.yaml", "input": 1 << 70}, 400, "takes numbers, and has object"),
    ({"manifest": "digits.yaml", "input": {"base64": "?"}}, 400, "base64"),
    ({"manifest": "digits.yaml", "input": {"base64": "AAAA"}}, 400, "are not an image"),
    ({"manifest": "digits.yaml", "input": None}, 400, "an input is a text"),
    ({"manifest": "digits.yaml", "input": {"x": 1}}, 400, "no input is called 'x'"),
    ({"manifest": "text/made.yaml", "input": {"": "a", "x": "b"}}, 400, "has no name"),
    ({"manifest": "digits.yaml"}, 400, "send a JSON object"),
    ({"manifest": 3, "input": 1}, 400, "are texts"),
    ({"manifest": "digits.yaml", "input": 1, "path": "/"}, 400, "'path' is no field"),
    ({"manifest": "../m/digits.yaml", "input": 1}, 404, "there is no manifest"),
    (
        {"manifest": "made", "input": 1},
        404,
        "by its path: boxes/made.yaml, sums.yaml, text/made.yaml",
    ),
    ({"manifest": "digit.yaml", "input": 1}, 404, "name one by its path: digits.yaml"),
    ({"manifest": "digits.yaml", "input": 1, "latency": "yes"}, 400, "is true or false"),
    ({"manifest": "digits.yaml", "stack": "pytorch==2.13.0", "input": 1}, 404, "there is no stack"),
    ({"manifest": "digits.yaml", "stack": "newer", "input": 1}, 409, "has not been created"),
    ({"manifest": "sums.yaml", "input": [1, 2, 3]}, 400, "the model has 2 inputs"),
    ({"manifest": "sums.yaml", "input": {"a": [1], "b": [1, 2, 3]}}, 400, "input 'a'"),
]


@pytest.mark.parametrize(("fields", "status", "text"), WRONG)
def test_what_can_not_be_answered_is_told(
    portal: Portal, folder: Path, fields: dict[str, Any], status: int, text: str
) -> None:
    answer = ask_json(portal, **fields)
    assert (answer.status, text in answer.json["detail"]) == (status, True), answer.text
    assert str(folder) not in answer.text


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("latncy", "true", "'latncy' is no field; there are manifest, stack, input, latency"),
        ("latency", "yes", "'latency' is true or false"),
        ("inputs", "1", "'inputs' is no field"),
    ],
)
def test_a_form_with_a_field_or_a_value_that_does_nothing_is_refused(
    portal: Portal, field: str, value: str, text: str
) -> None:
    fields: dict[str, str | bytes] = {"manifest": "digits.yaml", "input": png(PICTURES[0])}
    answer = ask(portal, **fields, **{field: value})
    assert (answer.status, text in answer.json["detail"]) == (400, True), answer.text


def test_the_command_that_is_told_for_a_missing_stack_finds_the_declared_one(
    portal: Portal, folder: Path
) -> None:
    answer = ask_json(portal, manifest="digits.yaml", stack="newer", input=1)
    told = re.search(r"in the folder of manifests, '(mlms stack create .*?)' does", answer.text)
    assert told, answer.text
    words = shlex.split(told[1].replace(" create ", " show "))
    shown = subprocess.run(
        [sys.executable, "-m", "pytest_mlms", *words[1:]],
        cwd=folder / "m",
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.search(r"^declared +stacks\.yaml:1$", shown.stdout, re.MULTILINE), shown


def test_a_picture_of_100_million_pixels_is_answered_or_refused(portal: Portal) -> None:
    huge = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(huge, "PNG")
    answer = ask(portal, manifest="digits.yaml", input=huge.getvalue())
    assert answer.status in (200, 400)
    huge = io.BytesIO()
    Image.new("1", (20_000, 10_000)).save(huge, "PNG")
    answer = ask(portal, manifest="digits.yaml", input=huge.getvalue())
    assert (answer.status, "178956970 pixels" in answer.text) == (400, True), answer.text


def test_a_manifest_whose_files_are_gone_or_wrong_is_told(portal: Portal, folder: Path) -> None:
    path = write_faulty_model(folder / "m", "gone", answer=1)
    (folder / "m" / "gone.json").unlink()
    portal_knows = 404
    while portal_knows == 404:  # the list of manifests is some seconds old
        answer = ask_json(portal, manifest="gone.yaml", input=PICTURES[0].tolist())
        portal_knows = answer.status
    assert (answer.status, "gone.json" in answer.json["detail"]) == (409, True)
    path.unlink()
    answer = ask_json(portal, manifest="gone.yaml", input=PICTURES[0].tolist())
    assert answer.status == 404


def test_the_examples_of_the_docs_are_answered(portal: Portal, folder: Path) -> None:
    text = (ROOT / "docs" / "portal.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("curl ") and PATH in line]
    assert len(lines) >= 3
    (folder / "seven.png").write_bytes(png(PICTURES[0]))
    for line in lines:
        words = shlex.split(line.replace("http://127.0.0.1:8765/", portal.url))
        words += ["--silent", "--fail-with-body", "-H", f"Authorization: Bearer {TOKEN}"]
        done = subprocess.run(words, cwd=folder, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout
        assert json.loads(done.stdout)["answers"]["logits"]


def test_a_token_opens_predictions_only_if_it_is_for_them(portal: Portal) -> None:
    body = json.dumps({"manifest": "digits.yaml", "input": PICTURES[0].tolist()})
    head = {"Content_Type": "application/json"}
    statuses = {}
    for token in (OTHER, f"{OTHER}-not", "none-of-the-portal-at-all"):
        sent = {"Authorization": f"Bearer {token}", **head}
        statuses[token] = (portal.post(PATH, body, **sent).status, portal.get("/v2", **sent).status)
    assert list(statuses.values()) == [(200, 200), (403, 403), (401, 401)]
    assert portal.get("/runs", Authorization=f"Bearer {OTHER}").status == 403
    evil = portal.post(PATH, body, Origin="https://evil.example", **head)
    assert evil.status == 403


def test_a_portal_of_loopback_without_a_token_takes_predictions_and_nothing_else(
    folder: Path,
) -> None:
    options = ("--allow-predict", f"--manifests={folder / 'm'}")
    with serving(folder / "results", *options, token=None) as portal:
        given = {"manifest": "digits.yaml", "input": PICTURES[0].tolist()}
        assert ask_json(portal, **given).status == 200
        assert portal.post("/api/v1/runs", b"").status == 403
        evil = portal.post(PATH, json.dumps(given), Origin="https://evil.example")
        assert evil.status == 403
        model = "/v2/models/digits.yaml/ready"  # which opens the model
        for site, status in (("cross-site", 403), ("same-site", 403), ("none", 200)):
            assert portal.get(model, Sec_Fetch_Site=site).status == status
    with serving(folder / "results", f"--manifests={folder / 'm'}", token=None) as portal:
        assert ask_json(portal, **given).status == 403
        assert portal.get("/v2").status == 404


def test_too_large_an_input_is_refused(portal: Portal) -> None:
    with portal.connect() as connection:
        head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        connection.sendall(f"{head}Content-Length: {33 << 20}\r\n\r\n".encode())
        assert b" 413 " in connection.recv(1 << 16)
    listed = portal.post(PATH, b" " * (5 << 20), Content_Type="application/json")
    assert (listed.status, "send what is larger as a file" in listed.text) == (413, True)
    assert portal.post(PATH, b"x", Content_Type="text/plain").status == 400


async def _post(portal: Portal, body: bytes, opening: asyncio.Semaphore) -> tuple[int, bytes]:
    """Post a form on a connection of its own; return the status and the body.

    Few open theirs at a time: the portal closes one whose head is late, as those of a crowd that
    opens all first are on a busy machine.
    """
    head = [f"POST {PATH} HTTP/1.1", "Host: localhost", f"Content-Type: {FORM}"]
    head += [f"Authorization: Bearer {TOKEN}", f"Content-Length: {len(body)}", "Connection: close"]
    async with opening:
        reader, writer = await asyncio.open_connection(*portal.address)
        writer.write("\r\n".join([*head, "", ""]).encode() + body)
    try:
        answer = await asyncio.wait_for(reader.read(), HANG_GUARD)
    finally:
        writer.close()
    headers, _, content = answer.partition(b"\r\n\r\n")
    return int(headers.split()[1]), content


def crowd(portal: Portal, count: int) -> tuple[Counter[int], list[tuple[int, Any]], int]:
    """Send so many predictions at once; return statuses, answers by picture, the peak of memory."""
    bodies = [form(manifest="digits.yaml", input=png(picture)) for picture in PICTURES[:100]]

    async def run() -> Any:
        opening = asyncio.Semaphore(50)
        asked = (_post(portal, bodies[number % 100], opening) for number in range(count))
        return await asyncio.gather(*asked)

    found = asyncio.run(run())
    statuses = Counter(status for status, _ in found)
    answers = [
        (number % 100, json.loads(content)["answers"])
        for number, (status, content) in enumerate(found)
        if status == 200
    ]
    return statuses, answers, peak_of(portal)


def peak_of(portal: Portal) -> int:
    """Return the most bytes that a portal has had in memory."""
    status = Path(f"/proc/{portal.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def test_two_hundred_at_once_are_all_answered_alike(portal: Portal) -> None:
    alone = {}
    for number in range(100):
        answer = ask(portal, manifest="digits.yaml", input=png(PICTURES[number]))
        alone[number] = answer.json["answers"]
    before = peak_of(portal)
    statuses, answers, after = crowd(portal, 200)
    assert statuses == {200: 200}
    assert all(found == alone[number] for number, found in answers)
    assert after - before < 64 << 20


def test_the_surplus_of_a_crowd_is_told_to_come_back(portal: Portal) -> None:
    statuses, answers, _ = crowd(portal, 1000)
    assert set(statuses) == {200, 429}
    assert len(answers) >= 256, "those that had a place"
    assert ask(portal, manifest="digits.yaml", input=png(PICTURES[0])).status == 200


def test_slow_clients_and_those_that_go_away_hold_no_place(folder: Path) -> None:
    options = ("--allow-predict", f"--manifests={folder / 'm'}", "--timeout=3")
    with serving(folder / "results", *options) as portal:
        _hold_no_place(portal)


def _hold_no_place(portal: Portal) -> None:
    body = form(manifest="digits.yaml", input=png(PICTURES[0]))
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    head += f"Content-Type: {FORM}\r\nContent-Length: {len(body)}\r\n\r\n"
    slow = []
    for _ in range(300):
        connection = portal.connect()
        connection.sendall(head.encode() + body[:1])
        slow.append(connection)
    for _ in range(300):
        connection = portal.connect()
        connection.sendall(head.encode() + body)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()
    answer = ask(portal, manifest="digits.yaml", input=png(PICTURES[0]))
    while answer.status == 429:
        answer = ask(portal, manifest="digits.yaml", input=png(PICTURES[0]))
    assert answer.status == 200
    for connection in slow:  # a byte now and then doesn't keep it beyond --timeout
        with connection:
            reply = connection.recv(1 << 16)
            assert not reply or b" 408 " in reply


@pytest.mark.slow
def test_ten_thousand_at_once_lose_none_that_was_accepted(portal: Portal) -> None:
    statuses, answers, after = crowd(portal, 10_000)
    assert set(statuses) == {200, 429}
    assert sum(statuses.values()) == 10_000
    assert len(answers) >= 256
    assert after < 512 << 20


def test_the_end_of_the_portal_is_that_of_its_models(folder: Path) -> None:
    options = ("--allow-predict", f"--manifests={folder / 'm'}")
    with serving(folder / "results", *options) as portal:
        ask_json(portal, manifest="digits.yaml", input=PICTURES[0].tolist())
        family = psutil.Process(portal.process.pid).children(recursive=True)
        assert len(family) >= 2
        assert portal.end()[0] == 0
    psutil.wait_procs(family, timeout=HANG_GUARD)
    assert not any(process.is_running() for process in family)


NAMES = st.text(st.characters(exclude_characters='"\r\n\\', exclude_categories=["C"]), min_size=1)


@given(fields=st.lists(st.tuples(NAMES, st.binary(max_size=50)), max_size=5))
def test_a_form_is_read_as_it_was_written(fields: list[tuple[str, bytes]]) -> None:
    parts = []
    for name, content in fields:
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="f"'
        parts.append(f"{head}\r\n\r\n".encode() + content + b"\r\n")
    body = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
    assert parse_multipart(body, FORM) == [Part(name, "f", content) for name, content in fields]


@given(body=st.binary(max_size=200))
def test_no_form_is_more_than_an_error(body: bytes) -> None:
    for content in (body, form(input=body), form(input=b"x")[: len(body)]):
        try:
            given_of(parse_multipart(content, FORM))
        except HTTPException as error:
            assert error.status_code in (400, 415)


def test_lists_that_are_nested_as_deep_as_python_can_read_are_refused() -> None:
    for depth in [*range(700, 1100), 100_000]:
        body = b'{"manifest": "m", "input": %s%s}' % (b"[" * depth, b"]" * depth)
        with pytest.raises(HTTPException):
            read_asked(body, "application/json")


@pytest.mark.parametrize(
    "name", [b"idna''a", b"undefined''a", b"a\0b''a", b"punycode''%ff", b"utf-7''+2AA-"]
)
def test_a_file_s_name_in_no_character_set_is_refused(name: bytes) -> None:
    head = b"Content-Disposition: form-data; name=input; filename*=" + name
    body = b"--a\r\n" + head + b"\r\n\r\nx\r\n--a--\r\n"
    with pytest.raises(HTTPException, match="the name of a file is no text"):
        parse_multipart(body, "multipart/form-data; boundary=a")
