"""Downloads from a real HTTP server that fails on demand."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import pytest

from pytest_mlms.core.records import DownloadLimits
from pytest_mlms.provide.artifacts import child
from pytest_mlms.provide.artifacts.download import _WAITS, Download
from pytest_mlms.provide.artifacts.transfer import DownloadError
from tests.support.fileserver import DATA, DIGEST, FileServer, start_of

Progress = tuple[str, int, int]


@pytest.fixture
def seen() -> list[Progress]:
    """The reports of progress."""
    return []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data.bin"


@pytest.fixture
def download(server: FileServer, path: Path, seen: list[Progress]) -> Download:
    def report(name: str, done: int, total: int) -> None:
        seen.append((name, done, total))

    return Download(server.url(), path, report, DownloadLimits())


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_download_has_its_content_and_reports_its_progress(
    download: Download, path: Path, seen: list[Progress]
) -> None:
    download.run(DIGEST)
    assert path.read_bytes() == DATA
    assert seen[-1] == ("data.bin", len(DATA), len(DATA))
    assert files_in(path.parent) == {"data.bin"}


def test_a_broken_connection_is_continued_where_it_ended(
    download: Download, server: FileServer, path: Path
) -> None:
    server.cut = 2
    download.run(DIGEST)
    assert path.read_bytes() == DATA
    first, second, third = server.asked
    assert first is None
    assert 0 < start_of(second) <= len(DATA) // 2
    assert start_of(third) > len(DATA) // 2


def test_an_incomplete_file_is_kept_for_the_next_run_but_not_under_its_name(
    download: Download, server: FileServer, path: Path
) -> None:
    server.cut = 4
    with pytest.raises(DownloadError, match="run again to go on with what is there"):
        download.run(DIGEST)
    assert files_in(path.parent) == {"partial"}
    download.run(DIGEST)
    assert path.read_bytes() == DATA
    assert start_of(server.asked[-1]) >= len(DATA) // 2
    assert files_in(path.parent) == {"data.bin"}


def test_a_server_without_ranges_sends_everything_again(
    download: Download, server: FileServer, path: Path
) -> None:
    server.cut = 1
    server.ranges = False
    download.run(DIGEST)
    assert path.read_bytes() == DATA


@pytest.mark.parametrize("stale", [b"stale" * 10, DATA + b"too long"], ids=["shorter", "longer"])
def test_a_partial_file_of_another_version_is_replaced(
    download: Download, path: Path, stale: bytes
) -> None:
    path.with_name("partial").write_bytes(stale)
    download.run(DIGEST)
    assert path.read_bytes() == DATA
    assert files_in(path.parent) == {"data.bin"}


@pytest.mark.parametrize("ranges", [True, False])
def test_a_partial_file_that_is_one_of_the_hubs_cache_is_not_written_to(
    download: Download,
    server: FileServer,
    path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    ranges: bool,
) -> None:
    """As is left where an hf: is killed once it has linked the file."""
    kept = tmp_path_factory.mktemp("hub") / "blob"
    kept.write_bytes(DATA[:100])
    os.link(kept, path.with_name("partial"))
    server.ranges = ranges
    download.run(DIGEST)
    assert path.read_bytes() == DATA
    assert kept.read_bytes() == DATA[:100]


def test_a_wrong_digest_leaves_no_file(download: Download, path: Path) -> None:
    wrong = "0" * 64
    with pytest.raises(DownloadError, match=f"expected sha256:{wrong} but got {DIGEST}"):
        download.run(wrong)
    assert files_in(path.parent) == set()


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("/none.bin", "the server answered 404 Not Found; correct the address"),
        ("/page", "the server sent a web page instead of the file; it may want a login"),
    ],
)
def test_an_answer_that_is_not_the_file_is_an_error_at_once(
    server: FileServer, path: Path, page: str, message: str
) -> None:
    download = Download(server.url(page), path, lambda name, done, total: None, DownloadLimits())
    with pytest.raises(DownloadError, match=message):
        download.run(DIGEST)
    assert len(server.asked) == 1
    assert files_in(path.parent) == set()


def test_an_error_of_the_server_itself_is_tried_again(
    download: Download, server: FileServer, path: Path
) -> None:
    server.statuses = [503, 500]
    download.run(DIGEST)
    assert path.read_bytes() == DATA


def test_a_server_that_is_not_there_is_an_error(path: Path) -> None:
    download = Download(
        "http://127.0.0.1:9/x", path, lambda name, done, total: None, DownloadLimits()
    )
    with pytest.raises(DownloadError, match="check the network and the address"):
        download.run(DIGEST)


def test_authorities_that_are_not_there_are_told_with_their_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nonexistent/ca.pem")
    url, limits = "https://127.0.0.1:9/x", DownloadLimits()
    download = Download(url, path, lambda name, done, total: None, limits)
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with pytest.raises(DownloadError, match=r"/nonexistent/ca\.pem; correct REQUESTS_CA_BUNDLE"):
        download.run(DIGEST)
    assert not set(waits) & set(_WAITS), "it is tried once"


def test_a_process_that_ends_before_it_reads_its_request_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no memory')"]
    monkeypatch.setattr(child, "module_command", lambda name: command)
    request = {"url": "x" * (1 << 20)}  # more than its input holds
    assert child.ask_child(request, lambda told: None) == {"error": "no memory"}


def test_what_a_process_writes_into_a_file_is_read_without_a_move_of_its_place() -> None:
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(b'{"total": 1}\n')
        assert child._last_line(file) == '{"total": 1}'
        file.seek(0)
        assert child._last_line(file) == '{"total": 1}'
        assert file.tell() == 0
