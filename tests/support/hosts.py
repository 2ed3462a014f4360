"""Hosts for tests: network namespaces with a real sshd each, own names, homes and locks, and none
of our files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


class Unable(Exception):
    """Why there can be no such hosts here."""


class Host:
    """One of them: ``address`` is its end of a link of its own."""

    def __init__(self, folder: Path, number: int) -> None:
        self.name = f"mlms{number}"
        self.space = f"mlms{os.getpid()}n{number}"
        self.home = folder / self.name
        slot = (os.getpid() * 4 + number) % 16384
        self._net = f"10.213.{slot >> 6}.{(slot & 63) * 4 + 1}"
        self.address = f"10.213.{slot >> 6}.{(slot & 63) * 4 + 2}"
        self._folder = folder
        self._veth = f"mv{os.getpid() % 1000000}n{number}"

    def up(self, hidden: Path) -> None:
        """Make it; ``hidden`` is a folder that it shall not see."""
        self.home.mkdir()
        (self._folder / f"{self.name}.passwd").write_text(
            f"root:x:0:0:root:{self.home}:/bin/sh\nsshd:x:105:65534::/run/sshd:/bin/false\n"
        )
        call("ip", "netns", "add", self.space)
        call(
            "ip",
            "link",
            "add",
            self._veth,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            self.space,
        )
        call("ip", "addr", "add", f"{self._net}/30", "dev", self._veth)
        call("ip", "link", "set", self._veth, "up")
        call("ip", "-n", self.space, "addr", "add", f"{self.address}/30", "dev", "eth0")
        call("ip", "-n", self.space, "link", "set", "eth0", "up")
        call("ip", "-n", self.space, "link", "set", "lo", "up")
        (self._folder / f"{self.name}.sshd").write_text(
            f"ListenAddress {self.address}\nPort 22\nHostKey {self._folder}/hostkey\nPidFile {self._folder}/{self.name}.pid\n"
            f"AuthorizedKeysFile {self._folder}/key.pub\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n"
            f"UsePAM no\nStrictModes no\nMaxStartups 50\nMaxSessions 50\n"
            f"SetEnv MLMS_HOST={self.name} MLMS_LOCKS={self.home}/locks PYTHONDONTWRITEBYTECODE=1\n"
        )
        inside = (
            f"hostname {self.name} && mount --bind {self._folder}/{self.name}.passwd /etc/passwd && "
            f"mount -t tmpfs none {hidden} && mkdir -p /run/sshd && exec /usr/sbin/sshd -f {self._folder}/{self.name}.sshd"
        )
        call("ip", "netns", "exec", self.space, "unshare", "--uts", "--mount", "sh", "-c", inside)

    def pids(self) -> list[int]:
        """Return its processes."""
        return [int(pid) for pid in call("ip", "netns", "pids", self.space).split()]

    def kill(self) -> None:
        """End its sshd and all its workers at once, as a power cut would."""
        end = time.monotonic() + 600
        while time.monotonic() < end:
            pids = self.pids()  # again, as one of them may just have started another
            if not pids:
                break
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def cut(self) -> None:
        """Take its link down: what is sent is not answered, not even refused."""
        call("ip", "link", "set", self._veth, "down")

    def down(self) -> None:
        """Remove what is left of it."""
        with contextlib.suppress(Unable):
            self.kill()
        for command in (["link", "del", self._veth], ["netns", "del", self.space]):
            with contextlib.suppress(Unable):
                call("ip", *command)


class Hosts:
    """Some hosts, reached by the names in ``config``, an ssh configuration."""

    def __init__(self, folder: Path, count: int) -> None:
        self.config = folder / "ssh_config"
        self.hosts = [Host(folder, number) for number in range(1, count + 1)]
        self._folder = folder

    def up(self, hidden: Path) -> None:
        """Make them all."""
        for name in ("key", "hostkey"):
            call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._folder / name))
        lines = [f"Host {host.name}\n  HostName {host.address}\n" for host in self.hosts]
        lines.append(
            f"Host *\n  User root\n  IdentityFile {self._folder}/key\n  IdentitiesOnly yes\n"
            f"  StrictHostKeyChecking accept-new\n  UserKnownHostsFile {self._folder}/known_hosts\n"
            f"  LogLevel ERROR\n  BatchMode yes\n  ConnectTimeout 60\n"
        )
        self.config.write_text("".join(lines))
        for host in self.hosts:
            host.up(hidden)
        for host in self.hosts:
            self._wait_for(host)

    def down(self) -> None:
        """Remove them all."""
        for host in self.hosts:
            host.down()

    def tx(self, number: int, *more: str) -> str:
        """Return xdist's specification of a worker, in the interpreter that runs the tests."""
        parts = [
            f"ssh=-o ConnectTimeout=60 mlms{number}",
            f"ssh_config={self.config}",
            f"python={sys.executable}",
            *more,
        ]
        return "--tx=" + "//".join(parts)

    def ssh(self, number: int, command: str) -> str:
        """Run a command on a host; return what it prints."""
        return call("ssh", "-F", str(self.config), f"mlms{number}", command)

    def _wait_for(self, host: Host) -> None:
        end = time.monotonic() + 600
        while time.monotonic() < end:
            if (
                subprocess.run(
                    ["ssh", "-F", self.config, host.name, "true"], capture_output=True
                ).returncode
                == 0
            ):
                return
            time.sleep(0.1)
        raise Unable(f"sshd on {host.name} does not answer")


def call(*command: str) -> str:
    """Run a command; raises Unable with what it says."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unable(f"{command[0]}: {error}") from error
    if done.returncode:
        raise Unable(f"{' '.join(command[:4])}: {done.stderr.strip() or done.returncode}")
    return done.stdout


@contextlib.contextmanager
def some_hosts(count: int, hidden: Path) -> Iterator[Hosts]:
    """Give hosts that do not see ``hidden``, or skip the test with the reason."""
    lacking = [
        name for name in ("ip", "ssh", "ssh-keygen", "unshare") if shutil.which(name) is None
    ]
    if os.geteuid() != 0 or lacking or not Path("/usr/sbin/sshd").exists():
        pytest.skip("needs root, iproute2 and openssh-server: bash ci/openssh")
    folder = Path(tempfile.mkdtemp(prefix="mlms", dir="/var/tmp"))
    hosts = Hosts(folder, count)
    try:
        try:
            hosts.up(hidden)
        except Unable as why:
            pytest.skip(f"no network namespaces with an sshd here: {why}")
        yield hosts
    finally:
        hosts.down()
        shutil.rmtree(folder, ignore_errors=True)
