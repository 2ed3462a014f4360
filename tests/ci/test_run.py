"""The checks of CI before its first part."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.project import ROOT

DF = """#!/bin/sh
echo Avail
case "$*" in *cache*) echo {cache}GB;; *) echo {temporary}GB;; esac
"""


@pytest.mark.parametrize(("temporary", "cache"), [(14, 90), (90, 14), (15, 15)])
def test_a_disk_with_too_little_room_ends_it_first_and_is_named(
    tmp_path: Path, temporary: int, cache: int
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "df").write_text(DF.format(cache=cache, temporary=temporary))
    (programs / "df").chmod(0o755)
    for name in ("date", "dirname", "tail"):  # and no bash, so that no part begins
        (programs / name).symlink_to(str(shutil.which(name)))
    (tmp_path / "cache").mkdir()
    folders = {"TMPDIR": str(tmp_path), "MLMS_CACHE": str(tmp_path / "cache" / "later")}
    done = subprocess.run(
        [str(shutil.which("bash")), str(ROOT / ".ci" / "run")],
        env={"PATH": str(programs), "HOME": str(tmp_path), **folders},
        capture_output=True,
        text=True,
        check=False,
    )
    short = tmp_path / "cache" if cache < 15 else tmp_path
    says = f"less than 15 GB are free in {short}: remove what" in done.stderr
    assert says is (min(temporary, cache) < 15), done.stderr
    assert done.returncode == (2 if says else 127)
    assert f"{temporary}GB free in {tmp_path}\n" in done.stdout
