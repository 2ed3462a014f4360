"""One HTTP request, in the process of ``child_main``, which another process ends at a deadline.

Redirects are followed without their bodies, which requests would read whole, never from https to
another scheme and never into this machine: each connection is looked at before it is made, as a
name may mean another address at each look-up. Bodies are written as they are sent, never
decompressed.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
import urllib3

from pytest_mlms.core.text import shortened
from pytest_mlms.core.units import format_quantity
from pytest_mlms.provide.artifacts.answers import PlainResponse, is_safer_or_alike

_CHUNK = 1 << 16
"""Bytes that are read at once, at most what a broken connection loses."""

_SILENCE = 30  # seconds without a byte before a connection counts as broken
_REDIRECTS = 10
_WITH_BODY = (200, 203, 206)
"""Answers that have what was asked for; firewalls answer 202 to ask for JavaScript first."""

_SHOWN = 100  # characters of a server's text
_OF_CLOUDS = ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16")
"""Addresses of the own data of AWS, Google, Alibaba and Azure, beside 169.254.169.254."""

_LONGEST_ADDRESS = 1 << 13  # bytes; a reply is a line that the other process reads whole


class _LeadsInside(ValueError):
    """A redirect leads nearer to this machine, which urllib3 doesn't take for a broken one."""


def reply_to(request: Mapping[str, Any], tell: Callable[[int], None]) -> dict[str, Any]:
    """Write the answer to a request of ``web`` to a file, and return the reply for ``web``.

    ``tell`` is told all bytes that the file will have, 0 where the server doesn't say.
    """
    http.client.HTTPConnection.response_class = PlainResponse
    try:
        with _Session() as session:
            if request["certificates"]:
                session.verify = request["certificates"]
            return _written(session, request, tell)
    except requests.HTTPError as error:
        response = error.response
        answered = f"{response.status_code} {shortened(str(response.reason), _SHOWN)}"
        problem = f"the server answered {answered}"
        return {"error": problem, "status": response.status_code, "url": response.url}
    except requests.RequestException as error:
        status = 0 if error.response is None else error.response.status_code
        return {"error": str(error), "status": status}
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": "a part of the server's answer takes too much memory"}
    except OSError as error:  # of the file, or of requests for authorities that aren't there
        if error.errno is None:
            advice = "correct REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE or pip's cert"
            return {"error": f"{error}; {advice}", "is_of_settings": True}
        return {"errno": error.errno, "strerror": error.strerror, "path": error.filename}


def _written(
    session: requests.Session, request: Mapping[str, Any], tell: Callable[[int], None]
) -> dict[str, Any]:
    """Append what one connection yields to the file, and return the reply."""
    path, url, headers = Path(request["file"]), request["url"], dict(request["headers"])
    done = path.stat().st_size if path.exists() else 0
    if done:
        headers["Range"] = f"bytes={done}-"
    with contextlib.closing(_follow(session, url, headers)) as response:
        kind = response.headers.get("Content-Type", "")[:_SHOWN]
        reply = {"url": response.url, "type": kind}
        if done and response.status_code == requests.codes.requested_range_not_satisfiable:
            return reply  # the file was complete already, or its digest will be wrong
        if not (request["only_address"] and response.url != url):
            response.raise_for_status()
        if request["only_address"]:
            return reply
        if response.status_code not in _WITH_BODY:
            raise requests.HTTPError(response=response)
        if request["no_page"] and kind.startswith("text/html"):
            return {"error": "the server sent a web page instead of the file", "is_page": True}
        problem = _write(response, path, done, request["limit"], tell)
    return problem or reply


def _write(
    response: requests.Response, path: Path, done: int, limit: int, tell: Callable[[int], None]
) -> dict[str, Any]:
    """Write a body, or the part of it after the first ``done`` bytes; return what is wrong."""
    if response.status_code != requests.codes.partial_content:
        done = 0
    elif not response.headers.get("Content-Range", "").lower().startswith(f"bytes {done}-"):
        path.unlink(missing_ok=True)
        return {"error": "the server sent another part of the file than it was asked for"}
    length = response.headers.get("Content-Length", "")
    is_told = length.isascii() and length.isdecimal() and len(length) < 20
    total = done + int(length) if is_told else 0
    tell(total)
    with path.open("ab" if done else "wb") as file:
        while max(done, total) <= limit:
            chunk = response.raw.read(_CHUNK, decode_content=False)
            done += len(chunk)
            if not chunk:
                break
            if done <= limit:
                file.write(chunk)
                file.flush()  # for the process that watches its size
    if max(done, total) > limit:
        problem = f"the server sends more than {format_quantity(limit, 'B')}"
        return {"error": problem, "is_too_large": True}
    if done < total:
        return {"error": f"the connection ended after {done:,} of {total:,} bytes"}
    return {}


