"""Downloads over HTTP that continue where a broken connection left off.

A download goes to a file named ``partial``. pooch gives it its final name once its digest is
right, and never before.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pooch
import requests

__all__ = ["Download", "DownloadError", "ReportProgress"]

ReportProgress = Callable[[str, int, int], None]
"""Called with the file's name, the bytes so far, and all bytes (0 if the server doesn't say)."""

_ATTEMPTS = 4
_FIRST_WAIT = 0.5  # seconds before the second attempt; doubled for each further one
_CHUNK = 1 << 16  # bytes, at most what a broken connection loses
_SILENCE = 30  # seconds without a byte before a connection counts as broken


class DownloadError(Exception):
    """A download that failed; the text says why, and what to do."""


class _WebPage(Exception):
    """The server's answer is HTML, and the file is not."""


@dataclass(frozen=True)
class Download:
    """A file to be downloaded from ``url`` to ``path``, whose folder exists.

    The caller holds a lock, so that no other process downloads it at the same time.
    """

    url: str
    path: Path
    progress: ReportProgress

    def run(self, digest: str) -> None:
        """Download the file and check its sha256; raises DownloadError.

        A partial file of an earlier attempt is continued. If the digest is wrong then, the partial
        file may have been of another version, and the download is done once more from the start.
        """
        logging.getLogger("pooch").setLevel(logging.WARNING)
        is_continued = self._partial.exists()
        try:
            try:
                self._retrieve(digest)
            except ValueError:
                if not is_continued:
                    raise
                self._retrieve(digest)
        except (ValueError, requests.RequestException, _WebPage) as error:
            raise DownloadError(_reason(error)) from error

    @property
    def _partial(self) -> Path:
        return self.path.with_name("partial")

    def _retrieve(self, digest: str) -> None:
        """Download by pooch, which raises ValueError for a wrong digest."""
        pooch.retrieve(
            self.url,
            f"sha256:{digest}",
            fname=self.path.name,
            path=self.path.parent,
            downloader=self._download_to,
        )

    def _download_to(self, url: str, output: str, _: object) -> None:
        """Download to the file that pooch checks; this is pooch's interface of a downloader."""
        self._complete_partial()
        os.replace(self._partial, output)

    def _complete_partial(self) -> None:
        """Append to the partial file until it is complete, in several attempts if need be."""
        wait = _FIRST_WAIT
        for _ in range(_ATTEMPTS - 1):
            try:
                self._append()
                return
            except requests.RequestException as error:
                if not _may_pass(error):
                    raise
            time.sleep(wait)
            wait *= 2
        self._append()

    def _append(self) -> None:
        """Append what one connection yields to the partial file."""
        done = self._partial.stat().st_size if self._partial.exists() else 0
        headers = {"Accept-Encoding": "identity"}
        if done:
            headers["Range"] = f"bytes={done}-"
        with requests.get(self.url, headers=headers, stream=True, timeout=_SILENCE) as response:
            if done and response.status_code == requests.codes.requested_range_not_satisfiable:
                return  # the file was complete already, or its digest will be wrong
            response.raise_for_status()
            self._check_type(response)
            if response.status_code != requests.codes.partial_content:
                done = 0
            self._write(response, done)

    def _check_type(self, response: requests.Response) -> None:
        kind = response.headers.get("Content-Type", "")
        if kind.startswith("text/html") and self.path.suffix != ".html":
            raise _WebPage

    def _write(self, response: requests.Response, done: int) -> None:
        """Write the body after the first ``done`` bytes of the partial file."""
        total = done + int(response.headers.get("Content-Length", 0))
        with self._partial.open("ab" if done else "wb") as file:
            for chunk in response.iter_content(_CHUNK):
                file.write(chunk)
                done += len(chunk)
                self.progress(self.path.name, done, total)
        if done < total:
            problem = f"the connection ended after {done:,} of {total:,} bytes"
            raise requests.ConnectionError(problem)


def _may_pass(error: requests.RequestException) -> bool:
    """Return whether another attempt may succeed: not if the server refused the request."""
    if error.response is None:
        return True
    return error.response.status_code >= 500


def _reason(error: Exception) -> str:
    if isinstance(error, requests.HTTPError):
        status = f"{error.response.status_code} {error.response.reason}"
        return f"the server answered {status}; correct the address"
    if isinstance(error, _WebPage):
        problem = "the server sent a web page instead of the file"
        return f"{problem}; it may want a login, or this is a page about the file"
    if isinstance(error, requests.RequestException):
        advice = "run again to go on with what is there, or check the network and the address"
        return f"{error}; {advice}"
    return f"{error} Correct the manifest's sha256 if the file is the one that you mean."
