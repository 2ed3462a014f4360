"""Artifacts from files and from a real HTTP server that misbehaves as it is told."""

from __future__ import annotations

import hashlib
import http.server
import io
import multiprocessing
import os
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_mlms.artifacts import fetch as artifacts
from pytest_mlms.artifacts.fetch import fetch
from pytest_mlms.errors import ArtifactError
from pytest_mlms.records import Artifact, Place

DATA = bytes(range(256)) * 4000
DIGEST = hashlib.sha256(DATA).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves ``files`` and counts requests.

    ``cut`` ends the next so many answers after half of what they owe.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"/data.bin": DATA}
        self.cut = 0
        self.ranges = True
        self.statuses: list[int] = []
        self.asked: list[str | None] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        if self.server.statuses:
            self.send_error(self.server.statuses.pop(0))
            return
        path = self.path.partition("?")[0]
        if path == "/page":
            self.answer(
                200, b"<html>please log in</html>", {"Content-Type": "text/html; charset=utf-8"}
            )
        elif path not in self.server.files:
            self.send_error(404)
        elif asked and self.server.ranges:
            data, start = (
                self.server.files[path],
                int(asked.removeprefix("bytes=").removesuffix("-")),
            )
            if start >= len(data):
                self.send_error(416)
            else:
                self.answer(
                    206,
                    data[start:],
                    {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"},
                )
        else:
            self.answer(200, self.server.files[path], {})

    def answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.server.cut:
            self.server.cut -= 1
            data = data[: len(data) // 2]
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_mlms.artifacts.fetch.time.sleep", lambda seconds: None)


def artifact(source: str, sha256: str | None = DIGEST, member: str | None = None) -> Artifact:
    return Artifact(source, sha256, Place(Path("m.yaml"), 12), member)


def start_of(asked: str | None) -> int:
    return int((asked or "bytes=0-").removeprefix("bytes=").removesuffix("-"))


def in_cache(cache: Path) -> set[str]:
    return {path.name for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"}


def test_a_local_file_is_used_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(DATA)
    assert fetch(artifact(str(path)), tmp_path / "cache") == path
    assert not (tmp_path / "cache").exists()


def test_a_missing_file_names_the_manifests_line(tmp_path: Path) -> None:
    with pytest.raises(
        ArtifactError, match=r"^m\.yaml:12: .*none\.bin does not exist; correct the path"
    ):
        fetch(artifact(str(tmp_path / "none.bin")), tmp_path)
    with pytest.raises(ArtifactError, match="is a folder, not a file"):
        fetch(artifact(str(tmp_path)), tmp_path)


def test_a_wrong_digest_shows_both(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(b"changed")
    with pytest.raises(
        ArtifactError,
        match=f"has sha256 {hashlib.sha256(b'changed').hexdigest()}, expected {DIGEST}",
    ):
        fetch(artifact(str(path)), tmp_path)


def test_a_file_that_changes_after_it_was_checked_is_checked_again(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(DATA)
    fetch(artifact(str(path)), tmp_path)
    path.write_bytes(DATA[::-1])
    os.utime(path, ns=(1, 1))
    with pytest.raises(ArtifactError):
        fetch(artifact(str(path)), tmp_path)


def test_a_download_is_kept_under_its_digest_and_made_once(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    for _ in range(2):
        path = fetch(
            artifact(server.url("/data.bin?token=x")), tmp_path, lambda *what: seen.append(what)
        )
    assert path.read_bytes() == DATA
    assert path.parent.name == DIGEST
    assert path.name == "data.bin"
    assert len(server.asked) == 1
    assert seen[-1] == ("data.bin", len(DATA), len(DATA))
    assert in_cache(tmp_path) == {"data.bin"}


def test_a_download_that_breaks_off_goes_on_where_it_was(server: Server, tmp_path: Path) -> None:
    server.cut = 2
    assert fetch(artifact(server.url("/data.bin")), tmp_path).read_bytes() == DATA
    first, second, third = server.asked
    assert first is None
    assert 0 < start_of(second) <= len(DATA) // 2 < start_of(third)


def test_what_never_comes_whole_is_kept_for_the_next_run_but_never_under_its_name(
    server: Server, tmp_path: Path
) -> None:
    server.cut = 4
    with pytest.raises(ArtifactError, match="run again to go on with what is there"):
        fetch(artifact(server.url("/data.bin")), tmp_path)
    assert in_cache(tmp_path) == {"partial"}
    assert fetch(artifact(server.url("/data.bin")), tmp_path).read_bytes() == DATA
    assert start_of(server.asked[-1]) >= len(DATA) // 2
    assert in_cache(tmp_path) == {"data.bin"}


def test_a_server_without_ranges_sends_all_of_it_again(server: Server, tmp_path: Path) -> None:
    server.cut, server.ranges = 1, False
    assert fetch(artifact(server.url("/data.bin")), tmp_path).read_bytes() == DATA


def test_a_partial_file_of_another_version_is_dropped_for_a_fresh_start(
    server: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "artifacts" / DIGEST[:2] / DIGEST
    folder.mkdir(parents=True)
    for stale in (b"stale" * 10, DATA + b"too long"):
        (folder / "partial").write_bytes(stale)
        (folder / "tmpleft").write_bytes(b"of a killed process")
        assert fetch(artifact(server.url("/data.bin")), tmp_path).read_bytes() == DATA
        assert in_cache(tmp_path) == {"data.bin"}
        (folder / "data.bin").unlink()


def test_a_cached_file_that_was_damaged_is_fetched_again(server: Server, tmp_path: Path) -> None:
    path = fetch(artifact(server.url("/data.bin")), tmp_path)
    path.write_bytes(b"damaged")
    assert fetch(artifact(server.url("/data.bin")), tmp_path).read_bytes() == DATA


def test_a_wrong_digest_of_a_download_leaves_nothing_behind(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=f"expected sha256:{'0' * 64} but got {DIGEST}"):
        fetch(artifact(server.url("/data.bin"), "0" * 64), tmp_path)
    assert in_cache(tmp_path) == set()


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/none.bin", "the server answered 404 Not Found; correct the address"),
        ("/page", "the server sent a web page instead of the file; it may want a login"),
    ],
)
def test_what_is_not_the_file_says_so_without_trying_again(
    server: Server, tmp_path: Path, path: str, says: str
) -> None:
    with pytest.raises(ArtifactError, match=says):
        fetch(artifact(server.url(path)), tmp_path)
    assert len(server.asked) == 1
    assert in_cache(tmp_path) == set()


def test_a_servers_passing_fault_is_tried_again(server: Server, tmp_path: Path) -> None:
    server.statuses = [503, 500]
    assert fetch(artifact(server.url("/data.bin")), tmp_path).read_bytes() == DATA


def test_a_server_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        ArtifactError, match=r"m\.yaml:12: http://127\.0\.0\.1:9/x: .*check the network"
    ):
        fetch(artifact("http://127.0.0.1:9/x"), tmp_path)


def _fetch_in_process(url: str, cache: Path) -> str:
    return str(fetch(artifact(url), cache))


def test_many_processes_that_ask_at_once_make_one_download(server: Server, tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        paths = pool.starmap(_fetch_in_process, [(server.url("/data.bin"), tmp_path)] * 8)
    assert len(set(paths)) == 1
    assert len(server.asked) == 1


def test_a_cache_that_can_not_be_written_names_the_option(server: Server, tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("a file in the way")
    with pytest.raises(ArtifactError, match="name another cache with --mlms-cache"):
        fetch(artifact(server.url("/data.bin")), tmp_path)


def zipped(path: Path, members: dict[str, bytes]) -> Artifact:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return artifact(str(path), hashlib.sha256(path.read_bytes()).hexdigest())


def tarred(
    path: Path,
    members: dict[str, bytes],
    change: Callable[[tarfile.TarInfo], None] = lambda info: None,
) -> Artifact:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            change(info)
            archive.addfile(info, io.BytesIO(data))
    return artifact(str(path), hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_an_archive_becomes_its_folder_or_the_member_named(
    pack: Callable[..., Artifact], tmp_path: Path
) -> None:
    name = "a.zip" if pack is zipped else "a.tar.gz"
    packed = pack(tmp_path / name, {"in/model.bin": b"model", "readme": b"text"})
    folder = fetch(packed, tmp_path / "cache")
    assert sorted(path.name for path in folder.iterdir()) == ["in", "readme"]
    member = artifact(packed.source, packed.sha256, "in/model.bin")
    assert fetch(member, tmp_path / "cache").read_bytes() == b"model"
    with pytest.raises(ArtifactError, match=f"{name} has no 'x'; it has in, in/model.bin, readme"):
        fetch(artifact(packed.source, packed.sha256, "x"), tmp_path / "cache")


def _as_link(info: tarfile.TarInfo) -> None:
    info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"


def _as_device(info: tarfile.TarInfo) -> None:
    info.type = tarfile.CHRTYPE


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: zipped(folder / "a.zip", {"../out": b"x"}),
        lambda folder: zipped(folder / "a.zip", {"/out": b"x"}),
        lambda folder: zipped(folder / "a.zip", {"in\\..\\..\\out": b"x"}),
        lambda folder: tarred(folder / "a.tar.gz", {"../out": b"x"}),
        lambda folder: tarred(folder / "a.tar.gz", {"link": b""}, _as_link),
        lambda folder: tarred(folder / "a.tar.gz", {"device": b""}, _as_device),
    ],
)
def test_an_archive_that_would_write_outside_its_folder_is_refused(
    make: Callable[[Path], Artifact], tmp_path: Path
) -> None:
    with pytest.raises(ArtifactError, match="can't be unpacked"):
        fetch(make(tmp_path), tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("out"))
    assert in_cache(tmp_path / "cache") == set()


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_a_damaged_archive_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    packed = (
        zipped(tmp_path / name, {"x": b"data"})
        if name == "a.zip"
        else tarred(tmp_path / name, {"x": b"data"})
    )
    damaged = Path(packed.source).read_bytes()[:-30]
    Path(packed.source).write_bytes(damaged)
    with pytest.raises(ArtifactError, match="can't be unpacked"):
        fetch(artifact(packed.source, hashlib.sha256(damaged).hexdigest()), tmp_path / "cache")
    assert in_cache(tmp_path / "cache") == set()


def test_an_archive_larger_than_the_disk_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    packed = zipped(tmp_path / "a.zip", {"zeros": b""})
    path = Path(packed.source)
    claim = (1 << 32) - 2
    data = path.read_bytes().replace(b"PK\x01\x02", b"PK\x01\x02", 1)
    at = data.index(b"PK\x01\x02") + 24  # the central directory's uncompressed size, APPNOTE 4.3.12
    path.write_bytes(data[:at] + claim.to_bytes(4, "little") + data[at + 4 :])
    free = claim - 1
    usage = type("Usage", (), {"free": free})()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytest_mlms.artifacts.archives.shutil.disk_usage", lambda folder: usage)
        with pytest.raises(
            ArtifactError, match=f"unpacks to {claim:,} bytes, and {free:,} are free"
        ):
            fetch(
                artifact(str(path), hashlib.sha256(path.read_bytes()).hexdigest()),
                tmp_path / "cache",
            )


def test_the_cache_is_the_users_unless_the_environment_names_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("MLMS_CACHE", raising=False)
    assert artifacts.default_cache().name == "pytest-mlms"
    monkeypatch.setenv("MLMS_CACHE", "/elsewhere")
    assert artifacts.default_cache() == Path("/elsewhere")
