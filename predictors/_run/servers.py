"""Servers of models: started here as a child, or running elsewhere; and connections to them.

A server that is started belongs to the agent: it writes into the agent's log, and ends with the
model. It has to stay in the foreground, and to listen on the loopback. One that runs elsewhere, an
endpoint, is asked only. A token of the environment goes with each request, and into no text.

Every wait is bounded. A request is sent once: what goes wrong with it is told, and not tried again.
"""

import contextlib
import http.client
import json
import os
import re
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple
from urllib.parse import urlsplit

from .process import family
from .protocol import Load

TOKEN_VARIABLE = "MLMS_ENDPOINT_TOKEN"

_BETWEEN = 0.01  # seconds between two looks at a server that starts
_TO_END = 10.0  # seconds for a server to end by itself
_AFTER_ITS_CONNECTION = 0.5  # seconds in which a server that crashes has ended
_MOST_IDLE = 1.0  # seconds; servers close connections that are idle for longer, some after 5 s
_LONGEST_TEXT = 300  # characters of what a server says
_LONGEST_ERROR = 1000
_LARGEST_ANSWER = 1 << 31  # bytes
_PIECE = 1 << 16  # bytes of an answer that doesn't say its length
_EVENTS = "text/event-stream"
_HERE = ("0100007F", "00000000", "0" * 32, "0" * 16 + "FFFF00000100007F")
"""Addresses of the kernel's tables at which a connection to 127.0.0.1 arrives."""
_START_TIMEOUT = 120.0  # seconds
_WORD = re.compile(r"\{(\w+)\}")


class ServerError(RuntimeError):
    """A server that ended, doesn't answer, or answers something else than was asked for.

    ``status`` is that of its answer, 0 without one. The text may quote the server.
    """

    def __init__(self, text: str, status: int = 0):
        super().__init__(quoted(text, _LONGEST_ERROR))
        self.status = status


def quoted(text: str, longest: int = _LONGEST_TEXT) -> str:
    """Return what a server says in one line, without control characters and without the token."""
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    for written in (token, json.dumps(token)[1:-1], repr(token)[1:-1]) if token else ():
        text = text.replace(written, "***")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:longest]


class ModelReplacedError(ServerError):
    """The model on a server isn't the one that answered before."""


class Answer(NamedTuple):
    """The headers of an answer whose status is 200, and its body."""

    headers: Any
    body: bytes


class Server:
    """A server, started by the first ``open_server`` of its command, and ended by the last close.

    ``process`` is None for an endpoint, and ``pid`` 0. ``timeout`` are the seconds in which it has
    to be ready, with its models. ``told`` is for what it tells of each path, by name. ``tls`` has
    the authorities, which take tens of milliseconds to read: a call's connection is new.
    """

    def __init__(self, url: str, timeout: float, process: Any = None):
        self.timeout = timeout
        parts = urlsplit(url)
        self.url = url
        self.scheme = parts.scheme
        self.host = parts.hostname or ""
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.prefix = parts.path.rstrip("/")
        self.tls = _tls() if self.scheme == "https" else None
        self.process = process
        self.ready_by = time.monotonic() + timeout
        self.told: Dict[str, Dict[str, str]] = {}
        self.users = 1

    @property
    def pid(self) -> int:
        """The process that was started; 0 for an endpoint."""
        return self.process.pid if self.process else 0

    def ending(self) -> str:
        """Return how a server that was started has ended; "" where it runs."""
        if self.process is None or self.process.poll() is None:
            return ""
        status = self.process.returncode
        if status >= 0:
            return "the server ended with status %d" % status
        return "the server was ended by %s" % _name_of(-status)

    def end(self) -> None:
        """End a server that was started, and all that it started."""
        if self.process is None:
            return
        members = {member: _began(member) for member in family(self.process.pid)}
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_TO_END)
        for member, began in members.items():
            with contextlib.suppress(OSError):
                if began and _began(member) == began:  # its number may be another's by now
                    os.kill(member, signal.SIGKILL)
        self.process.kill()  # does nothing where its end is known
        self.process.wait()


_servers: Dict[str, Server] = {}
_lock = threading.Lock()


