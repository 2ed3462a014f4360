"""Tests of the plugin's state in a session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pytest_mlms.config import Config
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.session import Session, SingleEntryCache


def session(pytester: pytest.Pytester, *arguments: str, worker: str | None = None) -> Session:
    config = Config.from_pytest(pytester.parseconfig(*arguments))
    return Session(config, pytester.path / "run", worker)


def test_each_agent_has_a_log_of_its_own(pytester: pytest.Pytester) -> None:
    made = session(pytester)
    agents = pytester.path / "run" / "agents"
    assert made.next_log("mxnet") == agents / "mxnet-main-0.log"
    assert made.next_log("mxnet") == agents / "mxnet-main-1.log"
    agents.mkdir(parents=True)
    for number in (2, 3):  # of a session that was stopped
        (agents / f"mxnet-main-{number}.log").touch()
    assert made.next_log("mxnet") == agents / "mxnet-main-4.log"
    assert session(pytester, worker="gw1").next_log("jax") == agents / "jax-gw1-0.log"


def test_predictors_of_a_named_folder_are_added(pytester: pytest.Pytester) -> None:
    (pytester.mkdir("more") / "own.py").write_text("")
    predictors = session(pytester, "--mlms-predictors=more").predictors
    assert predictors["own"] == pytester.path / "more" / "own.py"
    assert "onnxruntime" in predictors


def test_stacks_are_those_that_the_options_name(pytester: pytest.Pytester) -> None:
    made = session(pytester, "--mlms-stack=onnxruntime==1.20", "--mlms-against=here")
    assert [stack.framework for stack in made.chosen_stacks] == ["onnxruntime"]
    assert [stack.name for stack in made.baseline_stacks] == ["here"]
    assert session(pytester).chosen_stacks == []


def test_an_unknown_stack_is_an_error(pytester: pytest.Pytester) -> None:
    made = session(pytester, "--mlms-stack=nothing-that-is-declared")
    with pytest.raises(MlmsError, match="nothing-that-is-declared"):
        _ = made.chosen_stacks


def test_sides_that_are_hosts_have_no_baseline_stack(pytester: pytest.Pytester) -> None:
    made = session(pytester, "--mlms-stack=driver=570", "--mlms-against=driver=560")
    assert made.baseline_stacks == []
    assert {stack.name.partition("@")[0] for stack in made.chosen_stacks}


def test_artifacts_are_cached_in_the_named_folder(pytester: pytest.Pytester) -> None:
    assert session(pytester, "--mlms-cache=c").cache == pytester.path / "c"
    assert isinstance(session(pytester).cache, Path)


def test_settings_that_are_turned_off_by_an_empty_file_have_no_line_in_the_header(
    pytester: pytest.Pytester,
) -> None:
    off = pytester.runpytest_subprocess("-c/dev/null", f"--rootdir={pytester.path}")
    off.stdout.no_fnmatch_line("*dev/null*")
    off.stdout.fnmatch_lines(["rootdir: *", "plugins: *"])
    pytester.makeini("[pytest]")
    pytester.runpytest_subprocess().stdout.fnmatch_lines(["configfile: tox.ini"])


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
