"""Files of a data repository by DOI; the repository is a Dataverse on a local server."""

from __future__ import annotations

import json
from pathlib import Path

import pooch.downloaders
import pytest
import requests

from pytest_mlms.artifacts.fetch import fetch
from pytest_mlms.errors import ArtifactError
from pytest_mlms.records import Artifact, Place
from tests.support.fileserver import DATA, DIGEST, FileServer


@pytest.fixture
def repository(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> FileServer:
    """A repository that doi.org, which can't be replaced otherwise, would lead to."""

    def resolve(doi: str, **keywords: object) -> str:
        return server.url(f"/dataset?doi={doi}")

    monkeypatch.setattr(pooch.downloaders, "doi_to_url", resolve)
    files = [{"dataFile": {"filename": "data.bin", "id": 7}}]
    answer = {"data": {"latestVersion": {"files": files}}}
    server.files = {
        "/api/datasets/:persistentId": json.dumps(answer).encode(),
        "/api/access/datafile/7": DATA,
    }
    return server


def artifact(source: str, digest: str = DIGEST) -> Artifact:
    return Artifact(source, digest, Place(Path("m.yaml"), 12))


def test_a_file_is_found_by_its_doi_and_continued(repository: FileServer, tmp_path: Path) -> None:
    partial = tmp_path / "artifacts" / DIGEST[:2] / DIGEST / "partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(DATA[:1000])
    path = fetch(artifact("doi:10.1234/abc/data.bin"), tmp_path)
    assert path.read_bytes() == DATA
    assert path.name == "data.bin"
    assert repository.asked[-1] == "bytes=1000-"


def test_an_md5_of_an_old_manifest_is_checked(repository: FileServer, tmp_path: Path) -> None:
    md5 = "md5:" + "0" * 32
    with pytest.raises(ArtifactError, match="does not match the known hash: expected md5:000"):
        fetch(artifact("doi:10.1234/abc/data.bin", md5), tmp_path)


def test_a_file_that_the_repository_does_not_have_is_an_error(
    repository: FileServer, tmp_path: Path
) -> None:
    message = r"^m\.yaml:12: .*'none\.bin' not found in data archive .*; correct the DOI and the"
    with pytest.raises(ArtifactError, match=message):
        fetch(artifact("doi:10.1234/abc/none.bin"), tmp_path)


def test_a_doi_that_can_not_be_resolved_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(doi: str, **keywords: object) -> str:
        raise requests.ConnectionError("no route")

    monkeypatch.setattr(pooch.downloaders, "doi_to_url", refuse)
    with pytest.raises(ArtifactError, match="the DOI can't be resolved: no route; check the net"):
        fetch(artifact("doi:10.1234/abc/data.bin"), tmp_path)
