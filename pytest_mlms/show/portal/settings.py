"""Settings of a portal, read from the arguments of its command and checked before it listens."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field, replace
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
    predict_bytes: int = 32 << 20
    """An input that is sent to a model."""
    held_bytes: int = 256 << 20
    """All inputs that are on their way, or wait."""
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
    allow_predict: bool = False
    allow_create: bool = False
    """Let a prediction wait until its stack is made."""
    grpc: ListenAddress | None = None
    manifests: Path | None = None
    limits: Limits = field(default_factory=Limits)


def read_settings(options: argparse.Namespace) -> PortalSettings:
    """Return what the arguments of ``mlms portal`` say; raises PortalError.

    The history is the one that is named, else that of the folder of results if it has one.
    """
    results = options.results.absolute()
    beside = results / "history.sqlite"
    history = options.history or os.environ.get("MLMS_HISTORY")
    try:
        size = int(parse_quantity(options.upload_limit, "B"))
    except ValueError as error:
        raise PortalError(f"--upload-limit: {error}") from None
    seconds = float(options.timeout)
    settings = PortalSettings(
        results=results,
        listen=ListenAddress.parse(options.listen),
        tokens=read_tokens(options.token_file),
        urls=tuple(map(_origin, options.url)),
        history=history or (str(beside) if beside.is_file() else None),
        allow_run=options.allow_run,
        allow_predict=options.allow_predict,
        allow_create=options.allow_create,
        grpc=_grpc(options),
        manifests=options.manifests.absolute() if options.manifests else None,
        limits=Limits(
            upload_bytes=size,
            unpacked_bytes=8 * size,
            header_seconds=min(Limits.header_seconds, seconds),
            stall_seconds=seconds,
        ),
    )
    if options.results == Path("mlms-results") and (settings.allow_predict or settings.allow_run):
        _make(results)
    for option, folder in (("--results", results), ("--manifests", settings.manifests)):
        if folder is not None and not folder.is_dir():
            advice = "; pytest --mlms-manifests=… makes it" if folder == results else ""
            problem = f"{option} {folder}: there is no such folder; name one that exists"
            raise PortalError(f"{problem}{advice}")
    for option, is_given in (
        ("--allow-run", settings.allow_run),
        ("--allow-predict", settings.allow_predict),
    ):
        if is_given and not settings.manifests:
            raise PortalError(f"{option}: name the folder of the manifests with --manifests")
    if not settings.allow_predict and (settings.allow_create or settings.grpc):
        raise PortalError("--allow-create and --grpc are for predictions; give --allow-predict")
    if settings.allow_run and not settings.tokens:
        raise PortalError("--allow-run: it needs a token; set MLMS_PORTAL_TOKEN or --token-file")
    return settings


def _make(results: Path) -> None:
    try:
        results.mkdir(exist_ok=True)
    except OSError as error:
        problem = f"--results {results} can't be made: {error.strerror}"
        raise PortalError(f"{problem}; name a folder that exists") from None


def _grpc(options: argparse.Namespace) -> ListenAddress | None:
    """Return the address of --grpc: of a port alone, it has the host of --listen."""
    text = options.grpc
    if text is None:
        return None
    if text.isdecimal():
        text = str(replace(ListenAddress.parse(options.listen), port=0)).removesuffix("0") + text
    return ListenAddress.parse(text, "--grpc")


def _origin(url: str) -> str:
    """Return an address as browsers write it in the header Origin."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise PortalError(f"--url {url}: write it as https://portal.example.org")
    return f"{parts.scheme}://{parts.netloc.lower()}"
