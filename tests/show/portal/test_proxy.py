"""A portal behind nginx with TLS, as docs/portal.md sets it up: pages, pushes, live progress."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.support.histories import run_name, write_run
from tests.support.nginx import Proxy, running_nginx
from tests.support.portals import TOKEN, Answer, Portal, serving
from tests.support.project import HANG_GUARD, copy_digits

pytestmark = pytest.mark.slow

FORM = {"Content-Type": "application/x-www-form-urlencoded"}

SLOW_START = """
import os, pathlib, time, pytest

def pytest_sessionstart():
    os.write(1, b"the first words\\n")
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
    pytest.exit("it went on", returncode=7)
"""


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of manifests whose evaluation says something, and waits for a file."""
    folder = tmp_path_factory.mktemp("proxy") / "manifests"
    copy_digits(folder)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -s\n")
    (folder / "conftest.py").write_text(SLOW_START)
    return folder


@pytest.fixture(scope="module")
def port() -> int:
    """The port of the proxy, which the portal has to know before the proxy starts."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        number: int = listener.getsockname()[1]
        return number


@pytest.fixture(scope="module")
def portal(
    tmp_path_factory: pytest.TempPathFactory, manifests: Path, port: int
) -> Iterator[Portal]:
    results = tmp_path_factory.mktemp("portal")
    write_run(results, 1)
    arguments = (f"--url=https://localhost:{port}", "--allow-run", f"--manifests={manifests}")
    with serving(results, *arguments) as made:
        yield made


@pytest.fixture(scope="module")
def proxy(portal: Portal, port: int) -> Iterator[Proxy]:
    with running_nginx(port, portal.address[1]) as made:
        yield made


def send(proxy: Proxy, method: str, path: str, body: str | None = None, **headers: str) -> Answer:
    """Send a request with the token through the proxy; a header ``Content_Type`` is with -."""
    sent = {"Authorization": f"Bearer {TOKEN}"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items() if value}
    connection = connect(proxy)
    try:
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())
    finally:
        connection.close()


def connect(proxy: Proxy) -> http.client.HTTPSConnection:
    context = proxy.context()
    return http.client.HTTPSConnection("localhost", proxy.port, timeout=HANG_GUARD, context=context)


def push(folder: Path, url: str, *runs: str, **environment: str) -> Mapping[str, object]:
    command = [sys.executable, "-m", "pytest_mlms", "push", f"--url={url}", *runs]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "MLMS_PUSH_TOKEN": TOKEN, **environment},
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
        check=False,
    )
    return {"status": done.returncode, "output": done.stdout, "errors": done.stderr}


def test_pages_are_shown_through_the_proxy(proxy: Proxy) -> None:
    page = send(proxy, "GET", f"/runs/{run_name(1)}")
    assert page.status == 200
    assert run_name(1) in page.text
    assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]


def test_a_browser_logs_in_and_its_cookie_stays_on_tls(proxy: Proxy) -> None:
    form = urlencode({"token": TOKEN, "next": "/runs"})
    headers = {**FORM, "Authorization": "", "Origin": proxy.url}
    answer = send(proxy, "POST", "/login", form, **headers)
    assert (answer.status, answer.headers["Location"]) == (303, "/runs")
    cookie = answer.headers["Set-Cookie"]
    assert "Secure" in cookie
    name = cookie.partition(";")[0]
    assert send(proxy, "GET", "/runs", Authorization="", Cookie=name).status == 200
    for origin in ("https://evil.example", "http://localhost", "null"):
        headers = {"Authorization": "", "Cookie": name, "Origin": origin}
        assert send(proxy, "POST", "/logout", "", **headers).status == 403
    headers = {"Authorization": "", "Cookie": name, "Origin": proxy.url}
    assert send(proxy, "POST", "/logout", "", **headers).status == 303


def test_another_name_is_refused(proxy: Proxy) -> None:
    assert send(proxy, "GET", "/runs", Host="evil.example").status == 421


def test_a_run_is_pushed_with_the_certificate_and_only_with_it(
    proxy: Proxy, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "mlms-results", 2)
    (run / ".unpushed").touch()
    refused = push(tmp_path, proxy.url)
    assert refused["status"] == 1
    assert "certificate" in str(refused["errors"])
    assert (run / ".unpushed").exists()
    done = push(tmp_path, proxy.url, SSL_CERT_FILE=str(proxy.certificate))
    assert (done["status"], done["output"]) == (0, f"{run.name}: new\n")
    assert send(proxy, "GET", f"/api/v1/runs/{run.name}").status == 200


def test_progress_is_live_through_the_proxy(proxy: Proxy, manifests: Path) -> None:
    started = send(proxy, "POST", "/api/v1/evaluations", json.dumps({"manifest": "digits.yaml"}))
    assert started.status == 201, started.text
    name = started.json["id"]
    connection = connect(proxy)
    try:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        connection.request("GET", f"/evaluations/{name}/events", headers=headers)
        events = connection.getresponse()
        assert events.status == 200
        shown = "-"
        while shown and "the first words" not in shown:
            shown = events.readline().decode()
        assert shown
        assert not (manifests / "go").exists()
        (manifests / "go").touch()
        assert "event: end" in events.read().decode()
    finally:
        connection.close()
