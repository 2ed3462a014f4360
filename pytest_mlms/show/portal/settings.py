"""Settings of a portal, read from the arguments of its command and checked before it listens."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from pytest_mlms.core.units import parse_quantity
from pytest_mlms.show.portal.addresses import ListenAddress, PortalError
from pytest_mlms.show.portal.tokens import Tokens, read_tokens


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


def read_settings(options: argparse.Namespace) -> PortalSettings:
    """Return what the arguments of ``mlms portal`` say; raises PortalError."""
    settings = PortalSettings(
        results=options.results.absolute(),
        listen=ListenAddress.parse(options.listen),
        tokens=read_tokens(options.token_file),
        urls=tuple(_origins(options.url)),
        history=_history(options),
        allow_run=options.allow_run,
        manifests=options.manifests.absolute() if options.manifests else None,
        limits=_limits(options),
    )
    _check(settings)
    return settings


def _history(options: argparse.Namespace) -> str | None:
    """Return the history that is named, else that of the folder of results if it has one."""
    named = options.history or os.environ.get("MLMS_HISTORY")
    beside = options.results.absolute() / "history.sqlite"
    if named:
        return str(named)
    return str(beside) if beside.is_file() else None


def _limits(options: argparse.Namespace) -> Limits:
    try:
        size = int(parse_quantity(options.upload_limit, "B"))
    except ValueError as error:
        raise PortalError(f"--upload-limit: {error}") from None
    seconds = float(options.timeout)
    return Limits(
        upload_bytes=size,
        unpacked_bytes=8 * size,
        header_seconds=min(Limits.header_seconds, seconds),
        stall_seconds=seconds,
    )


def _check(settings: PortalSettings) -> None:
    _check_folder("--results", settings.results, "; pytest --mlms-manifests=… makes it")
    if settings.manifests:
        _check_folder("--manifests", settings.manifests)
    if not settings.allow_run:
        return
    if not settings.manifests:
        raise PortalError("--allow-run: name the folder of the manifests with --manifests")
    if not settings.tokens:
        raise PortalError("--allow-run: it needs a token; set MLMS_PORTAL_TOKEN or --token-file")


def _check_folder(option: str, path: Path, advice: str = "") -> None:
    if not path.is_dir():
        raise PortalError(f"{option} {path}: there is no such folder; name one that exists{advice}")


def _origins(urls: Iterable[str]) -> Iterator[str]:
    """Yield addresses as browsers write them in the header Origin."""
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise PortalError(f"--url {url}: write it as https://portal.example.org")
        yield f"{parts.scheme}://{parts.netloc.lower()}"
