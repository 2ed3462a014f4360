"""Checks of hosts before they become workers, and their specifications for execnet."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from pytest_mlms.distribute.remote.install import SAME_VERSION, code_digest, installed_python
from pytest_mlms.distribute.remote.ssh import CONNECT_SECONDS

ANSWER_SECONDS = 120
"""How long a host may take to answer before it is left out."""

_XDIST_DEFAULT_FOLDER = "pyexecnetcache"

# Without these a connection that is lost while we connect would be waited for.
_KEEP_ALIVE = "-o ServerAliveInterval=15 -o ServerAliveCountMax=4"


class UnfitHost(Exception):
    """A host that is there but can't be a worker; the text says why."""


def has_own_files(spec: Any) -> bool:
    """Return whether a worker of this execnet specification does not share our files.

    It is on another host, or works in a folder of its own.
    """
    return not spec.popen or bool(spec.chdir or spec.via)


def prepare_spec(spec: Any, folder: str) -> None:
    """Complete an execnet specification of a worker in place, as xdist wants it.

    A remote worker gets its working folder, its interpreter, and limits for the connection, unless
    the user has chosen them.
    """
    if spec.popen and not spec.via:
        return
    if spec.chdir in (None, _XDIST_DEFAULT_FOLDER):
        spec.chdir = folder
    if spec.ssh:
        spec.python = spec.python or installed_python()
        if "ConnectTimeout" not in spec.ssh:
            spec.ssh = f"-o ConnectTimeout={CONNECT_SECONDS} {spec.ssh}"
        if "ServerAliveInterval" not in spec.ssh:
            spec.ssh = f"{_KEEP_ALIVE} {spec.ssh}"


def check_worker(gateway: Any) -> None:
    """Raise UnfitHost where a gateway's interpreter lacks the same code or package versions."""
    channel = gateway.remote_exec(_send_versions)
    channel.send(SAME_VERSION)
    found = channel.receive(ANSWER_SECONDS)
    channel.waitclose(ANSWER_SECONDS)
    expected = {"code": code_digest()}
    for name in SAME_VERSION:
        expected[name] = version(name)
    differences = []
    for name, ours in expected.items():
        if found.get(name) != ours:
            differences.append(f"{name} {found.get(name) or 'missing'}, here {ours}")
    if differences:
        raise UnfitHost(f"its {found['executable']} has {'; '.join(differences)}")


def _send_versions(channel):  # type: ignore[no-untyped-def]
    """Run on the remote host: execnet sends the source, without the imports of this module."""
    import sys
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str | None] = {"executable": sys.executable}
    for name in channel.receive():
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    try:
        from pytest_mlms.distribute.remote.install import code_digest

        found["code"] = code_digest()
    except ImportError:
        found["code"] = None
    channel.send(found)
