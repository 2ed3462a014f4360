"""Downloads in a process of their own, which is ended at the deadline.

Neither requests nor the libraries of services can be bounded in time or size from within. The size
of what the process has written is watched.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from pytest_mlms.core.starts import module_command
from pytest_mlms.core.text import redact, shortened
from pytest_mlms.provide.artifacts.transfer import DownloadError, Transfer

_MODULE = "pytest_mlms.provide.artifacts.child_main"
_SETTINGS = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
_MEASURED = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG", "COV_CORE_SOURCE")
"""Variables that have coverage measure a process: importing requests would take minutes."""

_POLL = 0.1  # seconds between two looks at the file
_SHOWN = 500  # characters of an error
_LONGEST_LINE = 1 << 16  # bytes
_SECRET_NAME = re.compile("TOKEN|SECRET|PASSWORD|PASSWD|KEY|CREDENTIAL|CONNECTION_STRING|SAS")
_SECRET_LENGTH = 6  # characters, the fewest of a value that is hidden


def retrieve_by_child(transfer: Transfer) -> None:
    """Write the file at an address by huggingface_hub (``hf:``) or fsspec (``s3://`` and others).

    The time for the start of the process counts. Raises DownloadError.
    """
    request = {
        "url": transfer.source,
        "file": str(transfer.partial),
        "limit": int(min(transfer.limits.size, 2**62)),
    }
    reply = ask_child(request, lambda told: transfer.note(size_of(transfer.partial)))
    if "error" in reply:
        raise DownloadError(reply["error"])


def ask_child(
    request: Mapping[str, Any], look: Callable[[Mapping[str, Any]], None]
) -> dict[str, Any]:
    """Return the reply of ``child_main`` to a request, which goes by its standard input.

    ``look`` is called several times a second with what the child has told so far, and ends the
    child by an exception. The child also ends when this process does, as that closes its input. It
    writes into files, so that it never waits for this process to read. "error" of the reply is
    without secrets.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _MEASURED}
    with (
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            module_command(_MODULE),
            bufsize=0,  # to close the input of a child that crashed at its start is no error then
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            env={**environment, **_SETTINGS},
        ) as process,
    ):
        try:
            assert process.stdin
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(request).encode() + b"\n")
            while process.poll() is None:
                look(_reply_in(_last_line(output)))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL)
        finally:
            process.kill()
        reply = _reply_in(_last_line(output))
        if process.returncode or reply.keys() <= {"total"}:
            reply = {"error": _last_line(errors) or f"exit {process.returncode}"}
    if "error" in reply:
        reply["error"] = _without_secrets(" ".join(str(reply["error"]).split()))
        reply["error"] = shortened(reply["error"], _SHOWN)
    return reply


def size_of(path: Path) -> int:
    """Return the bytes of a file, 0 where nothing has come yet."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _last_line(file: IO[bytes]) -> str:
    """Return the last line of a file so far, without a move of the place where the child writes."""
    size = os.fstat(file.fileno()).st_size
    end = os.pread(file.fileno(), _LONGEST_LINE, max(0, size - _LONGEST_LINE))
    lines = end.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _reply_in(line: str) -> dict[str, Any]:
    """Return what the child has told; nothing where it crashed before."""
    try:
        reply = json.loads(line)
    except ValueError:
        return {}
    return reply if isinstance(reply, dict) else {}


def _without_secrets(text: str) -> str:
    """Return a text without the values of variables whose names tell that they are secret."""
    for name, value in os.environ.items():
        is_secret = _SECRET_NAME.search(name.upper()) and len(value) >= _SECRET_LENGTH
        if is_secret:
            text = text.replace(value, "***")
    return redact(text)


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
        is_of_settings: A setting of this machine is wrong.
    """

    def __init__(
        self,
        text: str,
        status: int = 0,
        url: str = "",
        is_late: bool = False,
        is_too_large: bool = False,
        is_page: bool = False,
        is_of_settings: bool = False,
    ) -> None:
        super().__init__(text)
        self.status = status
        self.url = url
        self.is_late = is_late
        self.is_too_large = is_too_large
        self.is_page = is_page
        self.is_of_settings = is_of_settings

    @property
    def may_pass(self) -> bool:
        """True if another attempt may succeed: not if the server refused the request."""
        is_refused = 0 < self.status < 500 or self.is_too_large or self.is_page
        return not (is_refused or self.is_of_settings)


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
    requests' own.
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
