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
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_mlms.artifacts.transfer import DownloadError, Transfer
from pytest_mlms.redaction import redact
from pytest_mlms.text import shortened

__all__ = ["retrieve_by_child"]

_MODULE = "pytest_mlms.artifacts.child_main"
_SETTINGS = {
    "PYTHONSAFEPATH": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
_POLL = 0.1  # seconds between two looks at the file
_SHOWN = 500  # characters of an error
_SECRET_NAME = re.compile("TOKEN|SECRET|PASSWORD|PASSWD|KEY|CREDENTIAL|CONNECTION_STRING|SAS")
_SECRET_LENGTH = 6  # characters, the fewest of a value that is hidden


def retrieve_by_child(transfer: Transfer) -> None:
    """Write the file at an address by huggingface_hub (``hf:``) or fsspec (``s3://`` and others).

    The time for the start of the process counts. Raises DownloadError.
    """
    command = [sys.executable, "-m", _MODULE, transfer.source, str(transfer.partial)]
    command.append(str(int(min(transfer.limits.size, 2**62))))
    with _running(command) as process:
        output = _watch(process, transfer)
        errors = process.stderr.read() if process.stderr else ""
    reply = _reply_in(output)
    if "size" not in reply:
        text = str(reply.get("error") or _last_line(errors) or f"exit {process.returncode}")
        raise DownloadError(shortened(_without_secrets(text), _SHOWN))


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run the child; it ends with the block, or when this process does, by its standard input."""
    environment = {**os.environ, **_SETTINGS}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _watch(process: subprocess.Popen[str], transfer: Transfer) -> str:
    """Wait for the child, and return its output; raises DownloadError beyond the limits."""
    while process.poll() is None:
        transfer.note(_size_of(transfer.partial))
        time.sleep(_POLL)
    return process.stdout.read() if process.stdout else ""


def _size_of(partial: Path) -> int:
    try:
        return partial.stat().st_size
    except FileNotFoundError:  # nothing has come yet
        return 0


def _reply_in(output: str) -> dict[str, Any]:
    """Return the child's reply, its last line; nothing where it crashed."""
    lines = output.splitlines()
    with contextlib.suppress(ValueError, IndexError):
        reply = json.loads(lines[-1])
        if isinstance(reply, dict):
            return reply
    return {}


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def _without_secrets(text: str) -> str:
    """Return a text without the values of variables whose names tell that they are secret."""
    for name, value in os.environ.items():
        is_secret = _SECRET_NAME.search(name.upper()) and len(value) >= _SECRET_LENGTH
        if is_secret:
            text = text.replace(value, "***")
    return redact(text)
