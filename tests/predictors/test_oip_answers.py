"""What servers of the Open Inference Protocol may answer, and the predictor doesn't take for an answer."""

from __future__ import annotations

import contextlib
import json
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlms_predictors import Load, Loaded, oip
from mlms_predictors._run import servers

from tests.support.project import HANG_GUARD

TOKEN = "a-token-of-the-tests-71ab"
OF_Y = {"name": "y", "datatype": "FP32", "shape": [-1, 2]}
META = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}], "outputs": [OF_Y]}
RIGHT: dict[str, Any] = {**OF_Y, "shape": [3, 2], "data": [1, 2, 3, 4, 5, 6.5]}
LENGTH = "Inference-Header-Content-Length"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        found = self.server.about if self.path == "/v2" else self.server.meta
        self._send(json.dumps(found).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        count = self.server.count = self.server.count + 1
        self._send(*self.server.answer(count))

    def _send(
        self, body: bytes, headers: dict[str, str] | None = None, status: tuple[Any, ...] = (200,)
    ) -> None:
        self.send_response(*status)
        for name, text in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


class Server(ThreadingHTTPServer):
    """A server of the model m, of which a test says the answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.about: dict[str, Any] = {"name": "s", "version": "1", "extensions": []}
        self.meta: dict[str, Any] = META
        self.count = 0

    def answer(self, count: int) -> tuple[Any, ...]:
        """Return the arguments of ``_send`` for the answer of this number."""
        return (self.outputs(RIGHT),)

    def outputs(self, *outputs: dict[str, Any], **keys: Any) -> bytes:
        return json.dumps({"model_name": "m", **keys, "outputs": outputs}).encode()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        yield made
        made.shutdown()


@contextlib.contextmanager
def loaded(server: Server, **options: Any) -> Iterator[Loaded]:
    scheme = "https" if isinstance(server.socket, ssl.SSLSocket) else "http"
    endpoint = {"endpoint": f"{scheme}://127.0.0.1:{server.server_address[1]}"}
    model = oip.load(Load({}, "cpu", None, {"model": "m", **options}, False, endpoint))
    try:
        yield model
    finally:
        oip.close(model)


def predict(model: Loaded) -> Any:
    (output,) = oip.predict(model, {"x": np.ones((3, 2), np.float32)})
    return output


def answers(server: Server, *answer: Any, **keys: Any) -> None:
    server.answer = lambda count: answer  # type: ignore[method-assign]
    server.meta = {**META, "outputs": [{**OF_Y, **keys}]}


def test_a_right_answer_is_taken_whatever_its_numbers_look_like(server: Server) -> None:
    answers(server, server.outputs({**RIGHT, "data": [[1, None], [3, 1e-50], [5, 6.5]]}))
    with loaded(server) as model:
        np.testing.assert_array_equal(
            predict(model), np.array([[1, np.nan], [3, 0], [5, 6.5]], np.float32)
        )


@pytest.mark.parametrize("datatype", ["INT64", "UINT8", "BOOL", "FP16", "FP32"])
def test_an_output_without_elements_is_one_in_json_too(server: Server, datatype: str) -> None:
    """As of a detector that finds nothing."""
    output = {**RIGHT, "datatype": datatype, "shape": [0, 2], "data": []}
    answers(server, server.outputs(output), datatype=datatype)
    with loaded(server) as model:
        assert predict(model).shape == (0, 2)


@pytest.mark.parametrize(
    ("keys", "of_model", "expected"),
    [
        ({"datatype": "INT64", "data": [1] * 6}, {}, "is int64 3 x 2, and the model's is float32"),
        ({"datatype": "FP64"}, {}, "is float64 3 x 2, and the model's is float32"),
        ({"shape": [2, 3]}, {}, "is float32 2 x 3, and the model's is float32 any x 2"),
        ({"shape": [6]}, {}, "is float32 6, and"),
        ({"shape": [-1, 2]}, {}, "has the shape"),
        ({"shape": [3.0, 2]}, {}, "has the shape"),
        ({"data": [1e39] * 6}, {}, "is FP32, and its data aren't"),
        ({"data": [None, "7", 1, 2, 3, 4]}, {}, "is FP32, and its data aren't"),
        ({"datatype": "FP16", "data": [1e6] * 6}, {"datatype": "FP16"}, "is FP16, and its data"),
        ({"datatype": "UINT8", "data": [300] * 6}, {"datatype": "UINT8"}, "is UINT8, and its data"),
        ({"datatype": "UINT8", "data": [-1] * 6}, {"datatype": "UINT8"}, "is UINT8, and its data"),
        ({"datatype": "INT8", "data": [1.5] * 6}, {"datatype": "INT8"}, "is INT8, and its data"),
    ],
)
def test_an_output_that_is_not_what_it_says_is_no_answer(
    server: Server, keys: dict[str, Any], of_model: dict[str, Any], expected: str
) -> None:
    answers(server, server.outputs({**RIGHT, **keys}), **of_model)
    with loaded(server) as model, pytest.raises(servers.ServerError, match=expected):
        predict(model)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[" * 100_000,
        b'{"outputs": [%s]}' % (b"9" * 10_000),
        b'{"outputs": {"y": 1}}',
        b'{"outputs": [{"name": "\\ud800", "datatype": "FP32", "shape": [1], "data": [1]}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [%d], "data": [1]}]}' % 2**70,
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [[1], [2, 3]]}]}',
    ],
)
@pytest.mark.parametrize("status", [200, 500])
def test_whatever_a_body_is_the_error_is_the_server_s(
    server: Server, body: bytes, status: int
) -> None:
    answers(server, body, {}, (status,))
    with loaded(server) as model, pytest.raises(servers.ServerError):
        predict(model)
    answers(server, server.outputs(RIGHT), shape=[body.decode()])
    with (
        pytest.raises(servers.ServerError, match="metadata aren't of the protocol"),
        loaded(server),
    ):
        pass


def test_one_of_two_outputs_of_a_name_is_not_chosen(server: Server) -> None:
    answers(server, server.outputs(RIGHT, {**RIGHT, "data": [0] * 6}))
    with loaded(server) as model, pytest.raises(servers.ServerError, match="output 'y' twice"):
        predict(model)


@pytest.mark.parametrize(
    ("sizes", "more"), [((-24, 24), 0), ((24.0,), 24), ((True,), 1), ((12,), 24), ((24,), 12)]
)
def test_sizes_of_binary_data_that_lie_are_told(
    server: Server, sizes: tuple[Any, ...], more: int
) -> None:
    names = ("y", "z")
    described = [
        {**OF_Y, "name": name, "shape": [3, 2], "parameters": {"binary_data_size": size}}
        for name, size in zip(names, sizes, strict=False)
    ]
    body = server.outputs(*described)
    answers(server, body + bytes(more), {LENGTH: str(len(body))})
    with loaded(server) as model, pytest.raises(servers.ServerError, match="binary data"):
        predict(model)


def test_a_text_that_says_to_be_longer_than_it_is_is_no_answer(server: Server) -> None:
    output = {**OF_Y, "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 7}}
    body = server.outputs(output)
    answers(server, body + b"\x64\0\0\0abc", {LENGTH: str(len(body))}, datatype="BYTES", shape=[-1])
    with loaded(server) as model, pytest.raises(servers.ServerError, match="ends within a text"):
        predict(model)


def test_an_answer_of_another_model_or_version_is_none(server: Server) -> None:
    with loaded(server) as model:
        answers(server, server.outputs(RIGHT, model_name="n"))
        with pytest.raises(servers.ServerError, match="of model_name 'n'"):
            predict(model)
    with loaded(server, version="3") as model:
        answers(server, server.outputs(RIGHT, model_version="4"))
        with pytest.raises(servers.ServerError, match="of model_version '4'"):
            predict(model)


def test_a_model_that_is_replaced_while_it_is_measured_is_told(server: Server) -> None:
    """Also to a copy of it, which has a connection of its own."""
    answers(server, server.outputs(RIGHT, model_version="1"))
    with loaded(server) as model, loaded(server) as copy:
        predict(model)
        predict(copy)
        answers(server, server.outputs(RIGHT, model_version="2"))
        for each in (model, copy):
            with pytest.raises(
                servers.ModelReplacedError, match="'2', and the one before was of '1'"
            ):
                predict(each)


def test_a_second_answer_is_not_taken_for_that_of_the_next_request(server: Server) -> None:
    stale = server.outputs({**RIGHT, "data": [-1] * 6})
    more = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(stale), stale)

    class TwoAnswers(_Handler):
        def do_POST(self) -> None:
            super().do_POST()
            if self.server.count == 1:
                time.sleep(0.1)  # in another packet
                self.wfile.write(more)

    server.RequestHandlerClass = TwoAnswers
    with loaded(server) as model:
        predict(model)
        time.sleep(0.5)
        with pytest.raises(servers.ServerError, match="a second answer to the request before"):
            predict(model)
        assert predict(model)[0, 0] == 1, "by another connection"


def test_an_answer_without_an_end_takes_bounded_memory(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Endless(_Handler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(bytes(1 << 16))
            self.close_connection = True

    server.RequestHandlerClass = Endless
    monkeypatch.setattr(servers, "_LARGEST_ANSWER", 1 << 20)
    with loaded(server) as model, pytest.raises(servers.ServerError, match="more than 1048576 byt"):
        predict(model)


def test_all_that_a_server_says_is_one_short_line_without_the_token(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the reason of a status, in names, and in what is recorded of it."""
    monkeypatch.setenv(servers.TOKEN_VARIABLE, f"{TOKEN}\n")
    said = f"\x1b[2J{TOKEN}\x85" + "s" * 2000
    server.about = {"name": said, "version": said}
    texts: list[str] = []
    with loaded(server) as model:
        texts += (model.device_facts or {}).values()
        said_again: list[tuple[Any, ...]] = [
            (b"", {}, (500, said.replace("\x85", ""))),
            (server.outputs({**RIGHT, "name": said}),),
            (server.outputs({**RIGHT, "datatype": said}),),
            (server.outputs(RIGHT, model_name=said),),
        ]
        for answer in said_again:
            answers(server, *answer)
            with pytest.raises(servers.ServerError) as raised:
                predict(model)
            texts.append(str(raised.value))
    answers(server, datatype=said)
    with pytest.raises(servers.ServerError) as raised, loaded(server):
        pass
    texts.append(str(raised.value))
    for text in texts:
        assert text.isprintable()
        assert len(text) <= 1000
        assert TOKEN not in text


@pytest.mark.parametrize("token", [f"{TOKEN}\nX-Other: 1", f"{TOKEN}é", f"a {TOKEN}"])
def test_a_token_that_no_header_can_have_is_an_error_that_does_not_show_it(
    server: Server, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv(servers.TOKEN_VARIABLE, token)
    expected = "MLMS_ENDPOINT_TOKEN has a character"
    with pytest.raises(ValueError, match=expected) as raised, loaded(server):
        pass
    assert TOKEN not in str(raised.value)


def test_a_connection_that_the_server_closed_after_an_answer_is_opened_again(
    server: Server,
) -> None:
    """As servers may, which end connections after a time or a number of answers: it was a crash."""

    class Closing(_Handler):
        def do_POST(self) -> None:
            super().do_POST()
            self.close_connection = True

    server.RequestHandlerClass = Closing
    with loaded(server) as model:
        for _ in range(3):
            assert predict(model)[0, 0] == 1
            time.sleep(0.2)
    assert server.count == 3


def test_a_server_that_says_with_200_that_it_is_not_ready_is_not(server: Server) -> None:
    """As some say it in the body."""

    class Loading(_Handler):
        def do_GET(self) -> None:
            if self.path.endswith("/ready"):
                self._send(json.dumps({"name": "m", "ready": self.path.count("/") < 4}).encode())
            else:
                super().do_GET()

    server.RequestHandlerClass = Loading
    expected = "GET /v2/models/m/ready was answered that it isn't ready"
    with pytest.raises(servers.ServerError, match=expected), loaded(server):
        pass


STARTING = """
import http.server, json, sys
asked = []

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        found = {"name": "s", "ready": asked.count(self.path) > 3}
        if not self.path.endswith("ready"):
            tensor = {"name": "x", "datatype": "FP32", "shape": [-1, 2]}
            found = {"inputs": [tensor], "outputs": [tensor], "tries": len(asked)}
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_a_server_that_is_started_is_asked_until_it_says_that_it_is_ready() -> None:
    command = {"command": [sys.executable, "-c", STARTING, "{port}"], "timeout": HANG_GUARD}
    model = oip.load(Load({}, "cpu", None, {"model": "m"}, False, command))
    try:
        assert [tensor.name for tensor in model.inputs] == ["x"]
    finally:
        oip.close(model)


@pytest.mark.parametrize(
    ("about", "meta"),
    [
        ({"extensions": 5}, {}),
        ({}, {"inputs": 5}),
        ({}, {"outputs": {"y": 1}}),
        ({}, {"outputs": [{**OF_Y, "datatype": ["FP32"]}]}),
        ({}, {"outputs": [{**OF_Y, "shape": 2}]}),
    ],
)
def test_metadata_of_another_form_are_the_server_s_error_and_leave_no_server(
    server: Server, about: dict[str, Any], meta: dict[str, Any]
) -> None:
    server.about = {**server.about, **about}
    server.meta = {**META, **meta}
    expected = "metadata aren't of the protocol"
    with pytest.raises(servers.ServerError, match=expected), loaded(server):
        pass
    assert not servers._servers


@pytest.mark.parametrize("numbers", [[2**64 - 1, 1, 2, 3, 4, 5], [2**53 + 1, 2**63, 0, 1, 1, 1]])
def test_large_whole_numbers_in_json_are_exact(server: Server, numbers: list[int]) -> None:
    output = {**RIGHT, "datatype": "UINT64", "data": numbers}
    answers(server, server.outputs(output), datatype="UINT64")
    with loaded(server) as model:
        assert predict(model).ravel().tolist() == numbers
    for wrong in (-1, 2**64, 1.5, None):
        answers(server, server.outputs({**output, "data": [2**63, wrong, 0, 0, 0, 0]}))
        with loaded(server) as model, pytest.raises(servers.ServerError):
            predict(model)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"inputs": "x"}, "options: inputs: 'x' is of type ''; write one of bool, float16"),
        ({"inputs": "x FP32[?,2]"}, "'x' is of type 'FP32'"),
        ({"outputs": "y bfloat16[?,2]"}, "outputs: 'y' is of type 'bfloat16'"),
        ({"timeout": float("nan")}, "timeout is nan; write the seconds"),
        ({"timeout": float("inf")}, "timeout is inf; write the seconds"),
    ],
)
def test_options_that_no_request_can_have_are_refused(
    server: Server, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ValueError, match=expected), loaded(server, **options):
        pass
    assert not servers._servers


def test_a_token_is_not_shown_as_others_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    token = "a\"b\\c'd"
    monkeypatch.setenv(servers.TOKEN_VARIABLE, token)
    for said in (token, json.dumps(token), repr(token), f"KeyError: {token!r}"):
        assert "b" not in str(servers.ServerError(said)).replace("KeyError", "")


@pytest.mark.skipif(
    shutil.which("openssl") is None, reason="it takes openssl to make a certificate"
)
def test_over_tls_too_a_closed_connection_is_opened_again_and_a_second_answer_is_none(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    words += f" -subj /CN=s -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}"
    subprocess.run(["openssl", *words.split()], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    read: list[ssl.SSLContext] = []
    load = ssl.SSLContext.load_default_certs

    def counted(self: ssl.SSLContext, *args: Any) -> None:
        read.append(self)
        load(self, *args)

    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", counted)

    class Unsteady(_Handler):
        def do_POST(self) -> None:
            super().do_POST()
            self.close_connection = self.server.count == 2
            if self.server.count == 4:
                time.sleep(0.1)
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    server.RequestHandlerClass = Unsteady
    with loaded(server) as model:
        for _ in range(4):
            assert predict(model)[0, 0] == 1
            time.sleep(0.5)
        with pytest.raises(servers.ServerError, match="a second answer to the request before"):
            predict(model)
    assert len(read) == 1, "authorities are read once, and not within calls"