def _follow(session: requests.Session, url: str, headers: Mapping[str, str]) -> requests.Response:
    """Return the answer at the end of the redirects."""
    origin, border = urlsplit(url)[:2], _Border()
    sys.addaudithook(border)
    for _ in range(_REDIRECTS + 1):
        may_tell_user = urlsplit(url).scheme == "https" or urlsplit(url)[:2] == origin
        user = None if may_tell_user else _no_user
        prepared = session.prepare_request(requests.Request("GET", url, headers, auth=user))
        settings = session.merge_environment_settings(prepared.url, {}, True, None, None)
        border.is_of_proxy = bool(
            requests.utils.select_proxy(prepared.url or url, settings["proxies"])
        )
        response = session.send(prepared, timeout=_SILENCE, **settings)
        if not response.is_redirect:
            return response
        response.close()
        location = response.headers["Location"].encode("latin-1").decode("utf-8", "replace")
        target = urljoin(url, location)
        _check_redirect(url, target, response)
        border.go_no_nearer()  # as the name may mean another address by now
        url = target
    raise requests.TooManyRedirects(f"more than {_REDIRECTS} redirects", response=response)


def _no_user(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Leave a request as it is, in place of the user and password that ~/.netrc has for its host.

    Whoever changes an answer over http could have them sent as plain text, to any host there.
    """
    return request


def _check_redirect(url: str, target: str, response: requests.Response) -> None:
    """Raise requests.exceptions.InvalidURL for a redirect that no honest server needs."""
    problem = ""
    if not is_safer_or_alike(url, target):
        problem = f"it redirects from {urlsplit(url).scheme} to {urlsplit(target).scheme}"
    elif "\\" in urlsplit(target).netloc:  # where urllib3 ends the host
        problem = f"it redirects to a host with a backslash, {urlsplit(target).hostname}"
    elif len(requests.utils.requote_uri(target)) > _LONGEST_ADDRESS:
        problem = f"it redirects to an address of more than {_LONGEST_ADDRESS:,} bytes"
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
    """Return whether an address is of this machine or its link, or gives out a cloud's own data."""
    found = ipaddress.ip_address(address.partition("%")[0])
    found = getattr(found, "ipv4_mapped", None) or found
    is_of_cloud = str(found) in _OF_CLOUDS
    return found.is_loopback or found.is_link_local or found.is_unspecified or is_of_cloud


class _Session(requests.Session):
    """A session that follows no redirects: requests would read their bodies whole."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        return None


class _Border:
    """An audit hook that refuses connections nearer to this machine than those before.

    Python calls it before each connection, with the address that the name means now.
    """

    def __init__(self) -> None:
        self.is_of_proxy = False
        self._nearness = self._nearest = 2  # of the last connection, and the most of the next one

    def go_no_nearer(self) -> None:
        """Let no further connection lead nearer to this machine than the last one."""
        self._nearest = self._nearness

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Raise _LeadsInside for a connection that leads inside."""
        if event != "socket.connect" or arguments[0].type != socket.SOCK_STREAM:
            return
        self._nearness = 0 if self.is_of_proxy else _nearness(*arguments)
        if self._nearness > self._nearest:
            raise _LeadsInside("it redirects into this machine")


def _nearness(connection: socket.socket, address: tuple[Any, ...]) -> int:
    """Return 2 for a connection to this machine's loopback or link, 1 for another of its addresses.

    0 is for one to another machine.
    """
    if _is_local(str(address[0])):
        return 2
    with socket.socket(connection.family, socket.SOCK_DGRAM) as probe:  # which sends nothing
        try:
            probe.connect(address)
        except OSError:  # there is no way there
            return 0
        return int(str(probe.getsockname()[0]) == str(address[0]))
