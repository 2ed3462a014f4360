"""Files of data repositories by DOI; the repository is a Dataverse on a local server."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.records import Artifact, DownloadLimits, Place
from pytest_mlms.provide.artifacts import dois
from pytest_mlms.provide.artifacts.fetch import fetch
from tests.support.fileserver import DATA, DIGEST, FileServer
from tests.support.hostile_server import Answer, answering, forever, once

API = "/api/datasets/:persistentId"
SOURCE = "doi:10.1234/abc/data.bin"
OK = b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.fixture
def repository(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> FileServer:
    """A repository and a server of DOIs that leads to it."""
    monkeypatch.setattr(dois, "_RESOLVER", server.url("/doi/"))
    server.redirects = {"/doi/10.1234/abc": "/dataset"}
    files = [{"dataFile": {"filename": "data.bin", "id": 7}}]
    answer = {"data": {"latestVersion": {"files": files}}}
    server.files = {API: json.dumps(answer).encode(), "/api/access/datafile/7": DATA}
    return server


def artifact(source: str, digest: str = DIGEST) -> Artifact:
    return Artifact(source, digest, Place(Path("m.yaml"), 12))


def test_a_file_is_found_by_its_doi_and_continued(repository: FileServer, tmp_path: Path) -> None:
    partial = tmp_path / "artifacts" / DIGEST[:2] / DIGEST / "partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(DATA[:1000])
    path = fetch(artifact(SOURCE), tmp_path)
    assert path.read_bytes() == DATA
    assert path.name == "data.bin"
    assert repository.asked[-1] == "bytes=1000-"


def test_an_md5_of_an_old_manifest_is_checked(repository: FileServer, tmp_path: Path) -> None:
    md5 = "md5:" + "0" * 32
    with pytest.raises(ArtifactError, match="does not match the known hash: expected md5:000"):
        fetch(artifact(SOURCE, md5), tmp_path)


@pytest.mark.parametrize(
    ("source", "doi", "name"),
    [
        ("doi:10.7910/DVN/ABC/a.csv", "10.7910/DVN/ABC", "a.csv"),
        ("doi:10.5281/zenodo.12/user/repo-v1.zip", "10.5281/zenodo.12", "user/repo-v1.zip"),
    ],
)
def test_the_name_of_a_file_is_the_last_part_but_for_zenodo(
    source: str, doi: str, name: str
) -> None:
    assert dois._parts(source) == (doi, name)


def test_a_file_of_figshare_is_of_the_version_in_its_doi(
    server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dois, "_FIGSHARE", server.url("/articles"))
    answer = {"files": [{"name": "a", "download_url": "https://ndownloader.figshare.com/files/1"}]}
    server.files = {
        "/articles": b'[{"id": 5}]',
        "/articles/5/versions/2": json.dumps(answer).encode(),
    }
    files = dois._files_of_figshare("10.6084/m9.figshare.5.v2", time.monotonic() + 60)
    assert files == {"a": "https://ndownloader.figshare.com/files/1"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("doi:10.1234/abc/none.bin", r"there is no 'none\.bin' in 10\.1234/abc; it has data\.bin"),
        ("doi:10.1234/none/data.bin", r"127\.0\.0\.1 answered 404 for 10\.1234/none; correct the"),
    ],
)
def test_what_a_repository_does_not_have_is_an_error(
    repository: FileServer, tmp_path: Path, source: str, message: str
) -> None:
    with pytest.raises(ArtifactError, match=rf"^m\.yaml:12: {source}: {message}"):
        fetch(artifact(source), tmp_path)


@pytest.mark.parametrize(
    "answer",
    [
        b"[]",
        b"<html>",
        b"[" * 100_000,
        b'{"data": {"latestVersion": {"files": [{"dataFile": {"filename": "a", "id": "../x"}}]}}}',
        b'{"data": {"latestVersion": {"files": [{"dataFile": {"filename": "a", "id": 1e999}}]}}}',
    ],
)
def test_an_answer_of_another_form_is_an_error(
    repository: FileServer, tmp_path: Path, answer: bytes
) -> None:
    repository.files[API] = answer
    with pytest.raises(ArtifactError, match="is none of a repository that is known"):
        fetch(artifact(SOURCE), tmp_path)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (forever(OK, bytes(1 << 20)), "sends more than 16,777,216 bytes; check the network"),
        (once(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n"), "can't be resolved"),
        (once(b"HTTP/1.1 302 Found\r\nLocation: /again\r\n\r\n"), "more than 10 redirects"),
        (forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "the time for the download is over"),
    ],
)
def test_a_hostile_repository_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: Answer, message: str
) -> None:
    with answering(answer) as url:
        monkeypatch.setattr(dois, "_RESOLVER", f"{url}/doi/")
        with pytest.raises(ArtifactError, match=message):
            fetch(artifact(SOURCE), tmp_path, limits=DownloadLimits(seconds=3))


def test_a_doi_whose_server_is_not_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(dois, "_RESOLVER", "http://127.0.0.1:9/")
    with pytest.raises(ArtifactError, match="the DOI can't be resolved: .*; check the network"):
        fetch(artifact(SOURCE), tmp_path)
