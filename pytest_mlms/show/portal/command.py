"""Settings from the arguments of ``mlms portal``, checked before it listens."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from pytest_mlms.core.units import parse_quantity
from pytest_mlms.show.portal.addresses import ListenAddress, PortalError
from pytest_mlms.show.portal.server import serve
from pytest_mlms.show.portal.settings import Limits, PortalSettings
from pytest_mlms.show.portal.tokens import read_tokens


def run_portal(options: argparse.Namespace) -> None:
    """Serve the portal until a signal ends it; raises PortalError."""
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
    serve(settings)


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
