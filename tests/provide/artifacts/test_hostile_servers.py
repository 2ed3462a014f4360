"""Downloads from servers that send too slowly, too much, or what is no HTTP."""

from __future__ import annotations

import gzip
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import psutil
import pytest
import requests

from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.records import DownloadLimits
from pytest_mlms.provide.artifacts import child, child_web
from pytest_mlms.provide.artifacts.download import Download
from pytest_mlms.provide.artifacts.transfer import DownloadError
from tests.support.fileserver import DATA, DIGEST, FileServer
from tests.support.hostile_server import Answer, answering, forever, once

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: /again\r\n"
LARGE = bytes(1 << 20)
LIMITS = DownloadLimits(size=4 << 20, seconds=2.0)
MEMORY = 512 << 20


def slowly(text: bytes) -> Answer:
    never = threading.Event()

    def answer(client: socket.socket) -> None:
        for byte in text * 10_000:
            client.sendall(bytes([byte]))
            never.wait(0.05)

    return answer


def silence(client: socket.socket) -> None:
    client.recv(1)


class Answered:
    """Counts the requests that it gets."""

    count = 0

    def __call__(self, client: socket.socket) -> None:
        self.count += 1


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    """Let what reads without bounds fail, rather than fill the machine."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(statm.read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, before)


def failure_of(url: str, folder: Path, limits: DownloadLimits = LIMITS) -> str:
    """Return the error of a download, which leaves nothing that could be taken for the file."""
    began = time.monotonic()
    download = Download(url, folder / "data.bin", lambda name, done, total: None, limits)
    with pytest.raises(DownloadError) as raised:
        download.run(DIGEST)
    assert time.monotonic() - began < 60
    assert {path.name for path in folder.iterdir()} <= {"partial"}
    return str(raised.value)


TIME = "the time for the download is over; run again to go on with what is there, or allow more by"


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer",
    [
        slowly(OK + b"X-Y: z\r\n" * 100),
        silence,
        forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        forever(CHUNKED, b"1\r\nx\r\n"),
        forever(CHUNKED + b"0\r\n", b"X: y\r\n"),
        forever(REDIRECT + b"\r\n", LARGE),
        slowly(OK + b"\r\n" + bytes(1000)),
    ],
    ids=[
        "a byte now and then of the headers",
        "nothing",
        "interim answers",
        "small chunks",
        "trailers",
        "redirects with endless bodies",
        "a byte now and then of the body",
    ],
)
def test_a_server_that_takes_its_time_is_given_up(tmp_path: Path, answer: Answer) -> None:
    limits = DownloadLimits(size=1 << 40, seconds=1.5)
    with answering(answer) as url:
        problem = failure_of(url, tmp_path, limits)
    assert problem.startswith(TIME) or "redirects" in problem


@pytest.mark.parametrize(
    "beginning",
    [
        OK + b"\r\n",
        OK + b"Content-Length: 999999999999999\r\n\r\n",
        OK + b"Content-Encoding: gzip\r\n\r\n",
    ],
    ids=["without a length", "with a length", "said to be compressed"],
)
def test_a_server_that_does_not_stop_is_stopped(tmp_path: Path, beginning: bytes) -> None:
    with answering(forever(beginning, LARGE)) as url:
        problem = failure_of(url, tmp_path, LIMITS._replace(seconds=600))
    assert problem == "the server sends more than 4.00 MiB; --mlms-download-size allows more"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "answer",
    [
        once(b"what?\r\n"),
        once(b""),
        once(b"HTTP/1.1 999999999999 OK\r\n\r\n"),
        forever(OK, b"X" * 65536),
        forever(OK, b"X: y\r\n"),
        forever(b"", b"X" * 65536),
        forever(CHUNKED, b"0" * 65536),
        forever(CHUNKED + b"-5\r\n", LARGE),
        forever(CHUNKED + b"fffffffffffffffffff\r\n", LARGE),
        once(CHUNKED + b"zzz\r\n"),
        once(CHUNKED + b"5\r\nab"),
        once(OK + b"Content-Length: 5, 6\r\n\r\nabcde"),
        once(OK + b"Content-Length: -5\r\n\r\nabcde"),
        once(OK + b"Content-Length: \xb2\r\n\r\nabcde"),
        once(OK + b"Content-Length: 100\r\n\r\nshort"),
        once(OK + b"Content-Length: 5\r\n\r\nlonger than that"),
        once(REDIRECT + b"\r\n"),
        once(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n"),
        once(b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\n\r\n"),
        once(b"HTTP/1.1 302 Found\r\nLocation: http://\xff\xfe..\xc3\x28/\r\n\r\n"),
        once(b"HTTP/1.1 302 Found\r\nLocation: http://" + b"a" * 70 + b"/\r\n\r\n"),
        once(b"HTTP/1.1 302 Found\r\nLocation: \r\n\r\n"),
        once(b"HTTP/1.1 302 Found\r\nLocation: /" + "é".encode() * 20_000 + b"\r\n\r\n"),
        once(OK + b"Content-Type: " + b"\xff" * 20_000 + b"\r\n\r\n"),
        once(b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 5-1/x\r\n\r\nabc"),
        once(b"HTTP/1.1 404 \x1b[31mred\r\n\r\n"),
        once(OK + b"\r\n" + gzip.compress(DATA)),
    ],
)
def test_an_answer_that_is_no_answer_is_an_error(tmp_path: Path, answer: Answer) -> None:
    with answering(answer) as url:
        problem = failure_of(url, tmp_path, LIMITS._replace(seconds=20))
    assert str(ArtifactError(problem)).isprintable()
    assert "Error" not in problem.split("(Caused by")[0], problem
    assert "exit " not in problem
    assert len(problem) < 1000


@pytest.mark.parametrize("status", [b"202 Accepted", b"204 No Content", b"304 Not Modified"])
def test_an_answer_that_has_no_file_is_not_taken_for_an_empty_one(
    tmp_path: Path, status: bytes
) -> None:
    """A file without a digest would have that of nothing from then on."""
    path = tmp_path / "data.bin"
    download = Download("", path, lambda name, done, total: None, LIMITS)
    refusal = pytest.raises(DownloadError, match=f"the server answered {status.decode()}")
    with answering(once(b"HTTP/1.1 %s\r\n\r\n" % status)) as url, refusal:
        replace(download, url=url).run(None)
    assert not path.exists()


def test_a_compressed_body_is_taken_as_it_was_sent(tmp_path: Path) -> None:
    """Some servers say of a .gz file that it is an encoding of its content."""
    headers = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(DATA)
    path = tmp_path / "data.bin"
    with answering(once(OK + headers + DATA)) as url:
        Download(url, path, lambda name, done, total: None, LIMITS).run(DIGEST)
    assert path.read_bytes() == DATA


def test_a_server_that_sends_little_is_given_up_long_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_LEAST_BYTES_SECONDS", 0.5)
    with answering(slowly(OK + b"\r\n" + bytes(1000))) as url:
        problem = failure_of(url, tmp_path, LIMITS._replace(seconds=600))
    assert problem.startswith("the server sent less than 64 KiB in 0.5 s")


def test_what_came_before_the_end_is_kept_for_the_next_run(tmp_path: Path) -> None:
    length = b"Content-Length: %d\r\n\r\n" % len(DATA)

    def stop_halfway(client: socket.socket) -> None:
        client.sendall(OK + length + DATA[: len(DATA) // 2])
        silence(client)

    with answering(stop_halfway) as url:
        problem = failure_of(url, tmp_path)
    assert problem.startswith(TIME)
    kept = (tmp_path / "partial").read_bytes()
    assert len(kept) > len(DATA) // 4
    assert DATA.startswith(kept)


@pytest.mark.parametrize("place", [b"", b"Content-Range: bytes 0-99/100\r\n"])
def test_another_part_than_was_asked_for_is_not_appended(tmp_path: Path, place: bytes) -> None:
    """A file without a digest would have that of the mixture from then on."""
    length = b"Content-Length: %d\r\n\r\n" % len(DATA)
    answers = [
        OK + length + DATA,
        b"HTTP/1.1 206 Partial Content\r\n" + place + length + DATA,
        OK + length + DATA[:1000],
    ]
    path = tmp_path / "data.bin"
    with answering(lambda client: client.sendall(answers.pop())) as url:
        Download(url, path, lambda name, done, total: None, LIMITS._replace(seconds=60)).run(None)
    assert path.read_bytes() == DATA
    assert not answers


DOWNLOAD = """
import sys
from pathlib import Path
from pytest_mlms.provide.artifacts.download import Download
from pytest_mlms.core.records import DownloadLimits
from pytest_mlms.provide.artifacts.transfer import DownloadError
def report(name, done, total):
    print(done, flush=True)
