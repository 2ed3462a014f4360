"""HTTP requests that a server can't draw out or lead astray: each connection ends at a deadline.

requests has a timeout for each read of a socket, which a server meets that sends a byte a second.
Here a thread shuts the sockets of a request down when its time is over, whatever it waits for:
headers, the handshake of TLS, or the body. Redirects are followed without their bodies, which
requests would read whole, never from https to another scheme and never into this machine: sockets
are looked at, as a name may mean another address at each look-up. Bodies are handed out as they are
sent, never decompressed.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter

from pytest_mlms.provide.artifacts.links import is_safer_or_alike
from pytest_mlms.provide.artifacts.responses import PlainResponse

CHUNK = 1 << 16
"""Bytes that are read at once, at most what a broken connection loses."""

_SILENCE = 30  # seconds without a byte before a connection counts as broken
_CHUNK_SECONDS = 60  # for the headers, and for each chunk of a body
_POLL = 0.2  # seconds between two looks at the clock
_REDIRECTS = 10

_Add = Callable[[socket.socket, bool], None]
"""Takes a socket, and whether a proxy is at its other end."""


class TooSlow(requests.ConnectionError):
    """The time for a download was over."""


class _LeadsInside(ValueError):
    """A redirect leads nearer to this machine, which urllib3 doesn't take for a broken one."""


