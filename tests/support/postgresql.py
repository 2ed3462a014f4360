"""A PostgreSQL server of Debian's package, on loopback, in a temporary folder."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.lacking import lack

with contextlib.suppress(ImportError):
    # Here, since pytester removes what a test imported first, and psycopg's compiled part, which
    # stays, would raise errors of another psycopg than the one that is imported again.
    import psycopg  # noqa: F401

__all__ = ["PASSWORD", "Server", "find_binaries", "running_server"]

PASSWORD = "s3cret-of-tests"
_USER = "postgres"
_START_SECONDS = 120


def find_binaries() -> Path | None:
    """Return the folder of the newest installed server's programs; None where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version)
    return found[-1].parent if found else None


def _version(program: Path) -> int:
    return int(program.parent.parent.name)


class Server:
    """A server that can be stopped and started; ``database`` makes a new database."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries = binaries
        self._data = folder / "data"
        self._log = folder / "log"
        self._numbers = itertools.count(1)
        self.port = _free_port()
        password = folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        _give(folder)
        authentication = ["--auth=scram-sha-256", f"--pwfile={password}"]
        self._call("initdb", "-D", self._data, "-U", _USER, "-E", "UTF8", "-N", *authentication)

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        settings = f"-p {self.port} -h 127.0.0.1 -k '' -c fsync=off"
        self._control("start", "-l", self._log, "-t", _START_SECONDS, "-o", settings)

    @property
    def pid(self) -> int:
        """The process that SIGINT ends, with all connections."""
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def wait(self) -> None:
        """Wait until a server that was told to end has ended."""
        while (self._data / "postmaster.pid").exists():
            time.sleep(0.05)

    def stop(self) -> None:
        """End the server and its connections at once."""
        self._control("stop", "-m", "fast")

    def database(self) -> str:
        """Make a database; return its URL, with the password."""
        name = f"history{next(self._numbers)}"
        self.sql(f"CREATE DATABASE {name}")
        return f"postgresql+psycopg://{_USER}:{PASSWORD}@127.0.0.1:{self.port}/{name}"

    def sql(self, statement: str) -> None:
        """Run a statement outside of a transaction."""
        import psycopg

        address = f"postgresql://{_USER}:{PASSWORD}@127.0.0.1:{self.port}/postgres"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(statement.encode())

    def _control(self, *arguments: object) -> None:
        self._call("pg_ctl", "-w", "-D", self._data, *arguments)

    def _call(self, program: str, *arguments: object) -> None:
        command = [str(self._binaries / program), *map(str, arguments)]
        with tempfile.TemporaryFile() as output:  # a pipe would stay open in the server
            done = subprocess.run(_as_other_user(command), stdout=output, stderr=output, cwd="/")
            output.seek(0)
            assert done.returncode == 0, output.read().decode()


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """Yield a server that runs; skips the test where PostgreSQL isn't installed."""
    binaries = find_binaries()
    if binaries is None:
        lack("postgresql", "PostgreSQL isn't installed; bash ci/postgresql installs it")
    folder = Path(tempfile.mkdtemp(prefix="mlms-postgresql-"))
    try:
        server = Server(binaries, folder)
        server.start()
        try:
            yield server
        finally:
            with contextlib.suppress(AssertionError):  # a test has stopped it
                server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _give(folder: Path) -> None:
    """Give the folder to the user that the server runs as: it refuses to run as root."""
    if os.geteuid() == 0:
        shutil.chown(folder, _USER)


def _as_other_user(command: Sequence[str]) -> list[str]:
    """Return a command that runs as the package's user where we are root."""
    if os.geteuid() != 0:
        return list(command)
    return ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups", *command]
