"""Bundles are written and read, and those of strangers are refused where they are not plain."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pytest_mlms
from pytest_mlms.core.errors import DatasetError, MlmsError
from pytest_mlms.core.files import DamagedFile, read_arrays
from pytest_mlms.explain.repro.archive import (
    members_of,
    opened_bundle,
    read_bundle,
    write_bundle,
)
from pytest_mlms.explain.repro.replay import unpacking
from pytest_mlms.explain.repro.replay.record import Malformed, from_text
from pytest_mlms.explain.repro.replay.unpacking import unpack
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.measure.pipeline.npz import read_npz as read_dataset
from tests.support.bundles import OUTPUTS, bundle_of_matrix, side


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


def test_a_name_that_could_command_a_terminal_is_refused(tmp_path: Path) -> None:
    write_bundle(bundle_of_matrix(tmp_path), tmp_path / "repro.zip")
    with zipfile.ZipFile(tmp_path / "repro.zip", "a") as archive:
        archive.writestr("wheels/\x1b[2J.whl", "x")
    with pytest.raises(Malformed, match="could command a terminal"):
        unpack(str(tmp_path / "repro.zip"), str(tmp_path / "unpacked"))


def test_a_file_that_the_record_names_and_the_zip_lacks_is_named(tmp_path: Path) -> None:
    write_bundle(bundle_of_matrix(tmp_path), tmp_path / "repro.zip")
    less = tmp_path / "less.zip"
    with zipfile.ZipFile(tmp_path / "repro.zip") as whole, zipfile.ZipFile(less, "w") as archive:
        for name in whole.namelist():
            if name != "inputs.npz":
                archive.writestr(name, whole.read(name))
    with pytest.raises(MlmsError, match=r"it has no file 'inputs\.npz', which repro\.json names"):
        read_bundle(less, tmp_path / "unpacked")


def test_a_zip_of_something_else_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.txt", "x")
    with pytest.raises(MlmsError, match=r"there is no repro\.json"):
        read_bundle(tmp_path / "other.zip", tmp_path / "unpacked")


def test_what_would_fill_the_disk_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "_SMALL", 1 << 16)
    write_bundle(bundle_of_matrix(tmp_path), tmp_path / "repro.zip")
    deflated = tmp_path / "deflated.zip"
    shutil.copy(tmp_path / "repro.zip", deflated)
    with zipfile.ZipFile(deflated, "a", zipfile.ZIP_DEFLATED) as new:
        new.writestr("wheels/zeros.whl", bytes(1 << 25))
    with pytest.raises(Malformed, match="bytes together"):
        unpack(str(deflated), str(tmp_path / "unpacked"))
    assert not (tmp_path / "unpacked").exists()


def test_a_directory_that_no_bundle_has_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "_LONGEST_DIRECTORY", 100)
    write_bundle(bundle_of_matrix(tmp_path), tmp_path / "repro.zip")
    with pytest.raises(Malformed, match="more files than a bundle"):
        unpack(str(tmp_path / "repro.zip"), str(tmp_path / "unpacked"))


def test_two_inputs_of_one_name_are_refused_by_every_reader(tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    np.savez(path, x=np.zeros(3))
    with zipfile.ZipFile(path) as archive:
        content = archive.read("x.npy")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("x.npy", content)
    with pytest.raises(DamagedFile, match="two arrays of one name"):
        read_arrays(path)
    with pytest.raises(DatasetError, match="two arrays 'x'; write it again"):
        read_dataset(path, ["x"])


def test_variables_and_rules_are_read_as_they_were_written(tmp_path: Path) -> None:
    bundle = bundle_of_matrix(
        tmp_path,
        new=side("2.0")._replace(variables=(("MKL_CBWR", "AUTO"),)),
        expected=OUTPUTS._replace(rules={"y": {"unlike": -1, "share": 0.1}}, calls=7),
    )
    write_bundle(bundle, tmp_path / "repro.zip")
    read = read_bundle(tmp_path / "repro.zip", tmp_path / "unpacked")
    assert (read.new, read.expected) == (bundle.new, bundle.expected)


def record_text(folder: Path, **fields: Any) -> str:
    """Return the record of a bundle with other fields; None removes one."""
    text = members_of(bundle_of_matrix(folder))["repro.json"]
    assert isinstance(text, bytes)
    value = {**json.loads(text), **fields}
    return json.dumps(value)


def test_a_bundle_of_an_earlier_format_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match=r"run it by itself, as 'python FILE', or make it again"):
        from_text(record_text(tmp_path, format=1))
    with pytest.raises(Malformed, match="is of a later format .3.; read it with a newer"):
        from_text(record_text(tmp_path, format=3))


@pytest.mark.parametrize("fields", [{"kind": "limit"}, {"scenario": "server"}, {"scenario": 1}])
def test_an_expectation_that_nothing_can_be_held_against_is_refused(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    expected = {**OUTPUTS._asdict(), **fields}
    with pytest.raises(Malformed, match=r"repro\.json is malformed"):
        from_text(record_text(tmp_path, expected=expected))


@pytest.mark.parametrize(
    ("kind", "quantity"),
    [
        ("ratio", "of_tomorrow"),
        ("ratio", "query_latency"),
        ("ratio", "top1"),
        ("limit", "of_tomorrow"),
        ("limit", "top1"),
    ],
)
def test_a_quantity_that_is_not_measured_here_is_refused_before_anything_is_installed(
    tmp_path: Path, kind: str, quantity: str
) -> None:
    expected = OUTPUTS._replace(kind=kind, quantity=quantity, limit=1.0)
    path = tmp_path / "repro.zip"
    write_bundle(bundle_of_matrix(tmp_path, expected=expected), path)
    with pytest.raises(MlmsError, match=f"measures '{quantity}'"), opened_bundle(path):
        pass


def test_a_bundle_has_our_wheel_and_no_predictor_but_another_s(tmp_path: Path) -> None:
    name = f"own/pytest_mlms-{pytest_mlms.__version__}-py3-none-any.whl"
    of_another = members_of(bundle_of_matrix(tmp_path))
    ours = members_of(bundle_of_matrix(tmp_path, predictor=find_predictors()["onnxruntime"]))
    assert name in of_another
    assert name in ours
    assert [key for key in of_another if key.startswith("predictors/")] == ["predictors/skewed.py"]
    assert not [key for key in ours if key.startswith("predictors/")]
