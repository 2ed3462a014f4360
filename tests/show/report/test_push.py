"""Pushing to a portal that is broken or hostile: whatever it does, the run is not pushed, soon."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_mlms.show.report import push
from pytest_mlms.show.report.push import Portal, PushError
from tests.support.histories import write_run

OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
Answer = Callable[[socket.socket], None]


@contextlib.contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Serve an answer to each connection; yield the address."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(1 << 16)
                    answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def nested(connection: socket.socket) -> None:
    connection.sendall(OK + b"\r\n" + b"[" * 60_000)


def refused_and_nested(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 500 No\r\nConnection: close\r\n\r\n" + b"[" * 60_000)


def endless(connection: socket.socket) -> None:
    connection.sendall(OK + b"\r\n")
    while True:
        connection.sendall(bytes(1 << 20))


def chunk_of_less_than_nothing(connection: socket.socket) -> None:
    connection.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n")


def a_byte_now_and_then(connection: socket.socket) -> None:
    connection.sendall(OK)
    while True:
        connection.sendall(b"X")
        time.sleep(0.02)


def continuing(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.02)


def another_state(connection: socket.socket) -> None:
    connection.sendall(OK + b'\r\n{"state": "\x1b[2J"}')


ANSWERS = [
    nested,
    refused_and_nested,
    endless,
    chunk_of_less_than_nothing,
    a_byte_now_and_then,
    continuing,
    another_state,
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_portal_that_answers_badly_is_a_run_that_is_not_pushed(
    answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push, "_SECONDS", 0.2)
    run = write_run(tmp_path, 0)
    with answering(answer) as url, pytest.raises(PushError, match=url) as caught:
        Portal(url, "a-token").push(run)
    assert not caught.value.is_final


def test_a_token_that_others_can_read_on_its_way_is_warned_of() -> None:
    assert "reach the portal by https" in Portal("http://portal.example.org", "a" * 16).warning
    assert not Portal("http://portal.example.org", "").warning
    for url in (
        "https://portal.example.org",
        "http://127.0.0.1:8",
        "http://[::1]",
        "http://localhost",
    ):
        assert not Portal(url, "a" * 16).warning