def open_server(request: Load, ready: str) -> Server:
    """Return the server of a request, once its path answers; ``ready`` is the one by default.

    Copies of a model share it. Raises ValueError where the stack has none, and ServerError where it
    can't be started, ends, or isn't ready in time; the log has what it wrote.
    """
    wanted = request.server
    if not wanted:
        raise ValueError(
            "there is no server; write into the stack: 'serve: {command: [...]}', or 'endpoint: "
            "http://127.0.0.1:8000'"
        )
    key = json.dumps([wanted, request.files, request.threads], sort_keys=True)
    with _lock:
        if key in _servers:
            server = _servers[key]
            server.users += 1
            server.ready_by = time.monotonic() + server.timeout
            return server
        if wanted.get("endpoint"):
            server = Server(wanted["endpoint"], _START_TIMEOUT)
            wait_until_ready(server, ready)
        else:
            server = _start(request, wanted, ready)
        _servers[key] = server
        return server


def takes_threads(request: Load) -> bool:
    """Return whether the command of a server that is started has the number of threads."""
    return any("{threads}" in word for word in (request.server or {}).get("command") or ())


def close_server(server: Server) -> None:
    """Leave a server; the last one who does ends it."""
    with _lock:
        server.users -= 1
        if server.users:
            return
        for key in [key for key, other in _servers.items() if other is server]:
            del _servers[key]
    server.end()


