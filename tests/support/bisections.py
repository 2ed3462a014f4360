"""A package with many releases, a project that measures it, and a gate without measurements."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_mlms.cli.main import main
from pytest_mlms.core.errors import StackError
from pytest_mlms.core.records import Stack
from pytest_mlms.explain.bisect.gate import GateRun
from tests.support.confirmations import KEPT, write_numpy, write_predictor
from tests.support.project import Project
from tests.support.wheels import write_wheel

__all__ = ["KEPT", "Release", "Releases", "SimulatedGate", "write_releases"]


@dataclass(frozen=True)
class Release:
    """A release of the package "pacekit".

    ``work`` is that of a call, in milliseconds by the agent's own clock. ``fault`` is one of
    tests/support/predictors/labour.py. A release that is ``broken`` can't be installed.
    """

    work: float
    fault: str = ""
    broken: bool = False


def write_releases(wheels: Path, releases: Mapping[str, Release]) -> None:
    """Write the wheels of the package's releases by version, and that of numpy."""
    for version, release in releases.items():
        code = f"WORK = {release.work}\nFAULT = {release.fault!r}"
        needs = "nowhere" if release.broken else ""
        write_wheel(wheels, "pacekit", version, needs=needs, code=code)
    write_numpy(wheels)


class Releases:
    """A project that measures the package, and its bisections.

    Time is the agent's own, so that no other work changes it.
    """

    def __init__(self, project: Project, cache: Path) -> None:
        self.project = project
        self.file = project.path / "bisect.json"
        predictors = project.path / "predictors"
        write_predictor(predictors)
        self.folders = [f"--mlms-cache={cache}", f"--mlms-predictors={predictors}"]
        project.edit("onnxruntime >=1.17", "pacekit")
        project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
        project.edit("[single_stream, offline]", "[single_stream]")
        project.set_thresholds()

    def arguments(self, *words: str) -> list[str]:
        """Return the arguments of the command; nothing ends early because the machine is busy."""
        nodeid = "manifests/digits.yaml::test_upgrade"
        return ["bisect", nodeid, *words, "--budget=600", *self.folders]

    def bisect(self, good: str, bad: str, *words: str) -> int:
        """Bisect the releases between two versions; return the exit status."""
        ends = (f"--good=pacekit=={good}", f"--bad=pacekit=={bad}")
        return main(self.arguments(*ends, *words))

    @property
    def record(self) -> dict[str, Any]:
        """The content of bisect.json."""
        content: dict[str, Any] = json.loads(self.file.read_text())
        return content

    @property
    def answer(self) -> dict[str, Any]:
        """The answer in bisect.json."""
        answer: dict[str, Any] = self.record["answer"]
        return answer


class SimulatedGate:
    """A gate that judges by a function of a stack's packages; nothing is installed or run.

    The stacks ``missing`` can't be installed, those in ``also`` have more packages. Ctrl-C comes
    after ``interrupted_after`` judgements. ``line`` replaces the fields of each upgrade. ``runs``
    counts the judgements.
    """

    def __init__(
        self,
        is_worse: Callable[[set[str]], bool],
        missing: Sequence[str] = (),
        also: Mapping[str, tuple[str, ...]] | None = None,
        interrupted_after: int = 1000,
        line: Mapping[str, Any] | None = None,
    ) -> None:
        self.runs = 0
        self._is_worse = is_worse
        self._missing = missing
        self._also = also or {}
        self._most_runs = interrupted_after
        self._line = line or {}

    def show(self, step: str) -> None:
        pass

    def install(self, stack: Stack) -> tuple[str, ...]:
        if stack.name in self._missing:
            raise StackError("no such package")
        return (*stack.requirements, *self._also.get(stack.name, ()))

    def run(self, before: Stack, after: Stack, quantity: str | None, effort: int) -> GateRun:
        if self.runs == self._most_runs:
            raise KeyboardInterrupt
        self.runs += 1
        worse = self._is_worse(_software(after)) and not self._is_worse(_software(before))
        verdict = "REGRESSED" if worse else "PASSED"
        compared = {"quantity": "latency", "verdict": verdict, "of": "rounds", "lacking": ""}
        figures = dict.fromkeys(("a", "b", "ratio", "low", "high", "tolerance"), 1.0)
        line = {"verdict": verdict, "comparisons": [{**compared, **figures, "unit": "s"}]}
        names = {"stack": {"name": after.name}, "nodeid": f"{after.name}-vs-{before.name}"}
        return GateRun({**line, **names, **self._line}, "run")


def _software(stack: Stack) -> set[str]:
    return {*stack.requirements, str(stack.python)}