class Answer:
    """The answer to a request; its body is read in chunks."""

    def __init__(self, response: requests.Response, watch: _Watch) -> None:
        self.url = response.url
        self.status = response.status_code
        self.headers = response.headers
        self._response = response
        self._watch = watch

    @property
    def length(self) -> int:
        """The bytes of the body as the server tells them, 0 where it doesn't."""
        text = self.headers.get("Content-Length", "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0

    def check(self) -> None:
        """Raise requests.HTTPError for a status of an error."""
        self._response.raise_for_status()

    def chunks(self) -> Iterator[bytes]:
        """Yield the body, as it was sent; raises as ``answer_to`` does."""
        while chunk := self._read():
            yield chunk
            self._watch.begin_chunk()

    def _read(self) -> bytes:
        with _translated_errors(self._watch):
            read: bytes = self._response.raw.read(CHUNK, decode_content=False)
        return read


@contextlib.contextmanager
def answer_to(
    url: str, headers: Mapping[str, str], end: float, certificates: str | None = None
) -> Iterator[Answer]:
    """Request ``url`` and yield the answer; the connection ends with the block.

    ``end`` is on time.monotonic(). ``certificates`` is a file of authorities to trust instead of
    those of requests. Raises TooSlow after it, and requests.RequestException for a
    connection that broke.
    """
    with _Watch(end) as watch, _Session() as session:
        adapter = _WatchedAdapter(watch.add)
        session.mount("http://", adapter)
        session.mount("https://", adapter)
        if certificates:
            session.verify = certificates
        with _translated_errors(watch):
            response = _follow(session, url, headers, watch)
        with contextlib.closing(response):
            yield Answer(response, watch)


def final_address(url: str, headers: Mapping[str, str], end: float) -> str:
    """Return where the redirects of an address lead; raises as ``answer_to`` does."""
    with answer_to(url, headers, end) as answer:
        if answer.url == url:
            answer.check()
        return answer.url


def read_answer(
    url: str, headers: Mapping[str, str], end: float, most: int, certificates: str | None = None
) -> tuple[bytes, str]:
    """Return the body of an answer of at most so many bytes, and its type.

    Raises as ``answer_to`` does, also for a larger body and for a status of an error.
    """
    content = bytearray()
    with answer_to(url, headers, end, certificates) as answer:
        answer.check()
        for chunk in answer.chunks():
            content += chunk
            if len(content) > most:
                raise requests.ConnectionError(f"{answer.url} sends more than {most:,} bytes")
        return bytes(content), answer.headers.get("Content-Type", "")


@contextlib.contextmanager
def _translated_errors(watch: _Watch) -> Iterator[None]:
    """Raise errors of the libraries as those of requests, or as TooSlow after the end."""
    try:
        yield
    except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
        watch.check()
        if isinstance(error, requests.RequestException):
            raise
        raise requests.ConnectionError(str(error)) from error
    watch.check()  # a socket that was shut down may look like one that came to its end


def _follow(
    session: requests.Session, url: str, headers: Mapping[str, str], watch: _Watch
) -> requests.Response:
    """Return the answer at the end of the redirects."""
    for _ in range(_REDIRECTS + 1):
        response = session.get(url, headers=headers, stream=True, timeout=_SILENCE)
        if not response.is_redirect:
            return response
        response.close()
        location = response.headers["Location"].encode("latin-1").decode("utf-8", "replace")
        target = urljoin(url, location)
        _check_redirect(url, target, response)
        watch.go_no_nearer()  # as the name may mean another address by now
        url = target
    raise requests.TooManyRedirects(f"more than {_REDIRECTS} redirects", response=response)


def _check_redirect(url: str, target: str, response: requests.Response) -> None:
    """Raise requests.exceptions.InvalidURL for a redirect that no honest server needs."""
    problem = ""
    if not is_safer_or_alike(url, target):
        problem = f"it redirects from https to {urlsplit(target).scheme}"
    elif "\\" in urlsplit(target).netloc:  # where urllib3 ends the host
        problem = f"it redirects to a host with a backslash, {urlsplit(target).hostname}"
    elif _is_inside(target) and not _is_inside(url):
        problem = f"it redirects into this machine, to {urlsplit(target).hostname}"
    if problem:
        raise requests.exceptions.InvalidURL(problem, response=response)


def _is_inside(url: str) -> bool:
    """Return whether an address is of this machine or of its link, as a cloud's own data are."""
    try:
        found = socket.getaddrinfo(urlsplit(url).hostname or "", None)
    except (OSError, UnicodeError):  # there is no such host here, or a proxy finds it
        return False
    return any(_is_local(str(one[4][0])) for one in found)


def _is_local(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    found = getattr(found, "ipv4_mapped", None) or found
    return found.is_loopback or found.is_link_local or found.is_unspecified


def _nearness(connection: socket.socket) -> int:
    """Return 2 for a connection to this machine's loopback or link, 1 for another of its addresses.

    0 is for one to another machine.
    """
    other = str(connection.getpeername()[0])
    if _is_local(other):
        return 2
    return int(other == connection.getsockname()[0])


class _Session(requests.Session):
    """A session that follows no redirects: requests would read their bodies whole."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        return None


class _Watch:
    """Shuts sockets down when their time is over."""

    def __init__(self, end: float) -> None:
        self._end = end
        self._began = time.monotonic()
        self._chunk_began = self._began
        self._problem = ""
        self._sockets: list[socket.socket] = []
        self._nearness = self._nearest = 2  # of the last connection, and the most of the next one
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        for watched in self._sockets:
            watched.close()

    def add(self, connection: socket.socket, is_of_proxy: bool) -> None:
        """Watch a socket; TLS takes the original over, so this is a duplicate of it."""
        self._sockets.append(connection.dup())
        self._nearness = 0 if is_of_proxy else _nearness(connection)
        if self._nearness > self._nearest:
            connection.close()
            raise _LeadsInside("it redirects into this machine")

    def go_no_nearer(self) -> None:
        """Let no further connection lead nearer to this machine than the last one."""
        self._nearest = self._nearness

    def begin_chunk(self) -> None:
        """Start the time for the next chunk."""
        self._chunk_began = time.monotonic()

    def check(self) -> None:
        """Raise TooSlow where the time was over."""
        if self._problem:
            raise TooSlow(self._problem)

    def _run(self) -> None:
        while not self._is_over.wait(_POLL):
            self._problem = self._problem or self._find_problem()
            if self._problem:
                self._shut_down()

    def _find_problem(self) -> str:
        now = time.monotonic()
        if now > self._end:
            return "the time for the download is over"
        if now > self._chunk_began + _CHUNK_SECONDS:
            return f"the server sent less than {CHUNK >> 10} KiB in {_CHUNK_SECONDS:g} s"
        return ""

    def _shut_down(self) -> None:
        for watched in tuple(self._sockets):
            with contextlib.suppress(OSError):  # it is not connected any more
                watched.shutdown(socket.SHUT_RDWR)


class _WatchedAdapter(HTTPAdapter):
    """An adapter of requests that tells ``watch`` of each socket."""

    def __init__(self, watch: _Add) -> None:
        self._watch = watch
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **keywords: Any) -> None:
        """Make the manager of direct connections."""
        super().init_poolmanager(*arguments, **keywords)
        self._watch_pools(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **keywords: Any) -> Any:
        """Return the manager of connections by a proxy."""
        is_new = proxy not in self.proxy_manager
        manager = super().proxy_manager_for(proxy, **keywords)
        if is_new:
            self._watch_pools(manager)
        return manager

    def _watch_pools(self, manager: Any) -> None:
        watched = {}
        for scheme, pool in manager.pool_classes_by_scheme.items():
            watched[scheme] = _watched_pool(pool, self._watch)
        manager.pool_classes_by_scheme = watched


def _watched_pool(pool: Any, watch: _Add) -> Any:
    """Return a class like urllib3's ``pool`` whose sockets are told to ``watch``."""

    class Connection(pool.ConnectionCls):  # type: ignore[misc]
        response_class = PlainResponse

        def _new_conn(self) -> Any:
            made = super()._new_conn()
            watch(made, bool(self.proxy) or hasattr(self, "_socks_options"))
            return made

    class Pool(pool):  # type: ignore[misc]
        ConnectionCls = Connection

    return Pool
