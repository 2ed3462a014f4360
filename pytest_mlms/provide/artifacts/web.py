"""HTTP requests that a server can't draw out or lead astray: each is a process with a deadline.

requests has a timeout for each read of a socket, which a server meets that sends a byte a second.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_mlms.provide.artifacts.child import ask_child, size_of

_LEAST_BYTES = 1 << 16
_LEAST_BYTES_SECONDS = 60  # for the headers, and for as many bytes of a body


class WebError(Exception):
    """A request that failed.

    Attributes:
        status: The status of the answer, 0 where none came.
        url: The address that refused the request, with a status of 400 or more.
        is_late: The time was over.
        is_too_large: The body has more bytes than the limit.
        is_page: The answer is a web page, and a file was asked for.
    """

    def __init__(
        self,
        text: str,
        status: int = 0,
        url: str = "",
        is_late: bool = False,
        is_too_large: bool = False,
        is_page: bool = False,
    ) -> None:
        super().__init__(text)
        self.status = status
        self.url = url
        self.is_late = is_late
        self.is_too_large = is_too_large
        self.is_page = is_page

    @property
    def may_pass(self) -> bool:
        """True if another attempt may succeed: not if the server refused the request."""
        is_refused = 0 < self.status < 500 or self.is_too_large or self.is_page
        return not is_refused


def append_to(
    partial: Path, url: str, most: float, end: float, note: Callable[[int, int], None], page: bool
) -> None:
    """Append what one connection yields of ``url`` to the file ``partial``.

    ``end`` is on time.monotonic(). ``note`` is called with the bytes so far and all bytes, 0 where
    the server doesn't say. ``page`` allows an answer that is HTML. Raises WebError, also for a file
    of more than ``most`` bytes, which is removed, and OSError where it can't be written.
    """
    try:
        _ask(url, partial, most, end, note, no_page=not page)
    except WebError as error:
        if error.is_too_large:
            partial.unlink(missing_ok=True)
        raise
    note(size_of(partial), size_of(partial))


def final_address(url: str, headers: Mapping[str, str], end: float) -> str:
    """Return where the redirects of an address lead; raises WebError."""
    with tempfile.TemporaryDirectory() as folder:
        reply = _ask(url, Path(folder, "answer"), 0, end, headers=headers, only_address=True)
    return str(reply["url"])


def read_answer(
    url: str, headers: Mapping[str, str], end: float, most: int, certificates: str | None = None
) -> tuple[bytes, str]:
    """Return the body of an answer of at most so many bytes, and its type; raises WebError.

    ``end`` is on time.monotonic(). ``certificates`` is a file of authorities to trust instead of
    those of requests.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "answer")
        try:
            reply = _ask(url, path, most, end, headers=headers, certificates=certificates)
        except WebError as error:
            if error.is_too_large:
                raise WebError(f"{url} sends more than {most:,} bytes") from error
            raise
        return path.read_bytes(), str(reply["type"])


def _ask(
    url: str,
    path: Path,
    most: float,
    end: float,
    note: Callable[[int, int], None] = lambda done, total: None,
    *,
    headers: Mapping[str, str] = {},
    certificates: str | None = None,
    no_page: bool = False,
    only_address: bool = False,
) -> dict[str, Any]:
    """Have a child write the answer to a file, and return its reply."""
    size, began = size_of(path), time.monotonic()

    def look(told: Mapping[str, Any]) -> None:
        nonlocal size, began
        done, now = size_of(path), time.monotonic()
        if now > end:
            raise WebError("the time for the download is over", is_late=True)
        if not size <= done < size + _LEAST_BYTES:
            size, began = done, now
        if now > began + _LEAST_BYTES_SECONDS:
            little = f"less than {_LEAST_BYTES >> 10} KiB in {_LEAST_BYTES_SECONDS:g} s"
            raise WebError(f"the server sent {little}", is_late=True)
        if done:
            note(done, told.get("total", 0))

    request = {
        "url": url,
        "file": str(path),
        "limit": int(min(most, 2**62)),
        "headers": {"Accept-Encoding": "identity", **headers},
        "certificates": certificates,
        "no_page": no_page,
        "only_address": only_address,
    }
    reply = ask_child(request, look)
    if "errno" in reply:
        raise OSError(reply["errno"], reply["strerror"], reply["path"])
    if "error" in reply:
        raise WebError(reply.pop("error"), **reply)
    return reply
