"""nginx with TLS in front of a portal, by the example of docs/portal.md."""

from __future__ import annotations

import contextlib
import shutil
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.project import HANG_GUARD

__all__ = ["Proxy", "running_nginx"]

DOCUMENT = Path(__file__).parents[2] / "docs" / "portal.md"
_SETTINGS = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    ssl_certificate {folder}/certificate.pem;
    ssl_certificate_key {folder}/key.pem;
{server}
}}
"""


@dataclass(frozen=True)
class Proxy:
    """A proxy that runs: its address, and its own certificate, which nobody else has signed."""

    port: int
    certificate: Path

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def context(self) -> ssl.SSLContext:
        """Return what a client trusts that has the certificate."""
        return ssl.create_default_context(cafile=str(self.certificate))


@contextlib.contextmanager
def running_nginx(port: int, portal_port: int) -> Iterator[Proxy]:
    """Yield nginx on a port, with the document's example; skips the test where it is missing."""
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if nginx is None or shutil.which("openssl") is None:
        pytest.skip("nginx or openssl isn't installed; apt-get install nginx-light openssl")
    with tempfile.TemporaryDirectory(prefix="mlms-nginx-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # nginx' workers are another user
        _make_certificate(folder)
        settings = _SETTINGS.format(folder=folder, server=_example(port, portal_port))
        (folder / "nginx.conf").write_text(settings)
        command = [nginx, "-p", str(folder), "-c", str(folder / "nginx.conf")]
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            _wait_until_it_listens(process, folder)
            yield Proxy(port, folder / "certificate.pem")
        finally:
            process.terminate()
            process.wait(HANG_GUARD)


def _example(port: int, portal_port: int) -> str:
    """Return the server of docs/portal.md with these ports."""
    text = DOCUMENT.read_text()
    start = text.index("server {\n    listen 443 ssl;")
    example = text[start : text.index("```", start)]
    for before, after in (
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("portal.example.org", "localhost"),
        ("127.0.0.1:8765", f"127.0.0.1:{portal_port}"),
    ):
        assert before in example
        example = example.replace(before, after)
    return example


def _make_certificate(folder: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    subprocess.run(command, check=True, capture_output=True, timeout=HANG_GUARD)


def _wait_until_it_listens(process: subprocess.Popen[bytes], folder: Path) -> None:
    ends = time.monotonic() + HANG_GUARD
    while not (folder / "pid").exists() or not (folder / "pid").read_text().strip():
        assert process.poll() is None, (folder / "output").read_text()
        assert time.monotonic() < ends
        time.sleep(0.02)
