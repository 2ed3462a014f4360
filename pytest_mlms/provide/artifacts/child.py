"""Files that a library of a service fetches, in a process of its own.

Such libraries can't be bounded in time or size from within. The process is ended at the deadline,
and what it has written is watched.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from pytest_mlms.core.redaction import redact
from pytest_mlms.core.starts import module_command
from pytest_mlms.core.text import shortened
from pytest_mlms.provide.artifacts.transfer import DownloadError, Transfer

_MODULE = "pytest_mlms.provide.artifacts.child_main"
_SETTINGS = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
_POLL = 0.1  # seconds between two looks at the file
_SHOWN = 500  # characters of an error
_LONGEST_LINE = 1 << 16  # bytes
_SECRET_NAME = re.compile("TOKEN|SECRET|PASSWORD|PASSWD|KEY|CREDENTIAL|CONNECTION_STRING|SAS")
_SECRET_LENGTH = 6  # characters, the fewest of a value that is hidden


def retrieve_by_child(transfer: Transfer) -> None:
    """Write the file at an address by huggingface_hub (``hf:``) or fsspec (``s3://`` and others).

    The time for the start of the process counts. Raises DownloadError.
    """
    command = [*module_command(_MODULE), transfer.source, str(transfer.partial)]
    command.append(str(int(min(transfer.limits.size, 2**62))))
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        with _running(command, output, errors) as process:
            _watch(process, transfer)
        reply = _reply_in(_last_line(output))
        problem = reply.get("error") or _last_line(errors) or f"exit {process.returncode}"
    if "size" not in reply:
        raise DownloadError(shortened(_without_secrets(" ".join(str(problem).split())), _SHOWN))


@contextlib.contextmanager
def _running(
    command: list[str], output: IO[bytes], errors: IO[bytes]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the child; it ends with the block, or when this process does, by its standard input.

    It writes into files, so that it never waits for this process to read.
    """
    environment = {**os.environ, **_SETTINGS}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=output, stderr=errors, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _watch(process: subprocess.Popen[bytes], transfer: Transfer) -> None:
    """Wait for the child; raises DownloadError beyond the limits."""
    while process.poll() is None:
        transfer.note(_size_of(transfer.partial))
        time.sleep(_POLL)


def _size_of(partial: Path) -> int:
    try:
        return partial.stat().st_size
    except FileNotFoundError:  # nothing has come yet
        return 0


def _last_line(file: IO[bytes]) -> str:
    """Return the last line of what the child wrote into a file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _LONGEST_LINE))
    lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _reply_in(line: str) -> dict[str, Any]:
    """Return the child's reply; nothing where it crashed before."""
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
