"""Keys of stacks of which one name has several softwares."""

from __future__ import annotations

from pytest_mlms.keep.lockfile.lock import LockedStack
from pytest_mlms.keep.lockfile.stack_keys import NamedSoftware, keys_of, stack_name

FIRST, SECOND, THIRD = (
    LockedStack(python="3.11.7", packages=(f"a=={version}",)) for version in "123"
)


def keys(softwares: list[LockedStack], old: dict[str, LockedStack]) -> list[str]:
    named = [NamedSoftware("here", software) for software in softwares]
    found = keys_of(named, old)
    return [found[entry] for entry in named]


def test_one_software_has_the_name_of_its_stack() -> None:
    assert keys([SECOND], {}) == ["here"]
    assert keys([SECOND], {"here": FIRST}) == ["here"]


def test_several_softwares_have_numbers_in_an_order_that_no_run_changes() -> None:
    assert keys([SECOND, FIRST], {}) == keys([SECOND, FIRST, FIRST], {})[:2] == ["here (2)", "here"]


def test_known_softwares_keep_their_numbers_and_new_ones_follow() -> None:
    old = {"here": THIRD, "here (2)": SECOND}
    assert keys([FIRST, SECOND, THIRD], old) == ["here (3)", "here (2)", "here"]
    assert keys([FIRST, SECOND], old) == ["here (2)", "here"]


def test_names_do_not_share_numbers() -> None:
    named = [NamedSoftware("here", FIRST), NamedSoftware("there", SECOND)]
    assert sorted(keys_of(named, {}).values()) == ["here", "there"]


def test_the_name_is_the_key_without_its_number() -> None:
    assert stack_name("here (2)") == stack_name("here") == "here"
