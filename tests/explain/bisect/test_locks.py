"""The stacks of two lock files for a point of a manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.explain.bisect.locks import end_of, locked_stacks
from pytest_mlms.explain.bisect.question import Point, read_point
from tests.support.locks import ACCURACY, PERFORMANCE, line_of, write_lock
from tests.support.project import copy_digits

OLD = ("numpy==2.4.5", "onnxruntime==1.20.1")
NEW = ("numpy==2.4.6", "onnxruntime==1.32.0")


@pytest.fixture
def point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Point:
    copy_digits(tmp_path / "manifests")
    monkeypatch.chdir(tmp_path)
    return read_point("manifests/digits.yaml::test_upgrade[cpu-b8]")


def write(point: Point, name: str, *lines: dict[str, Any]) -> None:
    """Write a lock of these lines, which have the files of the point's manifest."""
    write_lock(Path(name), point.loaded, *lines)


def test_each_end_has_the_packages_of_its_file(point: Point) -> None:
    write(point, "old.lock", line_of(packages=OLD))
    write(point, "new.lock", line_of(packages=NEW))
    good, bad = locked_stacks(point, "old.lock", "new.lock")
    assert (good.requirements, good.framework, good.python) == (OLD, "onnxruntime", "3.11.7")
    assert bad.requirements == NEW
    assert end_of("new.lock", bad) == ("new.lock", NEW, "3.11.7")


def test_of_several_stacks_the_node_id_names_one(point: Point) -> None:
    one = line_of(ACCURACY, OLD, stack={"name": "one"})
    write(point, "old.lock", one, line_of(PERFORMANCE, NEW, stack={"name": "two"}))
    with pytest.raises(
        MlmsError, match="several stacks for it: one, two; .*test_upgrade.STACK-cpu"
    ):
        locked_stacks(point, "old.lock", "old.lock")
    named = read_point("manifests/digits.yaml::test_upgrade[two-cpu-b8]")
    assert locked_stacks(named, "old.lock", "old.lock")[0].requirements == NEW


def test_a_lock_of_another_model_or_device_is_refused(point: Point) -> None:
    write(point, "old.lock", line_of(packages=OLD, device="cuda:0"))
    with pytest.raises(MlmsError, match="old.lock has no item of digits-cnn on cpu; name a lock"):
        locked_stacks(point, "old.lock", "old.lock")
    write(point, "old.lock", line_of(packages=OLD))
    text = Path("old.lock").read_text()
    digest = point.loaded.model_digests(point.loaded.manifest.models[0])["graph"][:16]
    Path("old.lock").write_text(text.replace(digest, "0" * 16))
    with pytest.raises(MlmsError, match="old.lock is of other files"):
        locked_stacks(point, "old.lock", "old.lock")
