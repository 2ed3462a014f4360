"""Pairs of agents, tested with hand-written fakes; test_run has the real ones."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_mlms.core.errors import AgentError, InvalidRun, MlmsError
from pytest_mlms.core.records import Launch, Stack
from pytest_mlms.decide.upgrade.agents import TurnPlan, _check_different, open_pair
from pytest_mlms.decide.upgrade.crash import Exits
from pytest_mlms.decide.upgrade.rounds import SideName
from pytest_mlms.measure.agent.opening import PredictorSpec
from pytest_mlms.measure.agent.predictor import Clocks
from tests.support.fake_agents import FakePair, FakePredictor


def test_only_the_side_with_the_turn_runs_once_the_pair_is_bound() -> None:
    fakes = FakePair()
    pair = fakes.pair()
    pair.bind([])
    assert [fake.agent.running for fake in fakes.both] == [False, False]
    with pair.running("b"):
        assert [fake.agent.running for fake in fakes.both] == [False, True]
    assert [fake.agent.running for fake in fakes.both] == [False, False]
    assert pair.exclusive


def test_a_side_in_a_container_is_not_stopped() -> None:
    fakes = FakePair()
    pair = fakes.pair(in_container=True)
    pair.bind([])
    assert [fake.agent.running for fake in fakes.both] == [True, True]
    assert not pair.exclusive


def test_a_side_that_cannot_be_stopped_goes_on_running() -> None:
    fakes = FakePair()
    fakes.a.clocks = Clocks(wait=True, device=False, stoppable=False)
    pair = fakes.pair()
    pair.bind([])
    assert [fake.agent.running for fake in fakes.both] == [True, False]
    assert not pair.exclusive


def test_a_turn_is_given_as_planned() -> None:
    fakes = FakePair()
    pair = fakes.pair()
    turn = pair.turn("a", TurnPlan(3, skip=1), first=2)
    assert fakes.a.turns == [(3, 1, 2)]
    assert len(turn.times["start"]) == 3
    assert fakes.b.turns == []


def test_an_error_during_a_turn_names_the_side() -> None:
    pair = FakePair().pair()
    with pytest.raises(AgentError, match="^candidate new: it ended$"), pair.running("b"):
        raise AgentError("it ended")


def test_a_pair_has_the_process_ids_of_both_sides() -> None:
    assert FakePair().pair().pids == {101, 102}


class FakeCase:
    """The part of a case that opening a pair reads."""

    device = "cpu"

    def __init__(self, name: str, threads: int | None = None, container: str | None = None) -> None:
        self.stack = Stack(name, "fake", interpreter="current", container=container)
        self.model = "model"
        self.options: dict[str, Any] = {}
        self.threads = threads


def spec_of(name: str, command: str, threads: int | None = None) -> PredictorSpec:
    return PredictorSpec(
        case=cast(Any, FakeCase(name, threads)),
        launch=Launch((command,), {}),
        predictor=Path("fake.py"),
        files={},
        log=Path("log"),
        timeout=1,
    )


class FakeStart:
    """An agent that was started. A side of two waits until the other one loads, too."""

    both = threading.Barrier(2)

    def __init__(self, spec: PredictorSpec, fake: FakePredictor) -> None:
        self.spec = spec
        self.fake = fake
        self.is_ended = threading.Event()

    def load(self) -> FakePredictor:
        command = self.spec.launch.command
        if command == ("broken",):
            raise AgentError("can't load")
        if command == ("endless",):
            assert self.is_ended.wait(60), "nobody ended it"
            raise AgentError("it ended")
        if "together" in command:
            self.both.wait(60)
        return self.fake

    def hurry(self) -> None:
        """There is no agent that could."""

    def stop(self) -> None:
        self.is_ended.set()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[PredictorSpec]:
    """The specs of the predictors that were opened; opening needs no process."""
    specs: list[PredictorSpec] = []

    @contextlib.contextmanager
    def start_fake(spec: PredictorSpec) -> Iterator[FakeStart]:
        specs.append(spec)
        if spec.launch.command == ("missing",):
            raise AgentError("can't start")
        fake = FakePredictor(len(specs))
        fake.threads = spec.case.threads or len(specs)
        fake.cores = spec.launch.cores
        yield FakeStart(spec, fake)

    monkeypatch.setattr("pytest_mlms.decide.upgrade.agents.start_predictor", start_fake)
    monkeypatch.setattr("pytest_mlms.provide.host.machine.cgroup_folders", list)
    return specs


def sides_of(a: PredictorSpec, b: PredictorSpec) -> dict[SideName, PredictorSpec]:
    return {"a": a, "b": b}


OLD = spec_of("old", "python3.10", threads=1)
NEW = spec_of("new", "python3.11", threads=1)
ORDER: Sequence[SideName] = ("b", "a")


def test_sides_are_started_in_order_and_held_to_the_cores(opened: list[PredictorSpec]) -> None:
    with open_pair(sides_of(OLD, NEW), ORDER, [0, 3]) as pair:
        assert pair.labels == {"a": "baseline old", "b": "candidate new"}
    assert [spec.case.stack.name for spec in opened] == ["new", "old"]
    assert [spec.launch.cores for spec in opened] == [(0, 3), (0, 3)]


def test_the_second_side_starts_and_ends_on_other_cores_than_those_of_the_round(
    opened: list[PredictorSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    near = {0: {0, 1}, 1: {0, 1}, 2: {2, 3}, 3: {2, 3}}
    monkeypatch.setattr("pytest_mlms.provide.host.machine._node_of", lambda core: near[core])
    monkeypatch.setattr(os, "sched_getaffinity", lambda number: set(near))
    monkeypatch.setattr(Exits, "end", lambda exits, predictors: None)
    with open_pair(sides_of(OLD, NEW), ORDER, [2], Exits()) as pair:
        assert [spec.launch.cores for spec in opened] == [(2,), (3,)]
        assert (pair.a.cores, pair.b.cores) == ((2,), (2,))
        fakes = (cast(FakePredictor, pair.a), cast(FakePredictor, pair.b))
    assert [fake.moves for fake in fakes] == [[{3: 2}, {2: 3}], []]


def test_sides_that_bind_their_threads_to_cores_start_on_those_of_the_round_from_then_on(
    opened: list[PredictorSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_mlms.provide.host.machine._node_of", lambda core: {0, 1})
    monkeypatch.setattr(os, "sched_getaffinity", lambda number: {0, 1})
    monkeypatch.setattr(Exits, "end", lambda exits, predictors: None)
    exits = Exits()
    for strays in (False, True, False):
        with open_pair(sides_of(OLD, NEW), ORDER, [0], exits) as pair:
            for fake in (pair.a, pair.b):
                cast(FakePredictor, fake).has_strays = strays
    starts = [spec.launch.cores for spec in opened]
    assert starts == [(0,), (1,), (0,), (1,), (0,), (0,)]


@pytest.mark.parametrize("cores", [(2,), (2, 3), (1, 2)])
def test_both_sides_start_on_the_same_cores_where_no_others_are_near_and_free(
    cores: tuple[int, ...], opened: list[PredictorSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    near = {0: {0, 1}, 1: {0, 1}, 2: {2, 3}, 3: {2, 3}}
    monkeypatch.setattr("pytest_mlms.provide.host.machine._node_of", lambda core: near[core])
    monkeypatch.setattr(os, "sched_getaffinity", lambda number: set(near))
    held = FakeCase("old", 1)
    held.stack = replace(held.stack, cores=(0, 2))
    sides = sides_of(replace(OLD, case=cast(Any, held)), NEW)
    with open_pair(sides, ORDER, cores):
        assert [spec.launch.cores for spec in opened] == [cores, cores]


def test_a_side_that_cannot_be_opened_is_named(opened: list[PredictorSpec]) -> None:
    missing = spec_of("new", "missing")
    with (
        pytest.raises(AgentError, match="candidate new: can't start"),
        open_pair(sides_of(OLD, missing), ORDER, []),
    ):
        pass


def test_both_sides_load_at_the_same_time(opened: list[PredictorSpec]) -> None:
    old = replace(OLD, launch=replace(OLD.launch, command=("together", "old")))
    new = replace(NEW, launch=replace(NEW.launch, command=("together", "new")))
    with open_pair(sides_of(old, new), ORDER, []) as pair:
        assert pair.together


def test_sides_load_one_after_the_other_on_another_device(
    opened: list[PredictorSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeCase, "device", "cuda")
    with open_pair(sides_of(OLD, NEW), ORDER, []) as pair:
        assert not pair.together


def test_sides_load_one_after_the_other_where_memory_is_short(
    opened: list[PredictorSpec], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pytest_mlms.decide.upgrade.agents.available_memory", lambda: 99)
    model = tmp_path / "model"
    model.write_bytes(bytes(25))
    large = replace(OLD, files={"graph": model})
    with open_pair(sides_of(large, NEW), ORDER, []) as pair:
        assert not pair.together


def test_a_side_that_cannot_be_loaded_ends_the_other_one_that_still_loads(
    opened: list[PredictorSpec],
) -> None:
    sides = sides_of(spec_of("slow", "endless"), spec_of("bad", "broken"))
    with pytest.raises(AgentError, match="candidate bad: can't load"), open_pair(sides, ORDER, []):
        pass


def test_stacks_of_two_names_that_start_the_same_software_are_refused(
    opened: list[PredictorSpec],
) -> None:
    twin = spec_of("twin", "python3.10", threads=1)
    message = "both sides are the same: old and twin start the same interpreter"
    with pytest.raises(MlmsError, match=message), open_pair(sides_of(OLD, twin), ORDER, []):
        pass
    assert opened == []


def test_links_to_one_interpreter_in_a_folder_are_the_same_and_those_of_two_folders_are_not(
    opened: list[PredictorSpec], tmp_path: Path
) -> None:
    base = tmp_path / "base"
    base.touch()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for name in ("python", "python3"):
            (tmp_path / folder / name).symlink_to(base)
    python, python3, other = (
        spec_of(name, str(tmp_path / name), threads=1)
        for name in ("a/python", "a/python3", "b/python")
    )
    message = "both sides are the same: a/python and a/python3 start the same interpreter"
    with pytest.raises(MlmsError, match=message), open_pair(sides_of(python, python3), ORDER, []):
        pass
    _check_different(python, other)


def test_a_stack_may_be_compared_with_itself(opened: list[PredictorSpec]) -> None:
    with open_pair(sides_of(OLD, OLD), ORDER, []):
        assert len(opened) == 2


def test_sides_with_different_threads_that_were_not_asked_for_are_invalid(
    opened: list[PredictorSpec],
) -> None:
    free_a = spec_of("old", "python3.10")
    free_b = spec_of("new", "python3.11")
    message = "the baseline runs with 2 threads and the candidate with 1 thread, though both"
    with pytest.raises(InvalidRun, match=message), open_pair(sides_of(free_a, free_b), ORDER, []):
        pass


def test_different_threads_that_were_asked_for_are_valid(opened: list[PredictorSpec]) -> None:
    other = spec_of("new", "python3.11", threads=4)
    with open_pair(sides_of(OLD, other), ORDER, []) as pair:
        assert (pair.a.threads, pair.b.threads) == (1, 4)


def test_sides_on_different_cores_are_invalid(opened: list[PredictorSpec]) -> None:
    elsewhere = replace(NEW, launch=replace(NEW.launch, cores=(7,)))
    message = r"the baseline is held to the cores \(\) and the candidate to \(7,\)"
    with pytest.raises(InvalidRun, match=message), open_pair(sides_of(OLD, elsewhere), ORDER, []):
        pass
