"""Both sides of an upgrade, loaded in fresh agents that are held to the same cores."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pytest_mlms.agent.opening import PredictorSpec, open_predictor
from pytest_mlms.agent.predictor import Predictor
from pytest_mlms.cases import Case
from pytest_mlms.errors import InvalidRun, MlmsError
from pytest_mlms.records import Launch
from pytest_mlms.upgrade.interleave import AgentPair, SideName, naming

__all__ = ["SideSpec", "open_pair"]


class SideSpec(NamedTuple):
    """What it takes to open a side."""

    case: Case
    launch: Launch
    predictor: Path
    files: Mapping[str, Path]

    def label(self, side: SideName) -> str:
        """Return what a person is told that the side is."""
        return f"{'baseline' if side == 'a' else 'candidate'} {self.case.stack.name}"


@contextlib.contextmanager
def open_pair(
    sides: Mapping[SideName, SideSpec],
    order: Sequence[SideName],
    cores: Sequence[int],
    logs: Mapping[SideName, Path],
    timeout: float,
    allow_code: bool = False,
) -> Iterator[AgentPair]:
    """Start both sides in ``order`` and load their models; raises as open_predictor does, naming
    the side.

    Raises InvalidRun where they are the same software, or don't run with the same threads though
    asked for the same.
    """
    check_different(sides["a"], sides["b"])
    made: dict[SideName, Predictor] = {}
    with contextlib.ExitStack() as opened:
        for side in order:
            case, launch, predictor, files = sides[side]
            held = replace(launch, cores=tuple(cores)) if cores else launch
            with naming(sides[side].label(side)):
                spec = PredictorSpec(case, held, predictor, files, logs[side], timeout, allow_code)
                opening = open_predictor(spec)
                made[side] = opened.enter_context(opening)
        _check_alike(sides, made)
        local = not any(opening.case.stack.container for opening in sides.values())
        yield AgentPair(
            made["a"],
            made["b"],
            {side: opening.label(side) for side, opening in sides.items()},
            local,
        )


def check_different(a: SideSpec, b: SideSpec) -> None:
    """Raise MlmsError where two stacks of different names are the same software with the same
    settings.
    """
    same = (a.launch.command, a.launch.env, a.launch.lock, a.predictor) == (
        b.launch.command,
        b.launch.env,
        b.launch.lock,
        b.predictor,
    )
    if same and a.case.stack != b.case.stack and a.case.model == b.case.model:
        raise MlmsError(
            f"both sides are the same: {a.case.stack.name} and {b.case.stack.name} start the same interpreter with the "
            f"same packages; name another stack, or use --mlms-aa to see the noise floor"
        )


def _check_alike(sides: Mapping[SideName, SideSpec], made: Mapping[SideName, Predictor]) -> None:
    a, b = made["a"], made["b"]
    if sides["a"].case.threads == sides["b"].case.threads and a.threads != b.threads:
        raise InvalidRun(
            f"the baseline runs with {_threads(a.threads)} and the candidate with {_threads(b.threads)}, though both "
            f"were asked for the same; set evaluate.threads"
        )
    if a.cores != b.cores:
        raise InvalidRun(
            f"the baseline is held to the cores {a.cores} and the candidate to {b.cores}; "
            f"give both stacks the same cores"
        )


def _threads(count: int | None) -> str:
    return "threads of its own choice" if count is None else f"{count} thread{'s' * (count != 1)}"
