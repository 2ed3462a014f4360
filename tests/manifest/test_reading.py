"""Datasets that a manifest only names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.errors import ManifestError
from pytest_mlms.manifest import find_manifests, load
from tests.support.small_manifest import DIGEST, small, write

ENTRY = f"{{version: 2.0.0, source: data/d.npz, sha256: {DIGEST}}}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for manifests, two below the current one."""
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "manifests" / "vision"
    made.mkdir(parents=True)
    return made


def named(**changes: Any) -> dict[str, Any]:
    return small(dataset="photos", **changes)


def describe(folder: Path, text: str) -> None:
    (folder / "datasets.yaml").write_text(text)


@pytest.mark.parametrize("above", [0, 1, 2])
def test_a_dataset_is_found_in_a_folder_above(folder: Path, above: int) -> None:
    place = [folder, *folder.parents][above]
    describe(place, f"photos: {ENTRY}\n")
    loaded = load(write(folder, named()))
    dataset = loaded.manifest.dataset
    assert dataset is not None
    assert (dataset.name, dataset.version, dataset.sha256) == ("photos", "2.0.0", DIGEST)
    assert loaded.dataset_file is not None
    assert loaded.dataset_file.source == str(place / "data" / "d.npz")
    assert loaded.dataset_file.place.line == loaded.place("dataset").line
    assert loaded.manifest.has_accuracy


def test_the_nearest_description_counts(folder: Path) -> None:
    describe(folder.parent, f"photos: {ENTRY}\n")
    describe(folder, f"others: {ENTRY}\n")
    dataset = load(write(folder, named())).manifest.dataset
    assert dataset is not None
    assert dataset.source == str(folder.parent / "data" / "d.npz")
    describe(folder, f"photos: {{version: 3.0.0, source: https://a.org/d.npz, sha256: {DIGEST}}}\n")
    dataset = load(write(folder, named())).manifest.dataset
    assert dataset is not None
    assert (dataset.version, dataset.source) == ("3.0.0", "https://a.org/d.npz")


def test_folders_above_the_current_one_are_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe(folder.parent, f"photos: {ENTRY}\n")
    monkeypatch.chdir(folder)
    with pytest.warns(UserWarning, match="no datasets.yaml describes the dataset 'photos'"):
        assert load(write(folder, named())).manifest.dataset is None


def test_a_dataset_that_is_nowhere_is_left_out_with_a_warning(folder: Path) -> None:
    with pytest.warns(UserWarning, match="accuracy isn't measured; add it to one") as warned:
        loaded = load(write(folder, named()))
    assert not loaded.manifest.has_accuracy
    (warning,) = warned
    assert warning.filename == "manifests/vision/m.yaml"
    assert warning.lineno == loaded.place("dataset").line


def test_its_limits_judge_nothing_without_it(folder: Path) -> None:
    path = write(folder, named(thresholds={"top1": {"min": 0.5}}))
    with (
        pytest.warns(UserWarning, match="no datasets.yaml"),
        pytest.raises(ManifestError, match="top1 judges nothing; add a dataset"),
    ):
        load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("photos: d.npz\n", "datasets.yaml:1: photos has no keys; a dataset begins with 'name: {"),
        (
            f"# data\nphotos: {{source: d.npz, sha256: {DIGEST}}}\n",
            "datasets.yaml:2: photos: 'version' is missing; write 'version: ",
        ),
        (
            f"photos:\n  version: 1.0.0\n  path: d.npz\n  source: d.npz\n  sha256: {DIGEST}\n",
            "datasets.yaml:3: photos: unknown key 'path'; write one of",
        ),
        ("a: 1\na: 2\n", "datasets.yaml:2: "),
        ("- photos\n", "datasets.yaml:1: holds a list, not keys and values; a dataset begins"),
    ],
)
def test_a_description_with_errors_is_an_error_with_its_line(
    folder: Path, text: str, message: str
) -> None:
    describe(folder, text)
    with pytest.raises(ManifestError) as raised:
        load(write(folder, named()))
    assert message in str(raised.value)


def test_descriptions_are_no_manifests(folder: Path) -> None:
    describe(folder, f"photos: {ENTRY}\n")
    manifest = write(folder, named())
    assert list(find_manifests([folder])) == [manifest]
