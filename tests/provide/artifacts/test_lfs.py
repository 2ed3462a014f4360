"""Git LFS pointers in place of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.records import Artifact, Place
from pytest_mlms.provide.artifacts.digest import is_pointer
from pytest_mlms.provide.artifacts.fetch import fetch
from tests.support.archives import write_zip
from tests.support.project import sha256

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
MESSAGE = "is a Git LFS pointer, not the file itself; run 'git lfs pull' where it is from"


def artifact_of(path: Path, digest: str, member: str | None = None) -> Artifact:
    return Artifact(str(path), digest, Place(Path("m.yaml"), 7), member)


def test_a_pointer_begins_with_its_version() -> None:
    assert is_pointer(POINTER)
    assert not is_pointer(b"version 1")
    assert not is_pointer(b"")


@pytest.mark.parametrize("digest", [sha256(POINTER), "0" * 64], ids=["its own", "the file's"])
def test_a_pointer_in_place_of_a_file_is_an_error(tmp_path: Path, digest: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(POINTER)
    with pytest.raises(ArtifactError, match=rf"^m\.yaml:7: .*model\.onnx {MESSAGE}"):
        fetch(artifact_of(path, digest), tmp_path / "cache")


def test_a_pointer_in_an_archive_is_an_error(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "a.zip", {"model.onnx": POINTER})
    artifact = artifact_of(archive, sha256(archive.read_bytes()), "model.onnx")
    with pytest.raises(ArtifactError, match=rf"^m\.yaml:7: .*a\.zip#model\.onnx {MESSAGE}"):
        fetch(artifact, tmp_path / "cache")
