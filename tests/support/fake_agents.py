"""Hand-written fakes of predictors, whose calls take the seconds that a test says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from mlms_predictors._run.replies import UsageReply

from pytest_mlms.decide.upgrade.agents import AgentPair
from pytest_mlms.decide.upgrade.rounds import Array, Outputs
from pytest_mlms.measure.agent.channel import UNTOLD
from pytest_mlms.measure.agent.predictor import Clocks, Predictor, ScenarioRun, Turn


class FakeAgent:
    """A process that is running or stopped."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.running = True
        self.alive = True

    def pause(self) -> None:
        self.running = False

    def resume(self) -> None:
        self.running = True


class FakePredictor:
    """A predictor whose calls take ``seconds``.

    The first call of a turn takes ``first_factor`` times as long, the first ones the factors of
    ``start``, and a call of a thread that is held to one core ``held_factor`` times. ``turns`` are the turns so far, as (count, skip, first
    batch); ``held`` are the cores that it was held to, ``moves`` how it was moved.
    """

    def __init__(self, pid: int, seconds: float = 0.001) -> None:
        self.agent = FakeAgent(pid)
        self.seconds = seconds
        self.first_factor = 1.0
        self.start: Sequence[float] = ()
        self.held_factor = 1.0
        self.clocks = Clocks(wait=True, device=False, stoppable=True)
        self.turns: list[tuple[int, int, int]] = []
        self.held: list[Sequence[int]] = []
        self.cores: tuple[int, ...] = ()
        self.moves: list[Mapping[int, int]] = []
        self.has_strays = False
        self.outputs: dict[str, Array] = {"y": np.ones(2)}
        self.profiles: list[Any] = []
        self.versions = {"fake": "1.0"}
        self.default_output = ""
        self.python = "3.11"
        self.executable = "/usr/bin/python3"
        self.device = "cpu"
        self.threads = 1
        self.start_seconds = 0.5
        self.load_seconds = 0.3
        self.load_waited = 0.1
        self.peak_is_since_load = True
        self.unmeasured: dict[str, str] = {}
        self.rss_before = 1 << 19
        self.interpreter_seconds = 0.1
        self.device_facts = None
        self.import_seconds = 0.4
        self.seconds_until_loaded = 0.7
        self.leak = 0
        self.energy = UNTOLD
        self.seconds_run: list[float] = []
        self.calls = 0
        self.idle_share = 0.0

    def moved(self, places: Mapping[int, int]) -> tuple[FakePredictor, bool]:
        assert self.agent.running, "a stopped process was asked"
        self.moves.append(places)
        self.cores = tuple(places.values())
        return self, self.has_strays

    def usage(self, collect: bool = False) -> UsageReply:
        assert self.agent.running, "a stopped process was asked"
        return UsageReply(self.leak * self.calls, None, 1, 3)

    def run(self, scenario: str, *, seconds: float, least: int, longest: float) -> ScenarioRun:
        assert self.agent.running, "a stopped process was asked to run"
        self.seconds_run.append(seconds)
        times = {"start": np.zeros(10), "end": np.full(10, self.seconds)}
        return ScenarioRun(times, self.outputs, "digest", 0, energy=self.energy)

    def bind(self, batches: Sequence[Outputs], order: Sequence[int] = (), cycle: int = 0) -> Clocks:
        return self.clocks

    def idle(self, seconds: float) -> float:
        assert self.agent.running, "a stopped process was asked"
        return self.idle_share * seconds

    def hold(self, cores: Sequence[int]) -> None:
        self.held.append(list(cores))

    def turn(
        self,
        count: int,
        skip: int = 0,
        first: int = 0,
        *,
        outputs: bool = False,
        memory: bool = False,
    ) -> Turn:
        assert self.agent.running, "a stopped process was given a turn"
        self.turns.append((count, skip, first))
        self.calls += count + skip
        durations = np.full(count, self.seconds)
        if self.held and len(self.held[-1]) == 1:
            durations *= self.held_factor
        if not skip:
            durations[0] *= self.first_factor
        of_start = np.array(self.start[skip : skip + count])
        durations[: len(of_start)] *= of_start
        end = np.cumsum(durations)
        times = {
            "start": end - durations,
            "end": end,
            "wait": np.zeros(2),
            "at": np.array([0.0, count]),
            "cpu": np.array([0.0, end[-1]]),
            "device": durations / 2,
        }
        return Turn(times, self.outputs if outputs else {}, 1 << 20 if outputs else None)


class FakePair:
    """A pair of fakes, with ``pair`` as the code under test sees it."""

    def __init__(self, seconds_a: float = 0.001, seconds_b: float = 0.001) -> None:
        self.a = FakePredictor(101, seconds_a)
        self.b = FakePredictor(102, seconds_b)

    @property
    def both(self) -> list[FakePredictor]:
        return [self.a, self.b]

    def pair(self, in_container: bool = False) -> AgentPair:
        labels: Any = {"a": "baseline old", "b": "candidate new"}
        a = cast(Predictor, self.a)
        b = cast(Predictor, self.b)
        return AgentPair(a, b, labels, in_container)
