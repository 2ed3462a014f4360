"""Bundles are written and read, and those of strangers are refused where they are not plain."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.errors import MlmsError
from pytest_mlms.repro.archive import read_bundle, write_bundle
from tests.support.bundles import bundle_of_matrix


def test_the_same_bundle_has_the_same_bytes(tmp_path: Path) -> None:
    bundle = bundle_of_matrix(tmp_path)
    write_bundle(bundle, tmp_path / "one.zip")
    write_bundle(bundle, tmp_path / "two.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_a_bundle_is_read_as_it_was_written(tmp_path: Path) -> None:
    bundle = bundle_of_matrix(tmp_path)
    write_bundle(bundle, tmp_path / "repro.zip")
    read = read_bundle(tmp_path / "repro.zip", tmp_path / "unpacked")
    assert (read.old, read.new, read.expected) == (bundle.old, bundle.new, bundle.expected)
    assert read.framework == "skewed"
    assert np.array_equal(read.inputs["x"], bundle.inputs["x"])
    assert read.files["graph"].read_bytes() == bundle.files["graph"].read_bytes()


@pytest.mark.parametrize("name", ["../outside", "/outside", "replay/../../outside", "a\\b"])
def test_a_file_outside_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    write_bundle(bundle_of_matrix(tmp_path), tmp_path / "repro.zip")
    with zipfile.ZipFile(tmp_path / "repro.zip", "a") as archive:
        archive.writestr(name, "x")
    with pytest.raises(MlmsError, match="is no bundle"):
        read_bundle(tmp_path / "repro.zip", tmp_path / "inner" / "unpacked")
    assert not (tmp_path / "outside").exists()


def test_a_zip_of_something_else_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.txt", "x")
    with pytest.raises(MlmsError, match=r"there is no repro\.json"):
        read_bundle(tmp_path / "other.zip", tmp_path / "unpacked")
