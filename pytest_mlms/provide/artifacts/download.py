"""Downloads over HTTP that continue where a broken connection left off, and have limits.

A download goes to a file named ``partial``. pooch gives it its final name once its digest is
right, and never before.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pooch

from pytest_mlms.core.records import DownloadLimits
from pytest_mlms.core.text import redact
from pytest_mlms.provide.artifacts.child import WebError, append_to
from pytest_mlms.provide.artifacts.transfer import DownloadError, ReportProgress

_WAITS = (0.5, 1.0, 2.0)  # seconds before each further attempt


@dataclass(frozen=True)
class Download:
    """A file to be downloaded from ``url`` to ``path``, whose folder exists.

    ``retrieve`` completes the partial file by a deadline on time.monotonic(), instead of HTTP.
    The caller holds a lock, so that no other process downloads it at the same time.
    """

    url: str
    path: Path
    progress: ReportProgress
    limits: DownloadLimits
    retrieve: Callable[[float], None] | None = None

    def run(self, digest: str | None) -> None:
        """Download the file and check its sha256, or "md5:…"; raises DownloadError.

        None is for a file whose digest is not known.

        A partial file of an earlier attempt is continued. If the digest is wrong then, the partial
        file may have been of another version, and the download is done once more from the start.
        """
        if self._partial.exists() and self._partial.stat().st_nlink > 1:
            self._partial.unlink()  # of an hf: that was killed: it is a file of the hub's cache
        is_continued = self._partial.exists()
        end = time.monotonic() + self.limits.seconds
        try:
            with _redacted_logs():
                try:
                    self._retrieve(digest, end)
                except ValueError:
                    if not is_continued:
                        raise
                    self._retrieve(digest, end)
        except ValueError as error:
            advice = "Correct the manifest's sha256 if the file is the one that you mean."
            raise DownloadError(f"{error} {advice}") from error
        except WebError as error:
            raise DownloadError(f"{error}; {self._advice(error)}") from error

    @property
    def _partial(self) -> Path:
        return self.path.with_name("partial")

    def _retrieve(self, digest: str | None, end: float) -> None:
        """Download by pooch, which raises ValueError for a wrong digest."""

        def download_to(url: str, output: str, _: object) -> None:
            (self.retrieve or self.complete)(end)
            os.replace(self._partial, output)

        is_sha256 = digest is not None and ":" not in digest
        pooch.retrieve(
            self.url,
            f"sha256:{digest}" if is_sha256 else digest,
            fname=self.path.name,
            path=self.path.parent,
            downloader=download_to,
        )

    def complete(self, end: float) -> None:
        """Append to the partial file until it is complete, in several attempts if need be.

        ``end`` is on time.monotonic(). The digest is not checked.
        """
        waits = iter(_WAITS)
        while True:
            try:
                return self._append(end)
            except WebError as error:
                wait = next(waits, None)
                if wait is None or not error.may_pass or time.monotonic() > end:
                    raise
            time.sleep(wait)

    def _append(self, end: float) -> None:
        """Append what one connection yields to the partial file."""

        note = partial(self.progress, self.path.name)
        page = self.path.suffix == ".html"
        append_to(self._partial, self.url, self.limits.size, end, note, page)

    def _advice(self, error: WebError) -> str:
        if error.is_too_large:
            return "--mlms-download-size allows more"
        if error.is_late:
            return "run again to go on with what is there, or allow more by --mlms-download-time"
        if error.is_page:
            return "it may want a login, or this is a page about the file"
        if error.status >= 400:
            return "correct the address"
        return "run again to go on with what is there, or check the network and the address"


@contextlib.contextmanager
def _redacted_logs() -> Iterator[None]:
    """Keep secrets of addresses out of pooch's log."""
    logger = pooch.get_logger()
    logger.addFilter(_redact_record)
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.removeFilter(_redact_record)


def _redact_record(record: logging.LogRecord) -> bool:
    record.msg = redact(record.getMessage())
    record.args = ()
    return True
