"""Commands on a remote host, by ssh and without a password."""

from __future__ import annotations

import base64
import secrets
import shlex
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.text import visible

CONNECT_SECONDS = 10
"""How long ssh tries to connect."""

_RUN_SECONDS = 900
_LONGEST = 1 << 20  # bytes of an output
_SHOWN = 2000  # bytes
_SHOWN_LINES = 6


@dataclass(frozen=True)
class SshHost:
    """A host as ssh knows it.

    ``host`` may have options of ssh before the name. ``python`` is an interpreter on the host, and
    ``config`` a file to use instead of ~/.ssh/config.
    """

    host: str
    python: str = "python3"
    config: str | None = None

    def run_python(self, code: str, data: bytes = b"") -> str:
        """Run Python code on the host, with ``data`` on its standard input; return its output.

        What a login script or a banner prints before and after it is left out. Raises MlmsError
        with what was written to its standard error, or where the output is none of the code.
        """
        mark = secrets.token_hex(8)
        marked = f"print({mark!r}, flush=True)\n{code}\nprint({mark!r})"
        # the interpreter is not quoted, so that the remote shell expands ~; csh quotes no new line
        encoded = base64.b64encode(marked.encode()).decode()
        quoted = shlex.quote(f'import base64; exec(base64.b64decode("{encoded}"))')
        remote_command = f"{self.python} -I -c {quoted}"
        command = ssh_command(self.host, self.config, remote_command)
        try:
            status, output, errors = _bounded_run(command, data)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MlmsError(
                f"{self.host}: {error}; check that 'ssh {self.host}' works without a password"
            ) from error
        if status:
            message = shown_answer(errors) or f"ssh ended with {status}"
            raise MlmsError(f"{self.host}: {message}")
        parts = output.decode(errors="replace").split(f"{mark}\n")
        if len(parts) != 3:
            shown = shown_answer(output) or "nothing"
            raise MlmsError(f"{self.host}: {self.python} didn't answer; it printed: {shown}")
        return parts[1]


def shown_answer(text: bytes) -> str:
    """Return the last lines of a host's output, which may be anything, for a message."""
    lines = text[-_SHOWN:].decode(errors="replace").strip().splitlines()
    return visible("; ".join(lines[-_SHOWN_LINES:]))


def _bounded_run(command: list[str], data: bytes) -> tuple[int, bytes, bytes]:
    """Run a command; return its status, and the first mebibyte of each of its outputs.

    One that writes more is ended.
    """
    errors: list[bytes] = []
    with tempfile.TemporaryFile() as given:
        given.write(data)
        given.seek(0)
        with subprocess.Popen(
            command, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout
            reader = threading.Thread(target=_drain, args=(process.stderr, errors))
            timer = threading.Timer(_RUN_SECONDS, process.kill)
            reader.start()
            timer.start()
            try:
                output = process.stdout.read(_LONGEST)
                if len(output) == _LONGEST:
                    process.kill()
                status = process.wait()
                reader.join()
            finally:
                timer.cancel()
                process.kill()
    return status, output, b"".join(errors)


def _drain(stream: IO[bytes], kept: list[bytes]) -> None:
    """Keep the beginning of a stream, and read it to its end."""
    kept.append(stream.read(_LONGEST))
    while stream.read(_LONGEST):
        pass


def ssh_command(host: str, config: str | Path | None, command: str) -> list[str]:
    """Return the command line of ssh; ``host`` may have options before the name."""
    line = ["ssh"]
    line += ["-o", f"ConnectTimeout={CONNECT_SECONDS}"]
    line += ["-o", "BatchMode=yes"]
    if config:
        line += ["-F", str(config)]
    return [*line, *host.split(), command]
