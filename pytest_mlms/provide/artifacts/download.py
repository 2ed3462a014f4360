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
from pathlib import Path

import pooch
import requests

from pytest_mlms.core.redaction import redact
from pytest_mlms.core.text import shortened
from pytest_mlms.core.units import format_quantity
from pytest_mlms.provide.artifacts.connection import Answer, TooSlow, answer_to
from pytest_mlms.provide.artifacts.limits import DownloadLimits
from pytest_mlms.provide.artifacts.transfer import DownloadError, ReportProgress

_ATTEMPTS = 4
_FIRST_WAIT = 0.5  # seconds before the second attempt; doubled for each further one
_SHOWN = 100  # characters of a server's text
_LOGGERS = ("pooch", "urllib3.connectionpool", "urllib3.util.retry")


class _WebPage(Exception):
    """The server's answer is HTML, and the file is not."""


class _TooLarge(Exception):
    """The server sends more than the limit."""


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
        except (ValueError, requests.RequestException, _WebPage, _TooLarge) as error:
            raise DownloadError(self._reason(error)) from error

    @property
    def _partial(self) -> Path:
        return self.path.with_name("partial")

    def _retrieve(self, digest: str | None, end: float) -> None:
        """Download by pooch, which raises ValueError for a wrong digest."""

        def download_to(url: str, output: str, _: object) -> None:
            (self.retrieve or self.complete)(end)
            os.replace(self._partial, output)

        pooch.retrieve(
            self.url,
            _known_hash(digest),
            fname=self.path.name,
            path=self.path.parent,
            downloader=download_to,
        )

    def complete(self, end: float) -> None:
        """Append to the partial file until it is complete, in several attempts if need be.

        ``end`` is on time.monotonic(). The digest is not checked.
        """
        wait = _FIRST_WAIT
        for _ in range(_ATTEMPTS - 1):
            try:
                self._append(end)
                return
            except requests.RequestException as error:
                if not _may_pass(error) or time.monotonic() > end:
                    raise
            time.sleep(wait)
            wait *= 2
        self._append(end)

    def _append(self, end: float) -> None:
        """Append what one connection yields to the partial file."""
        done = self._partial.stat().st_size if self._partial.exists() else 0
        headers = {"Accept-Encoding": "identity"}
        if done:
            headers["Range"] = f"bytes={done}-"
        with answer_to(self.url, headers, end) as answer:
            if done and answer.status == requests.codes.requested_range_not_satisfiable:
                return  # the file was complete already, or its digest will be wrong
            answer.check()
            self._check_type(answer)
            if answer.status != requests.codes.partial_content:
                done = 0
            self._write(answer, done)

    def _check_type(self, answer: Answer) -> None:
        kind = answer.headers.get("Content-Type", "")
        if kind.startswith("text/html") and self.path.suffix != ".html":
            raise _WebPage

    def _write(self, answer: Answer, done: int) -> None:
        """Write the body after the first ``done`` bytes of the partial file."""
        total = done + answer.length
        self._check_size(total)
        with self._partial.open("ab" if done else "wb") as file:
            for chunk in answer.chunks():
                done += len(chunk)
                self._check_size(done)
                file.write(chunk)
                self.progress(self.path.name, done, total)
        if done < total:
            problem = f"the connection ended after {done:,} of {total:,} bytes"
            raise requests.ConnectionError(problem)

    def _check_size(self, size: int) -> None:
        if size > self.limits.size:
            self._partial.unlink(missing_ok=True)
            raise _TooLarge

    def _reason(self, error: Exception) -> str:
        if isinstance(error, _TooLarge):
            limit = format_quantity(self.limits.size, "B")
            return f"the server sends more than {limit}; --mlms-download-size allows more"
        if isinstance(error, TooSlow):
            advice = "run again to go on with what is there, or allow more by --mlms-download-time"
            return f"{error}; {advice}"
        return _reason(error)


def _known_hash(digest: str | None) -> str | None:
    """Return a digest as pooch writes it."""
    return digest if digest is None or ":" in digest else f"sha256:{digest}"


@contextlib.contextmanager
def _redacted_logs() -> Iterator[None]:
    """Keep secrets of addresses out of the logs of the libraries."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(_redact_record)
    pooch.get_logger().setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_redact_record)


def _redact_record(record: logging.LogRecord) -> bool:
    record.msg = redact(record.getMessage())
    record.args = ()
    return True


def _may_pass(error: requests.RequestException) -> bool:
    """Return whether another attempt may succeed: not if the server refused the request."""
    if error.response is None:
        return True
    return error.response.status_code >= 500


def _reason(error: Exception) -> str:
    if isinstance(error, requests.HTTPError):
        status = f"{error.response.status_code} {shortened(str(error.response.reason), _SHOWN)}"
        return f"the server answered {status}; correct the address"
    if isinstance(error, _WebPage):
        problem = "the server sent a web page instead of the file"
        return f"{problem}; it may want a login, or this is a page about the file"
    if isinstance(error, requests.RequestException):
        advice = "run again to go on with what is there, or check the network and the address"
        return f"{error}; {advice}"
    return f"{error} Correct the manifest's sha256 if the file is the one that you mean."
