"""The stack that runs a model made for a version that no stack may have."""

from __future__ import annotations

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from pytest_mlms.core.records import Stack
from pytest_mlms.provide.stacks.nearest import nearest_stack, pinned_version


def stacks(*versions: str) -> list[Stack]:
    """Return a stack of TensorFlow for each version."""
    found = []
    for version in versions:
        requirements = ("numpy==1.19.5", f"tensorflow-cpu=={version}")
        found.append(Stack(f"tf-{version}", "tensorflow", requirements=requirements))
    return found


@pytest.mark.parametrize(
    ("versions", "declared", "expected"),
    [
        ("==1.12.*", ["1.12.0", "1.12.3", "2.15.1"], "tf-1.12.3"),
        ("==1.12.0", ["1.11.0", "1.12.3", "2.15.1"], "tf-1.12.3"),
        ("==1.12.*", ["1.11.0", "2.15.1", "2.21.0"], "tf-2.15.1"),
        ("==1.12.*", ["1.4.0", "1.11.0"], "tf-1.11.0"),
        (">=1.1.0", ["1.15.0", "2.21.0"], "tf-2.21.0"),
        (">=3", ["1.15.0", "2.21.0"], "tf-2.21.0"),
        ("<1.4", ["2.21.0", "1.15.0"], "tf-1.15.0"),
        ("", ["1.15.0", "2.21.0"], "tf-2.21.0"),
    ],
)
def test_a_fitting_version_is_taken_or_else_the_nearest_newer_one(
    versions: str, declared: list[str], expected: str
) -> None:
    found = nearest_stack("tensorflow", SpecifierSet(versions), stacks(*declared))
    assert found is not None
    assert found.name == expected


def test_a_stack_without_a_pin_is_taken_where_none_has_one() -> None:
    unpinned = Stack("any", "tensorflow", requirements=("tensorflow>=2",))
    versions = SpecifierSet("==1.12.*")
    assert nearest_stack("tensorflow", versions, [unpinned]) == unpinned
    (pinned,) = stacks("2.21.0")
    assert nearest_stack("tensorflow", versions, [unpinned, pinned]) == pinned


def test_stacks_of_other_frameworks_do_not_count() -> None:
    assert nearest_stack("mxnet", SpecifierSet(""), stacks("2.21.0")) is None


def test_the_pin_is_that_of_the_framework() -> None:
    (stack,) = stacks("2.21.0")
    assert pinned_version(stack) == Version("2.21.0")
    wheel = Stack("wheel", "tensorflow", requirements=("/wheels/tensorflow-2.0-any.whl",))
    assert pinned_version(wheel) is None
