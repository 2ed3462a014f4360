"""The stacks between two lock files, and the packages that made it worse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.explain.bisect import packages
from pytest_mlms.explain.bisect.bisection import Bisection
from pytest_mlms.explain.bisect.packages import bisect_packages, ends_of
from pytest_mlms.explain.bisect.record import Record
from pytest_mlms.provide.stacks.index import Release
from tests.support.bisections import SimulatedGate
from tests.support.questions import QUESTION

OLD = ("pace==1.0", "numpy==1.26.4", "gone==1.0")
NEW = ("pace==1.4", "numpy==2.4.6", "added==3.0")


def stack(requirements: tuple[str, ...], **fields: Any) -> Stack:
    return Stack("locked", "pacekit", requirements=requirements, **fields)


@pytest.fixture
def bisect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Record]:
    def offered(requirement: Any, settings: object, pre: bool, python: str | None) -> list[Release]:
        versions = ["1.0", "1.1", "1.2", "1.3", "1.4", "2.0", "1.1+cpu", "1.2+cpu", "1.2+gpu"]
        versions += ["1.3+cpu", "1.4+cpu"]
        found = [version for version in versions if requirement.specifier.contains(version)]
        assert found or requirement.name != "pace"
        return [Release("pace", Version(version), 0) for version in found]

    monkeypatch.setattr(packages, "releases_of", offered)
    monkeypatch.setattr(packages, "settings_of", lambda stack: SimpleNamespace())

    def run(
        is_worse: Callable[[set[str]], bool], good: Stack, bad: Stack, missing: Sequence[str] = ()
    ) -> Record:
        record = Record(QUESTION, quantity="latency")
        gate = SimulatedGate(is_worse, missing)
        bisection = Bisection(record, tmp_path / "bisect.json", gate, lambda probe: None)
        bisect_packages(bisection, ends_of(good, bad), None)
        return record

    return run


def test_stacks_are_the_good_one_with_some_of_the_changes() -> None:
    ends = ends_of(stack(OLD, python="3.11.7"), stack(NEW, python="3.12.1"))
    names = [str(change) for change in ends.changes]
    assert names == [
        "Python 3.11.7 → 3.12.1",
        "added none → 3.0",
        "gone 1.0 → none",
        "numpy 1.26.4 → 2.4.6",
        "pace 1.0 → 1.4",
    ]
    everything = ends.stack((0, 1, 2, 3, 4))
    assert everything.name == "bad"
    assert (set(everything.requirements), everything.python) == (set(NEW), "3.12.1")
    assert ends.stack(()) == ends.good
    one = ends.stack((3,))
    assert one.name == "good-with-numpy"
    assert one.requirements == ("pace==1.0", "numpy==2.4.6", "gone==1.0")
    between = ends.stack_of_release(ends.changes[4], "1.2")
    assert between.name == "good-with-pace-1.2"
    assert "pace==1.2" in between.requirements


def test_the_names_of_stacks_differ() -> None:
    many = tuple(f"p{number}==2" for number in range(6))
    ends = ends_of(stack(tuple(f"p{number}==1" for number in range(6))), stack(many))
    sets = [(0, 1, 2), (3, 4, 5), (0,), (1,), (0, 1), (0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 5), ()]
    assert len({ends.stack(chosen).name for chosen in sets}) == len(sets)


def test_the_release_of_the_package_is_found(bisect: Callable[..., Record]) -> None:
    slow = {"pace==1.2", "pace==1.3", "pace==1.4"}
    record = bisect(lambda found: bool(found & slow), stack(OLD), stack(NEW))
    assert record.culprits == ["pace"]
    answer = record.answer
    assert answer is not None
    assert (answer.kind, answer.package, answer.old, answer.new) == ("found", "pace", "1.1", "1.2")


def test_a_package_that_was_added_is_found_on_fresh_data(bisect: Callable[..., Record]) -> None:
    record = bisect(lambda found: "added==3.0" in found, stack(OLD), stack(NEW))
    answer = record.answer
    assert answer is not None
    assert (answer.kind, answer.package, answer.old, answer.new) == ("found", "added", "", "3.0")
    assert record.probes[-1].purpose == "neighbours"


def test_packages_that_are_worse_together_only_are_both_named(
    bisect: Callable[..., Record],
) -> None:
    both = {"numpy==2.4.6", "pace==1.4"}
    record = bisect(lambda found: both <= found, stack(OLD), stack(NEW))
    assert record.culprits == ["numpy", "pace"]
    assert record.minimal
    answer = record.answer
    assert answer is not None
    assert answer.kind == "range"


def test_packages_that_can_not_be_installed_alone_may_be_more_than_is_needed(
    bisect: Callable[..., Record],
) -> None:
    pinned = ("good-with-numpy", "good-with-pace")  # which need each other
    old, new = stack(OLD[:2]), stack((NEW[0], NEW[1]))
    record = bisect(lambda found: "pace==1.4" in found, old, new, missing=pinned)
    assert record.culprits == ["numpy", "pace"]
    assert not record.minimal


def test_releases_of_the_builds_of_both_ends_are_searched(bisect: Callable[..., Record]) -> None:
    slow = {"pace==1.3+cpu", "pace==1.4+cpu"}
    ends = stack(("pace==1.1+cpu",)), stack(("pace==1.4+cpu",))
    record = bisect(lambda found: bool(found & slow), *ends)
    assert record.releases == ["1.1+cpu", "1.2+cpu", "1.3+cpu", "1.4+cpu"]
    assert record.answer is not None
    assert (record.answer.old, record.answer.new) == ("1.2+cpu", "1.3+cpu")


def test_another_python_is_found(bisect: Callable[..., Record]) -> None:
    good = stack(OLD, python="3.11.7")
    record = bisect(lambda found: "3.12.1" in found, good, stack(NEW, python="3.12.1"))
    answer = record.answer
    assert answer is not None
    assert (answer.kind, answer.package) == ("found", "Python")


def test_ends_that_do_not_differ_end_it(bisect: Callable[..., Record]) -> None:
    record = bisect(lambda found: False, stack(OLD), stack(NEW))
    answer = record.answer
    assert answer is not None
    assert answer.kind == "same"
    assert len(record.probes) == 1


def test_the_same_packages_and_containers_have_nothing_to_search() -> None:
    with pytest.raises(MlmsError, match="the same packages"):
        ends_of(stack(OLD), stack(OLD))
    with pytest.raises(MlmsError, match="name two releases"):
        ends_of(stack(OLD), stack(NEW, container="image"))
