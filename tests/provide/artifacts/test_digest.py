"""Digests of files, and the check against a manifest's."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.records import Artifact, Place
from pytest_mlms.provide.artifacts.digest import check_digest, digest_of

HERE = Place(Path("m.yaml"), 12)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(b"data")
    return path


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_the_digest_is_the_sha256_of_the_content(path: Path) -> None:
    assert digest_of(path) == sha256(b"data")


def test_a_file_that_changed_is_read_again(path: Path) -> None:
    assert digest_of(path) == sha256(b"data")
    path.write_bytes(b"atad")  # of the same size
    os.utime(path, ns=(1, 1))
    assert digest_of(path) == sha256(b"atad")


def test_a_file_with_the_digest_of_the_manifest_passes(path: Path) -> None:
    check_digest(Artifact(str(path), sha256(b"data"), HERE), path)


def test_an_artifact_without_a_digest_is_not_checked(path: Path) -> None:
    check_digest(Artifact(str(path), None, HERE), path)


def test_a_wrong_digest_is_an_error_that_shows_both(path: Path) -> None:
    wrong = "0" * 64
    expected = f"m.yaml:12: {path} has sha256 {sha256(b'data')}, expected {wrong}; restore"
    with pytest.raises(ArtifactError, match=expected):
        check_digest(Artifact(str(path), wrong, HERE), path)
