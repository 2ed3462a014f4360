"""Tests of the cache that keeps the last value."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

import pytest

from pytest_mlms.core.single_entry_cache import SingleEntryCache


@contextlib.contextmanager
def recorded(name: str, events: list[str]) -> Iterator[str]:
    events.append(f"open {name}")
    yield name
    events.append(f"close {name}")


def test_a_context_stays_open_until_another_one_is_asked_for() -> None:
    events: list[str] = []
    cache: SingleEntryCache[str] = SingleEntryCache()
    for name in ("a", "a", "b"):
        assert cache.open(name, partial(recorded, name, events)) == name
    assert events == ["open a", "close a", "open b"]
    cache.close()
    assert events[-1] == "close b"


def test_a_value_is_made_once_for_users_that_follow_each_other() -> None:
    made: list[int] = []
    cache: SingleEntryCache[int] = SingleEntryCache()

    def make() -> int:
        made.append(1)
        return len(made)

    assert [cache.get("key", make), cache.get("key", make)] == [1, 1]
    assert cache.get("other", make) == 2
    assert cache.get("key", make) == 3


def test_a_value_that_could_not_be_made_is_asked_for_again() -> None:
    cache: SingleEntryCache[int] = SingleEntryCache()
    with pytest.raises(ZeroDivisionError):
        cache.get("key", lambda: 1 // 0)
    assert cache.get("key", lambda: 5) == 5


def test_a_key_of_none_is_a_key_like_any_other() -> None:
    cache: SingleEntryCache[int] = SingleEntryCache()
    assert cache.get(None, lambda: 5) == 5


def test_a_value_that_is_no_longer_usable_is_made_again() -> None:
    events: list[str] = []
    ended: set[str] = set()
    cache: SingleEntryCache[str] = SingleEntryCache(lambda value: value not in ended)
    cache.open("key", partial(recorded, "a", events))
    cache.open("key", partial(recorded, "a", events))
    ended.add("a")
    assert cache.open("key", partial(recorded, "b", events)) == "b"
    assert events == ["open a", "close a", "open b"]
