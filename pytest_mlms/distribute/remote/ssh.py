"""Commands on a remote host, by ssh and without a password."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pytest_mlms.errors import MlmsError

__all__ = ["CONNECT_SECONDS", "SshHost", "ssh_command"]

CONNECT_SECONDS = 10
"""How long ssh tries to connect."""

_RUN_SECONDS = 900


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

        Raises MlmsError with what it wrote to its standard error.
        """
        # the interpreter is not quoted, so that the remote shell expands ~
        quoted = shlex.quote(code)
        remote_command = f"{self.python} -I -c {quoted}"
        command = ssh_command(self.host, self.config, remote_command)
        try:
            done = subprocess.run(
                command, input=data, capture_output=True, timeout=_RUN_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MlmsError(
                f"{self.host}: {error}; check that 'ssh {self.host}' works without a password"
            ) from error
        if done.returncode:
            message = done.stderr.decode(errors="replace").strip()
            if not message:
                message = f"ssh ended with {done.returncode}"
            raise MlmsError(f"{self.host}: {message}")
        return done.stdout.decode()


def ssh_command(host: str, config: str | Path | None, command: str) -> list[str]:
    """Return the command line of ssh; ``host`` may have options before the name."""
    line = ["ssh"]
    line += ["-o", f"ConnectTimeout={CONNECT_SECONDS}"]
    line += ["-o", "BatchMode=yes"]
    if config:
        line += ["-F", str(config)]
    return [*line, *host.split(), command]
