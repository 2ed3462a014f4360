"""Pairs of agents: both sides of an upgrade on the same cores, one of them running at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from pytest_mlms.core.errors import InvalidRun, MlmsError
from pytest_mlms.core.files import total_size
from pytest_mlms.core.memory import available_memory
from pytest_mlms.core.records import device_name
from pytest_mlms.decide.upgrade.crash import Exits
from pytest_mlms.decide.upgrade.rounds import SIDES, Outputs, SideName
from pytest_mlms.measure.agent.opening import PredictorSpec, Started, start_predictor
from pytest_mlms.measure.agent.predictor import Clocks, Predictor, Turn
from pytest_mlms.measure.evaluate.timed_inputs import cycle_of, groups_of, watched_of
from pytest_mlms.provide.host.machine import cores_beside

_COPIES = 4  # of a model's files that loading may take in memory


_COMPARED = 8  # batches, whose outputs take a call more


@dataclass(frozen=True)
class TurnPlan:
    """Calls of a turn: ``count`` that are timed, after ``skip`` that are not."""

    count: int = 1
    skip: int = 0


class AgentPair:
    """A fresh agent of each side, with the model loaded.

    Once ``bind`` was called only the side with the turn runs. The other one is stopped, where that
    is possible. ``labels`` name the sides in messages. ``together`` is whether both sides were
    started and loaded at once. Calls are made over the batches in their ``order``, by numbers;
    behind it are those that are ``watched``, each for itself. ``groups`` are those of the batches
    in their order. ``exits`` are those of the pairs so far, None where nobody looks at them.
    """

    def __init__(
        self,
        a: Predictor,
        b: Predictor,
        labels: Mapping[SideName, str],
        in_container: bool = False,
        together: bool = False,
        exits: Exits | None = None,
    ) -> None:
        self.a = a
        self.b = b
        self.labels = labels
        self.together = together
        self.exits = exits
        self.batches: Sequence[Outputs] = ()
        self.order: Sequence[int] = ()
        self.watched: Sequence[int] = ()
        self.groups: Sequence[int] = ()
        self.clocks: dict[SideName, Clocks] = {}
        self._in_container = in_container

    def __getitem__(self, side: SideName) -> Predictor:
        return self.a if side == "a" else self.b

    @property
    def pids(self) -> set[int]:
        """The process ids of both agents."""
        return {self.a.agent.pid, self.b.agent.pid}

    @property
    def compared(self) -> Sequence[int]:
        """The first places of the order: those whose outputs are compared in each round."""
        return range(min(_COMPARED, len(self.order)))

    def batch_at(self, place: int) -> Outputs:
        """Return the batch at a place of the order."""
        return self.batches[self.order[place]]

    @property
    def exclusive(self) -> bool:
        """True if both sides are stopped while they wait for their turns."""
        return all(self._can_stop(side) for side in SIDES)

    def bind(self, batches: Sequence[Outputs]) -> None:
        """Prepare both sides for turns over ``batches``, and stop them until their first turns."""
        self.batches = batches
        self.order = cycle_of(batches).tolist()
        self.watched = watched_of(batches)
        self.groups = groups_of(batches)[self.order].tolist()
        order = [*self.order, *self.watched]
        for side in SIDES:
            with _naming(self.labels, side):
                self.clocks[side] = self[side].bind(batches, order, len(self.order))
        for side in SIDES:
            if self._can_stop(side):
                self[side].agent.pause()

    @contextlib.contextmanager
    def running(self, side: SideName) -> Iterator[Predictor]:
        """Let a side run within the context. Errors name the side."""
        predictor = self[side]
        if self._can_stop(side):
            predictor.agent.resume()
        with _naming(self.labels, side):
            yield predictor
        self.wait(side)

    def wait(self, side: SideName) -> None:
        """Let a side wait for its next turn."""
        if self._can_stop(side):
            self[side].agent.pause()

    def turn(
        self,
        side: SideName,
        plan: TurnPlan,
        first: int = 0,
        *,
        outputs: bool = False,
        memory: bool = False,
    ) -> Turn:
        """Give a side its turn, from place ``first`` of the order of batches on."""
        with self.running(side) as predictor:
            return predictor.turn(plan.count, plan.skip, first, outputs=outputs, memory=memory)

    def _can_stop(self, side: SideName) -> bool:
        """Return whether a side can be stopped while it waits; before ``bind`` it is not known."""
        if self._in_container or side not in self.clocks:
            return False
        return self.clocks[side].stoppable


@contextlib.contextmanager
def open_pair(
    sides: Mapping[SideName, PredictorSpec],
    order: Sequence[SideName],
    cores: Sequence[int],
    exits: Exits | None = None,
) -> Iterator[AgentPair]:
    """Start both sides, held to ``cores`` (empty: to none), and load their models.

    They start at once, since the side that starts first may be slower for as long as it lives. On
    a device other than the CPU, and where memory may be short, they do so in ``order``. Until both
    have loaded, and when they end, the second one is on other cores, if there are enough, and if
    all its threads were on those of the round in ``exits``' rounds before.

    Raises as ``open_predictor`` does, with the name of the side, and at the end as ``exits``.
    Raises MlmsError where both sides are the same software, InvalidRun where they do not run on the
    same cores, or not with the same threads although they were asked to.
    """
    _check_different(sides["a"], sides["b"])
    labels: dict[SideName, str] = {
        "a": _label("baseline", sides["a"]),
        "b": _label("candidate", sides["b"]),
    }
    together = _may_load_together(sides)
    in_container = any(spec.case.stack.container for spec in sides.values())
    second = order[1]
    places = _places_beside(cores, sides, exits)
    with contextlib.ExitStack() as opened:
        held = {order[0]: cores, second: sorted(places.values()) or cores}
        starting = {side: start_predictor(_held_to(sides[side], held[side])) for side in order}
        started: dict[SideName, Started] = {}
        predictors: dict[SideName, Predictor] = {}
        for side in order:
            with _naming(labels, side):
                started[side] = opened.enter_context(starting[side])
                if not together:
                    predictors[side] = started[side].load()
        if together:
            predictors = _load_together(started, labels)

        if places:
            with _naming(labels, second):
                back = {beside: core for core, beside in places.items()}
                predictors[second], _ = predictors[second].moved(back)
        a = predictors["a"]
        b = predictors["b"]
        if sides["a"].case.threads == sides["b"].case.threads:
            _check_same_threads(a, b)
        _check_same_cores(a, b)
        yield AgentPair(a, b, labels, in_container, together, exits)

        if exits is not None:
            if places and predictors[second].agent.alive:
                with _naming(labels, second):
                    predictors[second].agent.resume()
                    _, exits.binds_threads = predictors[second].moved(places)
            with _naming(labels, "b"):
                exits.end(predictors)


def _may_load_together(sides: Mapping[SideName, PredictorSpec]) -> bool:
    """Return whether both sides may load their models at the same time.

    Frameworks choose kernels on a GPU by timing them, and would disturb each other.
    """
    if any(device_name(spec.case.device) != "cpu" for spec in sides.values()):
        return False
    size = total_size(file for spec in sides.values() for file in spec.files.values())
    return _COPIES * size < available_memory()


def _places_beside(
    cores: Sequence[int], sides: Mapping[SideName, PredictorSpec], exits: Exits | None
) -> dict[int, int]:
    """Return for each core of a round the one beside it that the second side starts on.

    There is none where a side can't be moved: in a container, or as it binds its threads to cores.
    """
    in_container = any(spec.case.stack.container for spec in sides.values())
    if in_container or (exits is not None and exits.binds_threads):
        return {}
    allowed = [set(spec.case.stack.cores) for spec in sides.values() if spec.case.stack.cores]
    return cores_beside(cores, set.intersection(*allowed) if allowed else ())


def _load_together(
    started: Mapping[SideName, Started], labels: Mapping[SideName, str]
) -> dict[SideName, Predictor]:
    """Load the models of both sides in threads.

    Where one fails or this is interrupted, the agents are ended, which ends the threads. What the
    baseline took bounds what the candidate may take.
    """
    with ThreadPoolExecutor(len(SIDES)) as pool:
        loading = {side: pool.submit(_load, started, labels, side) for side in started}
        try:
            first, _ = wait(loading.values(), return_when=FIRST_COMPLETED)
            for loaded in first:
                loaded.result()
            if loading["a"] in first:
                started["b"].hurry()
            return {side: loaded.result() for side, loaded in loading.items()}
        except BaseException:
            for each in started.values():
                each.stop()
            raise


def _load(
    started: Mapping[SideName, Started], labels: Mapping[SideName, str], side: SideName
) -> Predictor:
    with _naming(labels, side):
        return started[side].load()


@contextlib.contextmanager
def _naming(labels: Mapping[SideName, str], side: SideName) -> Iterator[None]:
    """Put the name of the side in front of the message of an error, and note it there."""
    try:
        yield
    except MlmsError as error:
        error.args = (f"{labels[side]}: {error}", *error.args[1:])
        error.side = side
        raise


def _label(role: str, spec: PredictorSpec) -> str:
    return f"{role} {spec.case.stack.name}"


def _held_to(spec: PredictorSpec, cores: Sequence[int]) -> PredictorSpec:
    if not cores:
        return spec
    launch = replace(spec.launch, cores=tuple(cores))
    return replace(spec, launch=launch)


def _check_different(a: PredictorSpec, b: PredictorSpec) -> None:
    """Raise MlmsError where stacks of two names are the same software with the same settings."""
    if a.case.stack == b.case.stack or a.case.model != b.case.model:
        return
    if _software_of(a) == _software_of(b):
        raise MlmsError(
            f"both sides are the same: {a.case.stack.name} and {b.case.stack.name} start the same "
            f"interpreter with the same packages; name another stack, or use --mlms-aa to see the "
            f"noise floor"
        )


def _software_of(spec: PredictorSpec) -> tuple[object, ...]:
    launch = spec.launch
    program, *flags = launch.command
    # Links beside each other, as python and python3; those of two environments are to one file.
    place = (os.path.realpath(os.path.dirname(program)), os.path.realpath(program))
    stack = spec.case.stack
    program_and_server = (place, flags, launch.env, launch.lock, stack.serve, stack.endpoint)
    return (*program_and_server, spec.predictor, spec.case.options)


def _check_same_threads(a: Predictor, b: Predictor) -> None:
    if a.threads != b.threads:
        raise InvalidRun(
            f"the baseline runs with {_threads(a.threads)} and the candidate with "
            f"{_threads(b.threads)}, though both were asked for the same; set evaluate.threads"
        )


def _check_same_cores(a: Predictor, b: Predictor) -> None:
    if a.cores != b.cores:
        raise InvalidRun(
            f"the baseline is held to the cores {a.cores} and the candidate to {b.cores}; "
            f"give both stacks the same cores"
        )


def _threads(count: int | None) -> str:
    if count is None:
        return "threads of its own choice"
    return "1 thread" if count == 1 else f"{count} threads"
