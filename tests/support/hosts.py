"""Hosts for tests: network namespaces with a real sshd each, and with names and homes of their own.

They do not see the folder of the tests, and have their own folder of device locks.
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

from tests.support.lacking import lack

_SECONDS = 600  # for a command, or for an sshd to answer

_SSHD_CONFIG = """\
ListenAddress {host.address}
Port 22
HostKey {folder}/hostkey
PidFile {folder}/{host.name}.pid
AuthorizedKeysFile {folder}/key.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
MaxStartups 50
MaxSessions 50
SetEnv MLMS_HOST={host.name} MLMS_LOCKS={host.home}/locks PYTHONDONTWRITEBYTECODE=1
"""

_PASSWD = """\
root:x:0:0:root:{host.home}:/bin/sh
sshd:x:105:65534::/run/sshd:/bin/false
"""

_START = """\
hostname {host.name}
mount --bind {folder}/{host.name}.passwd /etc/passwd
mount -t tmpfs none {hidden}
mkdir -p /run/sshd
exec /usr/sbin/sshd -f {folder}/{host.name}.sshd
"""

_SSH_CONFIG_OF_HOST = "Host {host.name}\n  HostName {host.address}\n"

_SSH_CONFIG = """\
Host *
  User root
  IdentityFile {folder}/key
  IdentitiesOnly yes
  StrictHostKeyChecking accept-new
  UserKnownHostsFile {folder}/known_hosts
  LogLevel ERROR
  BatchMode yes
  ConnectTimeout 60
"""


class NoHosts(Exception):
    """The reason why there can be no hosts for tests on this machine."""


class Host:
    """A host; ``address`` is its end of a link of its own."""

    def __init__(self, folder: Path, number: int) -> None:
        process = os.getpid()
        subnet = (process * 4 + number) % 16384
        network = f"10.213.{subnet >> 6}"
        first = (subnet & 63) * 4
        self.name = f"mlms{number}"
        self.home = folder / self.name
        self.address = f"{network}.{first + 2}"
        self._our_address = f"{network}.{first + 1}"
        self._namespace = f"mlms{process}n{number}"
        self._link = f"mv{process % 1000000}n{number}"
        self._folder = folder

    def start(self, hidden: Path) -> None:
        """Start the host; ``hidden`` is a folder that it can't see."""
        self.home.mkdir()
        passwd = self._folder / f"{self.name}.passwd"
        passwd.write_text(_PASSWD.format(host=self))
        sshd = self._folder / f"{self.name}.sshd"
        sshd.write_text(_SSHD_CONFIG.format(host=self, folder=self._folder))
        self._connect()
        script = _START.format(host=self, folder=self._folder, hidden=hidden)
        inside = ["unshare", "--uts", "--mount", "sh", "-ec", script]
        call("ip", "netns", "exec", self._namespace, *inside)

    def _connect(self) -> None:
        """Make the host's namespace, and a link between it and ours."""
        call("ip", "netns", "add", self._namespace)
        peer = ["peer", "name", "eth0", "netns", self._namespace]
        call("ip", "link", "add", self._link, "type", "veth", *peer)
        call("ip", "addr", "add", f"{self._our_address}/30", "dev", self._link)
        call("ip", "link", "set", self._link, "up")
        inside = ["ip", "-n", self._namespace]
        call(*inside, "addr", "add", f"{self.address}/30", "dev", "eth0")
        call(*inside, "link", "set", "eth0", "up")
        call(*inside, "link", "set", "lo", "up")

    def processes(self) -> list[int]:
        """Return the ids of the host's processes."""
        return [int(pid) for pid in call("ip", "netns", "pids", self._namespace).split()]

    def kill(self) -> None:
        """End sshd and all workers at once, as a power cut does."""
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            processes = self.processes()
            if not processes:
                break
            # one of them may have started another since, so they are listed again
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.05)

    def cut(self) -> None:
        """Take the link down: what is sent is not answered, not even refused."""
        call("ip", "link", "set", self._link, "down")

    def remove(self) -> None:
        """End the host's processes, and remove its link and its namespace."""
        with contextlib.suppress(NoHosts):
            self.kill()
        with contextlib.suppress(NoHosts):
            call("ip", "link", "del", self._link)
        with contextlib.suppress(NoHosts):
            call("ip", "netns", "del", self._namespace)


class Hosts:
    """Some hosts, with the names mlms1, mlms2, … in ``config``, an ssh configuration."""

    def __init__(self, folder: Path, count: int) -> None:
        self.config = folder / "ssh_config"
        self.hosts = [Host(folder, number) for number in range(1, count + 1)]
        self._folder = folder

    def start(self, hidden: Path) -> None:
        """Start all hosts, and wait until they can be reached."""
        for name in ("key", "hostkey"):
            path = self._folder / name
            call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))
        text = ""
        for host in self.hosts:
            text += _SSH_CONFIG_OF_HOST.format(host=host)
        text += _SSH_CONFIG.format(folder=self._folder)
        self.config.write_text(text)
        for host in self.hosts:
            host.start(hidden)
        for host in self.hosts:
            self._wait_for(host)

    def remove(self) -> None:
        """Remove all hosts."""
        for host in self.hosts:
            host.remove()

    def tx(self, number: int, *more: str) -> str:
        """Return xdist's option for a worker, in the interpreter that runs the tests."""
        parts = [
            f"ssh=-o ConnectTimeout=60 mlms{number}",
            f"ssh_config={self.config}",
            f"python={sys.executable}",
            *more,
        ]
        return "--tx=" + "//".join(parts)

    def ssh(self, number: int, command: str) -> str:
        """Run a command on a host, and return its output."""
        return call("ssh", "-F", str(self.config), f"mlms{number}", command)

    def _wait_for(self, host: Host) -> None:
        command = ["ssh", "-F", str(self.config), host.name, "true"]
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            done = subprocess.run(command, capture_output=True)
            if done.returncode == 0:
                return
            time.sleep(0.1)
        raise NoHosts(f"sshd on {host.name} does not answer")


def call(*command: str) -> str:
    """Run a command, and return its output; raise NoHosts with its error."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoHosts(f"{command[0]}: {error}") from error
    if done.returncode:
        error_text = done.stderr.strip() or f"status {done.returncode}"
        raise NoHosts(f"{' '.join(command[:4])}: {error_text}")
    return done.stdout


def _can_have_hosts() -> bool:
    programs = ("ip", "ssh", "ssh-keygen", "unshare")
    if not all(shutil.which(name) for name in programs):
        return False
    return os.geteuid() == 0 and Path("/usr/sbin/sshd").exists()


@contextlib.contextmanager
def some_hosts(count: int, hidden: Path) -> Iterator[Hosts]:
    """Give hosts that can't see ``hidden``, or skip the test with the reason."""
    if not _can_have_hosts():
        lack("openssh", "needs root, iproute2 and openssh-server: bash ci/openssh")
    folder = Path(tempfile.mkdtemp(prefix="mlms", dir="/var/tmp"))
    hosts = Hosts(folder, count)
    try:
        try:
            hosts.start(hidden)
        except NoHosts as reason:
            lack("openssh", f"no network namespaces with an sshd here: {reason}")
        yield hosts
    finally:
        hosts.remove()
        shutil.rmtree(folder, ignore_errors=True)