class Connection:
    """A connection to a server, for one thread; ``timeout`` are the seconds of each wait.

    Where it breaks, the end of the server is awaited for a moment, as it may be the reason.
    """

    def __init__(self, server: Server, timeout: float, awaits_end: bool = True):
        self._server = server
        self._awaited = _AFTER_ITS_CONNECTION if awaits_end else 0.0
        self._timeout = timeout
        self._open: Any = None
        self._used = 0.0
        self._token = "" if server.process else _token()

    def ask(
        self, method: str, path: str, body: Any = None, headers: Optional[Dict[str, str]] = None
    ) -> Answer:
        """Send a request, and return its answer; raises ServerError for any but one of 200.

        What came before the request is an answer to another one. A connection that the server has
        closed since its last answer is opened again, as servers may close those that are idle.
        """
        what = "%s %s%s" % (method, self._server.prefix, path)
        answer = self._sent(what, method, path, body, headers)
        content = self._content(what, answer)
        self._used = time.monotonic()
        return Answer(answer.headers, content)

    def stream(self, path: str, body: bytes, headers: Dict[str, str]) -> Iterator[bytes]:
        """Post a request, and yield its answer, a stream of events, in pieces as they arrive.

        Raises ServerError as ``ask`` does, and for an answer that comes as a whole. The connection
        is closed then: llama.cpp closes it behind a stream without a word.
        """
        what = "POST %s%s" % (self._server.prefix, path)
        answer = self._sent(what, "POST", path, body, headers)
        kind = answer.headers.get_content_type()
        if answer.status != 200 or kind != _EVENTS:
            self._content(what, answer)
            text = "%s was answered as a whole (%s), not as a stream (%s); ask one that streams"
            raise ServerError(text % (what, kind, _EVENTS))
        opened, self._open = self._open, None
        left = answer.length  # None where the answer says itself where it ends
        with contextlib.closing(opened):
            while left != 0:
                with self._telling(what, "within its answer"):
                    piece = answer.read1(_PIECE if left is None else min(left, _PIECE))
                    if left and not piece:
                        raise http.client.IncompleteRead(piece, left)
                if not piece:
                    return
                left = None if left is None else left - len(piece)
                yield piece

    def close(self) -> None:
        """Close it; the next request opens another."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _sent(self, what, method, path, body, headers):
        """Send a request, and return the answer, of which only the head was read."""
        with self._telling(what, "without an answer"):
            is_idle = time.monotonic() - self._used > _MOST_IDLE
            if self._open is None or is_idle or self._is_closed():
                self._connect()
            sent = dict(headers or {})
            if self._token:
                sent["Authorization"] = "Bearer " + self._token
            self._open.request(method, self._server.prefix + path, body, sent)
            return self._open.getresponse()

    def _content(self, what, answer):
        """Return the body of an answer; raises ServerError where its status isn't 200."""
        with self._telling(what, "within its answer"):
            content = _read(answer)
        if answer.status == 200:
            return content
        self.close()
        reason = answer.reason or ""
        text = "%s was answered %d %s: %s"
        problem = text % (what, answer.status, reason, _message_of(content))
        if answer.status == 401 and not self._server.process:
            problem += "; write the token of the endpoint into " + TOKEN_VARIABLE
        raise self._error(problem, status=answer.status)

    @contextlib.contextmanager
    def _telling(self, what, place):
        """Say in words what is wrong with a connection, and close it."""
        try:
            yield
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            problem = "%s: %s" % (what, self._problem(error, place))
            raise self._error(problem, self._awaited) from None

    def _connect(self):
        self.close()
        server = self._server
        if server.scheme == "https":
            self._open = http.client.HTTPSConnection(
                server.host, server.port, timeout=self._timeout, context=server.tls
            )
        else:
            self._open = http.client.HTTPConnection(server.host, server.port, timeout=self._timeout)
        self._open.connect()

    def _is_closed(self):
        """Return whether the server has closed the open connection.

        Raises HTTPException where an answer waits on it.
        """
        link = self._open.sock
        if link is None:
            return True
        readable = select.poll()
        readable.register(link, select.POLLIN)
        if not readable.poll(0) and not (self._server.scheme == "https" and link.pending()):
            return False
        link.settimeout(0)
        try:
            waits = link.recv(1)
        except ssl.SSLWantReadError:  # bytes of TLS that are no answer's
            return False
        except OSError:
            return True
        finally:
            link.settimeout(self._timeout)
        if waits:
            raise http.client.HTTPException("a second answer to the request before")
        return True

    def _error(self, problem, seconds=0.0, status=0):
        """Return the error of a request, with the end of the server if that comes in time."""
        end = time.monotonic() + seconds
        while self._server.process and not self._server.ending() and time.monotonic() < end:
            time.sleep(_BETWEEN)
        ending = self._server.ending()
        return ServerError("%s; %s" % (ending, problem) if ending else problem, status)

    def _problem(self, error, place):
        """Return in words what is wrong with a connection."""
        if isinstance(error, (socket.timeout, TimeoutError)):
            what = "no answer" if place == "without an answer" else "no more of its answer"
            return "the server gave %s in %g s" % (what, self._timeout)
        if isinstance(error, ConnectionRefusedError):
            return "nothing listens at %s" % self._server.url
        if isinstance(error, ssl.SSLError):
            return "no TLS with %s: %s" % (self._server.url, error)
        if isinstance(error, (ConnectionError, http.client.IncompleteRead)):
            return "the server closed the connection " + place
        if isinstance(error, (http.client.HTTPException, ValueError)):
            is_ours = type(error) is http.client.HTTPException
            return "the answer is no HTTP (%s)" % (error if is_ours else type(error).__name__)
        return "can't connect to %s: %s" % (self._server.url, error)


def _start(request, wanted, ready):
    ports: Dict[str, int] = {}
    values = dict(request.files, threads=str(request.threads or ""))

    def filled(match):
        name = match.group(1)
        if name.startswith("port"):
            ports.setdefault(name, _free_port(set(ports.values())))
            return str(ports[name])
        return values.get(name, match.group(0))

    words = [_WORD.sub(filled, word) for word in wanted["command"]]
    if words[0] in ("python", "python3"):
        words[0] = sys.executable
    folder = os.path.dirname(sys.executable)
    path = os.pathsep.join([folder, os.environ.get("PATH", os.defpath)])
    try:
        process = subprocess.Popen(words, env=dict(os.environ, PATH=path), stdin=subprocess.DEVNULL)
    except OSError as error:
        text = "the server can't be started: %s: %s; correct the command in the stack"
        raise ServerError(text % (words[0], error.strerror)) from None
    timeout = wanted.get("timeout") or _START_TIMEOUT
    server = Server("http://127.0.0.1:%d" % ports["port"], timeout, process)
    try:
        wait_until_ready(server, wanted.get("ready") or ready)
    except BaseException:
        server.end()
        raise
    return server


