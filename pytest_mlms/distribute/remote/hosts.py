"""Remote hosts before they are workers.

Where their interpreter is, and whether it has what runs here.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from pytest_mlms.distribute.remote.wheel import code_digest, version_name

__all__ = ["ANSWER", "Unfit", "check_worker", "interpreter", "is_elsewhere", "prepare_spec"]

HOME = ".cache/pytest-mlms/worker"
"""Below the remote user's home: an environment for each version."""

SAME = ("pytest", "pytest-xdist", "execnet")
"""Of these the controller and its workers must have the same version."""

ANSWER = 120  # seconds
"""How long a host may take to say what it has, before it is left out."""

_CONNECT = 10  # seconds
# or a link that goes down while we connect is waited on
_ALIVE = "-o ServerAliveInterval=15 -o ServerAliveCountMax=4"


class Unfit(Exception):
    """A host that is there but can't be a worker; the text says why and what to do."""


def interpreter() -> str:
    """Return where 'mlms worker install' puts the interpreter for this version, as a remote shell
    reads it.
    """
    return f"~/{HOME}/{version_name()}/bin/python"


def is_elsewhere(spec: Any) -> bool:
    """Whether a worker has files of its own.

    On another host, or in a folder of its own as xdist sees it.
    """
    return not spec.popen or bool(spec.chdir or spec.via)


def prepare_spec(spec: Any, folder: str) -> None:
    """Complete a worker's specification.

    Its interpreter, its folder, and how long a connection may take.
    """
    if spec.popen and not spec.via:
        return
    if spec.chdir in (None, "pyexecnetcache"):
        spec.chdir = folder
    if spec.ssh:
        spec.python = spec.python or interpreter()
        if "ConnectTimeout" not in spec.ssh:
            spec.ssh = f"-o ConnectTimeout={_CONNECT} {spec.ssh}"
        if "ServerAliveInterval" not in spec.ssh:
            spec.ssh = f"{_ALIVE} {spec.ssh}"


def check_worker(gateway: Any) -> None:
    """Raise Unfit where the interpreter of a gateway has another version of what must be the same."""
    channel = gateway.remote_exec(_versions)
    channel.send(SAME)
    found = channel.receive(ANSWER)
    channel.waitclose(ANSWER)
    ours = {"code": code_digest(), **{name: version(name) for name in SAME}}
    wrong = [
        f"{name} {found.get(name) or 'missing'}, here {ours[name]}"
        for name in ours
        if found.get(name) != ours[name]
    ]
    if wrong:
        raise Unfit(f"its {found['executable']} has {'; '.join(wrong)}")


def _versions(channel):  # type: ignore[no-untyped-def]  # execnet sends its source, without our imports
    """Run on the remote host."""
    import sys
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str | None] = {"executable": sys.executable}
    for name in channel.receive():
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    try:
        from pytest_mlms.distribute.remote.wheel import code_digest

        found["code"] = code_digest()
    except ImportError:
        found["code"] = None
    channel.send(found)
