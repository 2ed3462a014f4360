"""Releases that this Python and platform can install, from what an index offers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.provide.artifacts.package_index import PackageFile, PipSettings
from pytest_mlms.provide.stacks.index import (
    Release,
    parse_requirement,
    releases_of,
    select_releases,
)


def file(version: str, tags: str = "py3-none-any", **facts: Any) -> PackageFile:
    name = f"tiny-{version}-{tags}.whl"
    url = f"https://example.invalid/{name}"
    return PackageFile(name, url, "tiny", Version(version), True, True, size=7, **facts)


def selected(*files: PackageFile, text: str = "tiny", pre: bool = False) -> list[str]:
    found = select_releases(parse_requirement(text), files, pre)
    return [str(release.version) for release in found]


def test_the_newest_release_comes_first() -> None:
    assert selected(file("1.9"), file("1.10"), file("1.2")) == ["1.10", "1.9", "1.2"]


def test_a_requirement_selects_its_versions() -> None:
    files = (file("1.0"), file("1.5"), file("2.0"))
    assert selected(*files, text="tiny>=1.5,<2") == ["1.5"]


def test_yanked_releases_and_those_of_other_platforms_are_left_out() -> None:
    elsewhere = file("1.3", "cp39-cp39-win_arm64")
    source = PackageFile("tiny-1.4.tar.gz", "", "tiny", Version("1.4"), False, True)
    assert selected(file("1.1", yanked=""), file("1.2"), elsewhere, source) == ["1.2"]


def test_a_yanked_release_that_is_named_is_there_as_for_pip() -> None:
    files = [file("1.1", yanked=""), file("1.2", yanked="broken"), file("1.3")]
    found = select_releases(parse_requirement("tiny"), files, False, None, [Version("1.2.0")])
    assert [str(release.version) for release in found] == ["1.3", "1.2"]


@pytest.mark.parametrize(
    ("python", "expected"),
    [(None, ["1.4", "1.3", "1.2"]), ("3.7.9", ["1.4", "1.1"]), ("3.7", ["1.4", "1.1"])],
)
def test_releases_for_other_pythons_are_left_out(python: str | None, expected: list[str]) -> None:
    files = [
        file("1.1", requires_python="<3.8,>=3.7.2"),
        file("1.2", requires_python=">=3.8"),
        file("1.3", requires_python=">=3.8,!=3.9.*,!=3.10.99"),
        file("1.4", requires_python="no specifier"),
    ]
    found = select_releases(parse_requirement("tiny"), files, pre=False, python=python)
    assert [str(release.version) for release in found] == expected


def test_pre_releases_have_to_be_asked_for() -> None:
    files = (file("1.0"), file("1.1rc1"))
    assert selected(*files) == ["1.0"]
    assert selected(*files, pre=True) == ["1.1rc1", "1.0"]


def test_a_release_has_a_stack_of_its_own() -> None:
    release = Release("onnxruntime", Version("1.17.3+cpu"), 0)
    assert release.stack == "onnxruntime-1.17.3-cpu"
    assert release.requirement == "onnxruntime==1.17.3+cpu"


@pytest.mark.parametrize("text", ["two words", "tiny @ https://example.invalid/a.whl", ""])
def test_a_text_that_is_no_package_with_versions_is_refused(text: str) -> None:
    with pytest.raises(MlmsError, match="write one as in 'onnxruntime>=1.17'"):
        parse_requirement(text)


def test_versions_that_are_not_offered_are_named_with_those_that_are(tmp_path: Path) -> None:
    for version in ("1.0", "1.1"):
        (tmp_path / f"tiny-{version}-py3-none-any.whl").touch()
    settings = PipSettings((), (str(tmp_path),))
    with pytest.raises(MlmsError, match="is on the index; it has 1.0 to 1.1"):
        releases_of(parse_requirement("tiny>2"), settings, pre=False)
    (newest, _) = releases_of(parse_requirement("tiny"), settings, pre=False)
    assert newest == Release("tiny", Version("1.1"), 0)
