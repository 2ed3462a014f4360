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
from collections.abc import Callable, Mapping
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
    environment = {**os.environ, **_SETTINGS}
    with (
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            module_command(_MODULE),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            env=environment,
        ) as process,
    ):
        try:
            assert process.stdin
            with contextlib.suppress(BrokenPipeError):  # it crashed at its start
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
            while process.poll() is None:
                look(_reply_in(_last_line(output)))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL)
        finally:
            process.kill()
        reply = _reply_in(_last_line(output))
        if process.returncode:
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
    """Return the last line of what the child wrote into a file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _LONGEST_LINE))
    lines = file.read().decode(errors="replace").strip().splitlines()
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