Download(sys.argv[1], Path(sys.argv[2]), report, DownloadLimits()).run(sys.argv[3])
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_download_is_not_taken_for_the_file(tmp_path: Path, ending: int) -> None:
    length = b"Content-Length: %d\r\n\r\n" % len(DATA)

    def stop_halfway(client: socket.socket) -> None:
        client.sendall(OK + length + DATA[: len(DATA) // 2])
        silence(client)

    path = tmp_path / "data.bin"
    with answering(stop_halfway) as url:
        command = [sys.executable, "-c", DOWNLOAD, url, str(path), DIGEST]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout
            assert process.stdout.readline()
            children = psutil.Process(process.pid).children(recursive=True)
            os.kill(process.pid, ending)
            process.wait(60)
    assert children
    _, left = psutil.wait_procs(children, timeout=30)
    assert not left
    names = {found.name for found in tmp_path.iterdir()}
    assert "partial" in names
    assert "data.bin" not in names
    with answering(once(OK + length + DATA)) as url:
        Download(url, path, lambda name, done, total: None, LIMITS).run(DIGEST)
    assert path.read_bytes() == DATA


def test_a_redirect_leads_neither_into_this_machine_nor_out_of_https() -> None:
    response = requests.Response()
    for url, target in [
        ("https://192.0.2.1/a", "http://192.0.2.1/a"),
        ("https://192.0.2.1/a", "file:///etc/passwd"),
        ("http://192.0.2.1/a", "mailto:a@example.org"),
        ("http://192.0.2.1/a", "http://localhost/admin"),
        ("http://192.0.2.1/a", "http://[::1]/"),
        ("http://192.0.2.1/a", "http://0.0.0.0/"),
        ("http://192.0.2.1/a", "http://[::ffff:127.0.0.1]/"),
        ("http://192.0.2.1/a", "http://169.254.169.254/latest/meta-data"),
        ("http://192.0.2.1/a", "http://100.100.100.200/latest/meta-data"),
        ("http://192.0.2.1/a", "http://[fd00:ec2::254]/latest/meta-data"),
        ("http://192.0.2.1/a", "http://127.0.0.1\\.example.com/"),
    ]:
        with pytest.raises(requests.exceptions.InvalidURL, match="it redirects"):
            child_web._check_redirect(url, target, response)
    child_web._check_redirect("http://127.0.0.1/a", "http://localhost/b", response)
    child_web._check_redirect("http://192.0.2.1/a", "https://192.0.2.2/b", response)


@pytest.fixture
def own_address() -> str:
    """An address of this machine that others reach, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("there is no network")
        return str(probe.getsockname()[0])


def test_a_server_of_another_address_does_not_lead_to_this_machine(
    tmp_path: Path, own_address: str
) -> None:
    inner = Answered()
    with answering(inner) as secret, answering(leading_to(secret), own_address) as url:
        problem = failure_of(url, tmp_path)
    assert problem.startswith("it redirects into this machine, to 127.0.0.1")
    assert not inner.count


def leading_to(url: str) -> Answer:
    return once(b"HTTP/1.1 302 Found\r\nLocation: " + url.encode() + b"\r\n\r\n")


def test_a_redirect_tells_a_password_of_netrc_to_its_own_host_and_by_https_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: FileServer
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login me password s3cret")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    folder = tmp_path / "cache"
    folder.mkdir()
    other = server.url().replace("127.0.0.1", "localhost")
    for target, is_told in [("/data.bin", True), (other, False)]:
        server.redirects["/first"] = target
        server.users.clear()
        path = folder / "data.bin"
        Download(server.url("/first"), path, lambda name, done, total: None, LIMITS).run(DIGEST)
        assert [user is not None for user in server.users] == [True, is_told]
        path.unlink()


LOOKS = """
import socket

found = socket.getaddrinfo
looks = {{"first.example": ["{own_address}"], "second.example": ["192.0.2.1"]}}

def look(host, *arguments, **named):
    places = looks.get(host)
    if places is not None:
        host = places.pop() if places else "127.0.0.1"
    return found(host, *arguments, **named)

socket.getaddrinfo = look
"""
"""Gives a process one address of a name at its first look, and another at its second."""


@pytest.mark.parametrize("target", ["second.example", "127.0.0.1"])
def test_a_name_that_means_this_machine_at_the_second_look_does_not_lead_there(
    tmp_path: Path, own_address: str, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """The names are of one who leads them to this machine once they were looked at."""
    (tmp_path / "sitecustomize.py").write_text(LOOKS.format(own_address=own_address))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setattr(import_module(Download.__module__), "_WAITS", ())
    inner = Answered()
    with answering(inner) as secret:
        port = secret.rpartition(":")[2]
        with answering(leading_to(f"http://{target}:{port}/"), own_address) as url:
            problem = failure_of(url.replace(own_address, "first.example"), folder)
    assert "it redirects into this machine" in problem
    assert not inner.count


def serve_as_socks(server: socket.socket) -> None:
    """Take a connection to any host as a proxy of SOCKS 5, and answer in the host's place."""
    client, _ = server.accept()
    with client:
        client.settimeout(10)
        client.recv(64)
        client.sendall(b"\5\0")
        client.recv(512)
        client.sendall(b"\5\0\0\1" + bytes(6))
        client.recv(4096)
        client.sendall(OK + b"Content-Length: %d\r\n\r\n" % len(DATA) + DATA)


def test_a_proxy_of_socks_finds_names_that_this_machine_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("socks")
    path = tmp_path / "data.bin"
    with socket.create_server(("127.0.0.1", 0)) as server:
        proxy = f"socks5h://127.0.0.1:{server.getsockname()[1]}"
        for name, value in (("http_proxy", proxy), ("no_proxy", ""), ("NO_PROXY", "")):
            monkeypatch.setenv(name, value)
        threading.Thread(target=serve_as_socks, args=(server,), daemon=True).start()
        Download("http://files.invalid/", path, lambda name, done, total: None, LIMITS).run(DIGEST)
    assert path.read_bytes() == DATA


def test_a_handshake_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    with answering(silence) as url:
        problem = failure_of(url.replace("http:", "https:"), tmp_path)
    assert problem.startswith(TIME)
