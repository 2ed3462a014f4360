"""A project whose framework is a package of ours with many releases, for bisections."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_mlms.bisect.gate import GateRun
from pytest_mlms.cli.main import main
from pytest_mlms.errors import StackError
from pytest_mlms.records import Stack
from tests.support.confirmations import KEPT, write_numpy, write_predictor
from tests.support.project import PREDICTORS, Project
from tests.support.wheels import write_wheel

__all__ = ["KEPT", "RELEASES", "Releases", "SimulatedGate"]

RELEASES = [f"1.{minor}" for minor in range(1, 13)]
"""The twelve releases of the package, the oldest first."""

BASE = 100
"""Units of work of a call, each of a millisecond by the agent's own clock."""


class Releases:
    """A project that measures the package "pacekit", of which there are twelve releases.

    Each works as much as ``work`` says, and has the fault of tests/support/predictors/labour.py
    that ``faults`` names by version. Those in ``broken`` can't be installed. Time is the agent's
    own, so that no other work changes it.
    """

    def __init__(
        self,
        project: Project,
        wheels: Path,
        work: Sequence[int] = (BASE,) * len(RELEASES),
        faults: Mapping[str, str] | None = None,
        broken: Sequence[str] = (),
    ) -> None:
        self.project = project
        self.wheels = wheels
        self.cache = project.path / "cache"
        self.predictors = project.path / "predictors"
        self.file = project.path / "bisect.json"
        write_predictor(self.predictors)
        for version, units in zip(RELEASES, work, strict=True):
            fault = (faults or {}).get(version, "")
            needs = "nowhere" if version in broken else ""
            self.add(version, units, fault, needs)
        write_numpy(wheels)
        project.edit("onnxruntime >=1.17", "pacekit")
        project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
        project.edit("[single_stream, offline]", "[single_stream]")
        project.set_thresholds()

    def add(self, version: str, units: int, fault: str = "", needs: str = "") -> None:
        """Add a release."""
        code = f"WORK = {units}\nFAULT = {fault!r}"
        write_wheel(self.wheels, "pacekit", version, needs=needs, code=code)

    @property
    def folders(self) -> list[str]:
        """The options of pytest and the command that name the project's folders."""
        return [f"--mlms-cache={self.cache}", f"--mlms-predictors={self.predictors}"]

    @property
    def words(self) -> list[str]:
        """The options of the command; nothing ends early because the machine is busy."""
        return ["--budget=600", *self.folders]

    def bisect(self, *arguments: str, good: str = "1.1", bad: str = "1.12") -> int:
        """Run the command over releases; return its exit status."""
        ends = [f"--good=pacekit=={good}", f"--bad=pacekit=={bad}"]
        return self.command(*ends, *arguments)

    def command(self, *arguments: str) -> int:
        """Run the command; return its exit status."""
        return main(["bisect", "manifests/digits.yaml::test_upgrade", *arguments, *self.words])

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


def options_of_pytest() -> str:
    """Return what the sessions of a command are to use: short rounds, no plugins of tests."""
    plugins = "-p no:hypothesispytest -p no:anyio"
    return f"{plugins} --mlms-predictors={PREDICTORS}"


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
