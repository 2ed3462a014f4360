"""Servers on plain sockets that answer what no good server would."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

Answer = Callable[[socket.socket], None]


def forever(beginning: bytes, more: bytes) -> Answer:
    """Return an answer that does not end."""

    def answer(client: socket.socket) -> None:
        client.sendall(beginning)
        while True:
            client.sendall(more)

    return answer


def once(text: bytes) -> Answer:
    """Return an answer that is this text."""

    def answer(client: socket.socket) -> None:
        client.sendall(text)

    return answer


@contextlib.contextmanager
def answering(answer: Answer, address: str = "127.0.0.1") -> Iterator[str]:
    """Run a server whose every connection gets ``answer``; yield its address.

    An answer may go on for ever: it ends with an OSError once the client or the block is gone.
    """
    connections: list[socket.socket] = []
    threads: list[threading.Thread] = []
    with socket.create_server((address, 0)) as server:
        acceptor = threading.Thread(target=_accept, args=(server, answer, connections, threads))
        acceptor.start()
        try:
            host, port = server.getsockname()
            yield f"http://{host}:{port}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            acceptor.join()
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def _accept(
    server: socket.socket,
    answer: Answer,
    connections: list[socket.socket],
    threads: list[threading.Thread],
) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        connections.append(connection)
        thread = threading.Thread(target=_serve, args=(connection, answer))
        threads.append(thread)
        thread.start()


def _serve(connection: socket.socket, answer: Answer) -> None:
    with connection, contextlib.suppress(OSError):
        request = b""
        while b"\r\n\r\n" not in request:
            received = connection.recv(65536)
            if not received:
                return
            request += received
        answer(connection)
