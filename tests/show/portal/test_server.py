"""The start and the end of the portal's process, and clients that are slow."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.portals import Portal, serving, start
from tests.support.project import HANG_GUARD


def refusal(results: Path, *arguments: str, token: str | None = None) -> str:
    """Start a portal that must not start; return what it says."""
    process = start(results, *arguments, token=token)
    output, errors = process.communicate(timeout=HANG_GUARD)
    assert process.returncode == 2
    assert output == ""
    assert errors.count("\n") == 1, "an error is one line"
    return errors


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_other_machines_are_not_listened_to_without_a_token(tmp_path: Path, address: str) -> None:
    error = refusal(tmp_path, f"--listen={address}")
    assert "other machines can reach it, and there is no token" in error
    assert "set MLMS_PORTAL_TOKEN or --token-file, or listen on 127.0.0.1" in error


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = refusal(tmp_path, f"--listen=127.0.0.1:{port}")
    assert (
        error == f"mlms: --listen 127.0.0.1:{port}: Address already in use; choose another port\n"
    )


def test_one_port_for_both_protocols_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = ["--allow-predict", "--manifests=.", f"--listen={address}", f"--grpc={address}"]
    assert f"--grpc {address}: Address already in use" in refusal(tmp_path, *options)


WRONG = [
    (["--listen=nowhere.invalid:0"], "name another address"),
    (["--listen=8765"], "write HOST:PORT, such as 127.0.0.1:8765"),
    (["--listen=127.0.0.1:99999"], "write HOST:PORT, such as 127.0.0.1:8765"),
    (["--results=/nowhere"], "there is no such folder; name one that exists"),
    (["--allow-run"], "name the folder of the manifests with --manifests"),
    (["--allow-predict"], "--allow-predict: name the folder of the manifests with --manifests"),
    (["--grpc=1"], "are for predictions; give --allow-predict"),
    (["--allow-predict", "--manifests=.", "--grpc=x"], "--grpc x: write HOST:PORT"),
    (["--allow-predict", "--manifests=.", "--grpc=0.0.0.0:0"], "--grpc 0.0.0.0:0: other machines"),
    (["--allow-run", "--manifests=."], "it needs a token; set MLMS_PORTAL_TOKEN or --token-file"),
    (["--token-file=/nowhere"], "No such file or directory; make one with: python -c"),
    (["--token-file=/dev/null"], "it is a device, a pipe or a socket; make one with"),
    (["--url=portal.example.org"], "write it as https://portal.example.org"),
    (["--upload-limit=much"], "is not a quantity"),
]


@pytest.mark.parametrize(("arguments", "text"), WRONG)
def test_a_wrong_option_is_one_line(tmp_path: Path, arguments: list[str], text: str) -> None:
    assert text in refusal(tmp_path, *arguments)


def test_predictions_need_no_run_before_but_a_folder_that_is_named_must_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ("--allow-predict", f"--manifests={tmp_path}")
    assert "there is no such folder" in refusal(Path("result"), *options)
    assert "there is no such folder" in refusal(Path("mlms-results"))
    with serving(Path("mlms-results"), *options) as portal:
        assert portal.get("/").status == 200
    monkeypatch.chdir(tmp_path / "mlms-results")
    Path("mlms-results").touch()
    assert "mlms-results can't be made: File exists" in refusal(Path("mlms-results"), *options)


def test_a_short_token_is_refused_and_not_shown(tmp_path: Path) -> None:
    error = refusal(tmp_path, token="hunter2")
    assert error.startswith("mlms: MLMS_PORTAL_TOKEN: a token is shorter than 16 characters; make")
    assert "hunter2" not in error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_with_clients_that_wait(tmp_path: Path, number: int) -> None:
    with serving(tmp_path) as portal, portal.connect() as idle, portal.connect() as waiting:
        waiting.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        idle.sendall(b"GET")
        assert portal.end(number) == (0, "mlms portal: ended\n", "")


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    """Return a portal whose clients may be silent for a second."""
    with serving(tmp_path_factory.mktemp("results"), "--timeout=1") as portal:
        yield portal


def trickle(connection: socket.socket) -> None:
    """Send a line every tenth of a second; raises ConnectionError once nobody takes it."""
    while True:
        connection.sendall(b"X-Slow: 1\r\n")
        time.sleep(0.1)


@pytest.mark.parametrize("sent", [b"", b"GET /", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-"])
def test_a_head_that_does_not_come_ends_the_connection(impatient: Portal, sent: bytes) -> None:
    with impatient.connect() as connection:
        connection.sendall(sent)
        assert impatient.is_closed(connection)
    assert impatient.get("/api/v1/runs").status == 200


def test_a_head_that_trickles_ends_the_connection(impatient: Portal) -> None:
    with impatient.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        with pytest.raises(ConnectionError):
            trickle(connection)


def test_a_body_that_does_not_come_is_answered(impatient: Portal) -> None:
    with impatient.connect() as connection:
        connection.sendall(
            b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
            b"Content-Type: application/x-www-form-urlencoded\r\n\r\nx"
        )
        assert connection.recv(4096).startswith(b"HTTP/1.1 408 ")


def test_a_second_request_of_a_connection_is_timed_too(impatient: Portal) -> None:
    with impatient.connect() as connection:
        connection.sendall(b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        while b"</html>" not in received:
            received += connection.recv(65536)
        connection.sendall(b"GET /log")
        assert impatient.is_closed(connection)
