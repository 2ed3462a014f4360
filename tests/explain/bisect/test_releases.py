"""Releases between two ends, from a folder of wheels."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.explain.bisect.releases import release_stacks, releases_between
from pytest_mlms.provide.artifacts.package_index import PipSettings
from tests.support.wheels import write_wheel


@pytest.fixture
def settings(tmp_path: Path) -> PipSettings:
    for version in ("0.9", "1.0", "1.2", "1.10", "1.11rc1", "2.0"):
        write_wheel(tmp_path, "pace", version)
    (tmp_path / "pace-1.3.tar.gz").write_bytes(b"a source distribution")
    (tmp_path / "pace-1.4-cp27-cp27m-win32.whl").write_bytes(b"of another platform")
    return PipSettings(indexes=(), links=(str(tmp_path),))


def between(settings: PipSettings, good: str, bad: str, pre: bool = False) -> list[str]:
    return releases_between(Requirement(good), Requirement(bad), settings, pre)


def test_releases_are_those_with_a_wheel_here_the_oldest_first(settings: PipSettings) -> None:
    assert between(settings, "pace==1.0", "pace==2.0") == ["1.0", "1.2", "1.10", "2.0"]
    assert between(settings, "pace==1.0", "pace==1.10.0") == ["1.0", "1.2", "1.10"]


def test_releases_go_from_the_good_end_to_the_bad_one_also_backwards(settings: PipSettings) -> None:
    assert between(settings, "pace==1.10", "pace==1.0") == ["1.10", "1.2", "1.0"]


def test_releases_of_a_build_are_those_of_this_build(settings: PipSettings) -> None:
    for version in ("1.0+cpu", "1.2+cpu", "1.2+gpu", "2.0+cpu"):
        write_wheel(Path(settings.links[0]), "pace", version)
    assert between(settings, "pace==1.0+cpu", "pace==2.0+cpu") == ["1.0+cpu", "1.2+cpu", "2.0+cpu"]
    assert between(settings, "pace==1.0", "pace==2.0") == ["1.0", "1.2", "1.10", "2.0"]


def test_pre_releases_are_asked_for_or_an_end(settings: PipSettings) -> None:
    assert "1.11rc1" in between(settings, "pace==1.0", "pace==2.0", pre=True)
    assert between(settings, "pace==1.10", "Pace==1.11rc1") == ["1.10", "1.11rc1"]


@pytest.mark.parametrize(
    ("good", "bad", "problem"),
    [
        ("pace==1.0", "pace==1.0.0", "both pace 1.0; name two releases"),
        ("pace==1.0", "other==2.0", "--good is of pace and --bad of other"),
        ("pace==1.0", "pace==1.3", "no wheel of pace 1.3 for this Python and platform; it has"),
        ("pace==1.1", "pace==2.0", "it has 0.9, 1.0, 1.2, 1.10, 2.0"),
        ("other==1.0", "other==2.0", "it has no such package"),
    ],
)
def test_ends_that_cannot_be_searched_are_errors(
    settings: PipSettings, good: str, bad: str, problem: str
) -> None:
    with pytest.raises(MlmsError, match=problem):
        between(settings, good, bad)


def test_each_release_has_a_stack_whose_name_nobody_else_uses() -> None:
    taken = {"pace-1.2"}
    stacks = release_stacks("pace", ["1.0", "1.2"], "pacekit", ["scipy<2"], taken)
    assert [stack.name for stack in stacks] == ["pace-1.0", "pace-1.2-again"]
    assert stacks[0].requirements == ("pace==1.0", "scipy<2", "numpy")
    assert stacks[0].framework == "pacekit"


@pytest.mark.parametrize("more", [["numpy<2"], ["NumPy==1.26.4"]])
def test_numpy_is_added_where_it_is_not_named(more: list[str]) -> None:
    (stack,) = release_stacks("pace", ["1.0"], "pacekit", more, ())
    assert stack.requirements == ("pace==1.0", *more)


def test_each_release_has_the_settings_of_the_stack_that_is_named() -> None:
    like = Stack("new", "pacekit", python="3.10", requirements=("pace==3",), env=(("A", "it's"),))
    (stack,) = release_stacks("pace", ["1.0"], "pacekit", (), (), like)
    assert (stack.name, stack.requirements) == ("pace-1.0", ("pace==1.0", "numpy"))
    assert (stack.python, stack.env) == ("3.10", (("A", "it's"),))