def wait_until_ready(server: Server, path: str, final: Tuple[int, ...] = ()) -> None:
    """Ask for a path until it is answered; raise ServerError where that is not in time.

    Some servers answer with 200 that they aren't ready. A status in ``final`` is no reason to
    wait. An endpoint is asked once.
    """
    while True:
        ending = server.ending()
        if ending:
            raise ServerError("%s before it was ready; the log has what it wrote" % ending)
        left = server.ready_by - time.monotonic() if server.process else server.timeout
        connection = Connection(server, max(0.1, left), awaits_end=False)
        try:
            body = connection.ask("GET", path).body
            if server.process and _is_of_others(server):
                problem = "another program listens at its port %d" % server.port
            elif _says_not_ready(body):
                text = "GET %s%s was answered that it isn't ready: %s"
                problem = text % (server.prefix, path, _message_of(body))
            else:
                return
        except ServerError as error:
            if not server.process or error.status in final:
                raise
            problem = str(error)
        finally:
            connection.close()
        if not server.process:
            raise ServerError(problem)
        if time.monotonic() >= server.ready_by:
            break
        time.sleep(_BETWEEN)
    text = "the server was not ready in %g s (the stack's serve: timeout): %s"
    raise ServerError(text % (server.timeout, problem))


def _says_not_ready(body):
    try:
        found = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("ready") is False


def _is_of_others(server):
    """Return whether a socket that isn't the server's listens at its port.

    A port that was free may be another's by the time that a server takes it, or be shared with one
    (SO_REUSEPORT), who then gets some of the connections.
    """
    sockets = set()
    for table in ("tcp", "tcp6"):
        try:
            with open("/proc/self/net/" + table) as file:
                lines = [line.split() for line in file]
        except OSError:
            continue
        for words in lines[1:]:
            address, _, port = words[1].rpartition(":")
            if words[3] == "0A" and address in _HERE and int(port, 16) == server.port:
                sockets.add("socket:[%s]" % words[9])
    for process in family(server.pid):
        sockets -= _files_of(process)
    return bool(sockets)


def _files_of(process):
    folder = "/proc/%d/fd" % process
    found = set()
    try:
        for name in os.listdir(folder):
            found.add(os.readlink(os.path.join(folder, name)))
    except OSError:  # of a process that ends
        pass
    return found


def _tls():
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _token():
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not re.match(r"[!-~]*\Z", token):
        raise ValueError("%s has a character that no token has; correct it" % TOKEN_VARIABLE)
    return token


def _read(answer):
    """Return the body of an answer; raises HTTPException for one that has no end."""
    if answer.length is not None and answer.length <= _LARGEST_ANSWER:
        return answer.read()
    parts: List[bytes] = []
    size = answer.length or 0
    while size <= _LARGEST_ANSWER:
        part = answer.read(_PIECE)
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
    raise http.client.HTTPException("more than %d bytes" % _LARGEST_ANSWER)


def _free_port(taken):
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port not in taken:
            return port


def _began(process):
    """Return when a process began, in the kernel's ticks; "" where there is none, or no /proc."""
    try:
        with open("/proc/%d/stat" % process, "rb") as file:
            return file.read().rpartition(b")")[2].split()[19]
    except OSError:
        return b""


def _name_of(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def json_object(body: bytes, path: str) -> Dict[str, Any]:
    """Return the object that an answer is; raises ServerError for another one."""
    try:
        found = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ServerError("the answer to %s is no JSON object" % path)
    return found


def _message_of(content):
    """Return what a server says of an error, in one line."""
    text = content.decode("utf-8", "replace")
    try:
        found = json.loads(text)
        if isinstance(found, dict):
            said = found.get("error") or found.get("detail") or text
            text = str(said.get("message", said) if isinstance(said, dict) else said)
    except (ValueError, RecursionError):
        pass
    if text.startswith("Traceback"):
        text = text.strip().rpartition("\n")[2]
    return quoted(text) or "nothing"
