"""Settings of a portal, as its command read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pytest_mlms.show.portal.addresses import ListenAddress
from pytest_mlms.show.portal.tokens import Tokens


@dataclass(frozen=True)
class Limits:
    """Bounds of requests, in bytes and seconds."""

    form_bytes: int = 1 << 16
    """The body of any request but an upload."""
    upload_bytes: int = 1 << 30
    """A packed run."""
    unpacked_bytes: int = 8 << 30
    """A run that is unpacked."""
    unpacked_files: int = 100_000
    line_bytes: int = 16 << 20
    """A line of results."""
    uploads: int = 4
    """Uploads that are unpacked at a time; others wait."""
    header_seconds: float = 10
    """For the head of a request, from its first byte or from the connection."""
    stall_seconds: float = 30
    """A client that neither sends the rest of its request nor reads its answer."""
    bytes_per_second: int = 4096
    """The slowest body of a request, beside the time of a stall."""
    connections: int = 512
    uploads_of_token: int = 128
    """Uploads of a token that are on their way at a time; it leaves connections to the others."""


@dataclass(frozen=True)
class PortalSettings:
    """Folders, addresses and tokens; paths are absolute."""

    results: Path
    listen: ListenAddress
    tokens: Tokens = field(default_factory=Tokens)
    urls: tuple[str, ...] = ()
    """The addresses that people use, where a proxy is in front."""
    history: str | None = None
    allow_run: bool = False
    manifests: Path | None = None
    limits: Limits = field(default_factory=Limits)
