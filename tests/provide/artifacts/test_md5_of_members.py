"""Archives whose md5 in a manifest may be that of the file in them."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import pytest

from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.records import Artifact, Place
from pytest_mlms.provide.artifacts.fetch import fetch
from tests.support.archives import write_tar
from tests.support.fileserver import FileServer

MODEL = b"a model"


@pytest.fixture
def archive(server: FileServer, tmp_path: Path) -> bytes:
    """Serve an archive at /a.tgz; return its content."""
    data = write_tar(tmp_path / "a.tgz", {"model.pb": MODEL, "other": b"2"}).read_bytes()
    server.files["/a.tgz"] = data
    return data


def fetched(server: FileServer, cache: Path, content: bytes) -> tuple[bytes, str]:
    """Fetch the model by the md5 of something; return it, and the warnings."""
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    artifact = Artifact(
        source=server.url("/a.tgz"),
        sha256=f"md5:{md5}",
        place=Place(Path("m.yaml"), 3),
        member="model.pb",
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        path = fetch(artifact, cache)
    return path.read_bytes(), "\n".join(str(warning.message) for warning in caught)


def test_the_md5_may_be_the_archive_s(server: FileServer, archive: bytes, tmp_path: Path) -> None:
    model, warned = fetched(server, tmp_path / "cache", archive)
    assert model == MODEL
    assert "not of the archive" not in warned


def test_the_md5_may_be_the_file_s(server: FileServer, archive: bytes, tmp_path: Path) -> None:
    for _ in range(2):  # from the cache, too
        model, warned = fetched(server, tmp_path / "cache", MODEL)
        assert model == MODEL
        assert "the md5 is that of model.pb in the archive, not of the archive" in warned
    assert len(server.asked) == 1


def test_another_md5_is_an_error_and_the_archive_is_not_kept(
    server: FileServer, archive: bytes, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    for _ in range(2):
        with pytest.raises(ArtifactError, match="m.yaml:3: neither a.tgz nor model.pb in it has"):
            fetched(server, cache, b"another")
    assert not list(cache.rglob("a.tgz"))
    assert len(server.asked) == 2


def test_what_is_no_archive_is_not_kept(server: FileServer, tmp_path: Path) -> None:
    server.files["/a.tgz"] = b"moved elsewhere"
    with pytest.raises(ArtifactError, match="can't be unpacked"):
        fetched(server, tmp_path / "cache", MODEL)
    assert not list((tmp_path / "cache").rglob("a.tgz"))
