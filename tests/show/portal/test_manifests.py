"""The manifests of a portal's folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pytest_mlms.show.portal.manifests import Manifests
from tests.support.project import copy_digits


def test_a_file_whose_name_is_no_utf_8_is_left_out(tmp_path: Path) -> None:
    """No page can have its name: the model's and that of evaluations were a 500 for everybody."""
    manifest = copy_digits(tmp_path / "manifests")
    shutil.copy(manifest, manifest.with_name(os.fsdecode(b"caf\xe9.yaml")))
    assert list(Manifests(manifest.parent).by_path()) == ["digits.yaml"]
