"""Addresses: the one that the portal listens on, and the names that requests may call it by."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pytest_mlms.core.errors import MlmsError

_HOST_HEADER = re.compile(r"(?:\[([0-9a-f:.]+)\]|([0-9a-z_.-]+))(?::[0-9]{1,5})?")
"""The whole of a Host header in small letters: no path, query or user, which others would read."""


class PortalError(MlmsError):
    """The portal can't be started as it was asked for."""


@dataclass(frozen=True)
class ListenAddress:
    """The host and the port to listen on; port 0 is any that is free."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, option: str = "--listen") -> ListenAddress:
        """Read HOST:PORT, such as 127.0.0.1:8765 or [::1]:8765; raises PortalError."""
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise PortalError(f"{option} {text}: write HOST:PORT, such as 127.0.0.1:8765")
        return cls(host, int(port))

    def resolved(self, option: str = "--listen") -> ListenAddress:
        """Return the address by its number: a name may mean another one at the next look.

        Raises PortalError.
        """
        if _is_ip_address(self.host):
            return self
        try:
            return ListenAddress(str(self._look_up()[4][0]), self.port)
        except OSError as error:
            raise PortalError(f"{option} {self}: {error.strerror}; name another address") from None

    def bind(self, option: str = "--listen") -> socket.socket:
        """Return a socket that is bound to the address; raises PortalError."""
        try:
            family, kind, protocol, _, address = self._look_up()
            bound = socket.socket(family, kind, protocol)
        except OSError as error:
            raise PortalError(f"{option} {self}: {error.strerror}; name another address") from None
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind(address)
            bound.listen(128)
        except OSError as error:
            bound.close()
            raise PortalError(f"{option} {self}: {error.strerror}; choose another port") from None
        return bound

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the address, which is by its number."""
        return ipaddress.ip_address(self.host).is_loopback

    def _look_up(self) -> Any:
        """Return the first that the system knows of the host; raises OSError."""
        return socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class OwnNames:
    """The names that requests may call the portal by: its own, and any IP address.

    A page of a stranger can point its own name to this machine (DNS rebinding), and its scripts
    would then read the portal as their own site. It can't do so with an IP address.
    """

    def __init__(self, listen: ListenAddress, urls: Collection[str] = ()) -> None:
        names = {"localhost", listen.host, socket.gethostname()}
        with contextlib.suppress(OSError):
            names.add(socket.getfqdn())
        names |= {urlsplit(url).hostname or "" for url in urls}
        self._names = {name.lower().rstrip(".") for name in names} - {""}
        self._urls = frozenset(urls)
        self._names_of_urls = {urlsplit(url).hostname for url in self._urls}

    def has_host(self, header: str) -> bool:
        """Return whether the Host header of a request is one of the portal's names."""
        name = _host_name(header)
        return name in self._names or _is_ip_address(name)

    def has_origin(self, origin: str, host: str) -> bool:
        """Return whether an Origin header is that of the portal, given a Host header of its own.

        By a name of ``--url`` people use that address and no other: behind a proxy, the Host header
        tells neither whether there is TLS nor the port.
        """
        if origin in self._urls:
            return True
        if _host_name(host) in self._names_of_urls:
            return False
        return origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")


def _host_name(header: str) -> str:
    """Return the name or the IP address in a Host header, or nothing where it is malformed."""
    match = _HOST_HEADER.fullmatch(header.lower())
    return (match[1] or match[2]).rstrip(".") if match else ""


def _is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
