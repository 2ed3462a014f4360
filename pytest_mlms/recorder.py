"""What an item records while it runs, and the plain values that become of it.

One line of the results.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.agent.predictor import Predictor
from pytest_mlms.cases import Case
from pytest_mlms.evaluate.limits import explain, margin, worst
from pytest_mlms.host.machine import CpuTimes
from pytest_mlms.records import QUANTITIES, Decision, Estimate, Launch, Place, Verdict
from pytest_mlms.serialization import to_plain

__all__ = [
    "RECORDER",
    "MlmsArtifactLost",
    "MlmsInconclusive",
    "MlmsWarning",
    "Recorder",
    "describe",
]


class MlmsWarning(pytest.PytestWarning):
    """What a user should know of an item that did not fail.

    An error with -W error, and then text like any other.
    """


class MlmsInconclusive(MlmsWarning):
    """A limit lies inside its interval, and the budget is spent."""


class MlmsArtifactLost(MlmsWarning):
    """A file of an item could not be written."""


class Recorder:
    """Collects an item's facts; ``folder`` is where its artifacts go, made when the first is kept.

    ``place`` is the manifest's line that warnings name.
    """

    def __init__(self, nodeid: str, run_folder: Path, place: Place) -> None:
        self.folder = run_folder / "items" / _folder_name(nodeid)
        self.logs: list[Path] = []
        self._run_folder = run_folder
        self._place = place
        self._facts: dict[str, Any] = {}
        self._artifacts: dict[str, str] = {}
        self._lost: dict[str, str] = {}
        self._cpu = CpuTimes()

    def keep(self, name: str, write: Callable[[Path], None]) -> None:
        """Have ``write`` make an artifact of this name.

        What the disk won't take costs the artifact, not the result.
        """
        path = self.folder / name
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write(path)
        except OSError as error:
            self._lose(name, error)
        else:
            self._artifacts[name] = path.relative_to(self._run_folder).as_posix()
            self._lost.pop(name, None)

    def _lose(self, name: str, error: OSError) -> None:
        """Leave no half of a file, and warn once an item; the results name all that is lost."""
        path = self.folder / name
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        first, self._lost[name] = not self._lost, str(error)
        self._artifacts.pop(
            name, None
        )  # an earlier one, of a trace that is written after each level
        if first:
            text = f"{path} could not be written: {error.strerror}; make room, or name another folder by --mlms-results"
            warnings.warn_explicit(text, MlmsArtifactLost, str(self._place.path), self._place.line)

    def note(self, **facts: Any) -> None:
        """Add fields to the item's line; records become plain values when the line is written."""
        self._facts.update(facts)

    def launched(self, launch: Launch) -> None:
        """Record how agents are started, and the exact packages of an environment that was made for
        them.
        """
        self.note(launch={"command": list(launch.command), "lock": list(launch.lock)})

    def ran_on(self, predictor: Predictor) -> None:
        """Record the software and the device that were really used."""
        self.note(
            versions=dict(predictor.versions),
            python=predictor.python,
            executable=predictor.executable,
            device_used=predictor.device,
            threads_used=predictor.threads,
            cores_used=predictor.cores and list(predictor.cores),
        )
        if predictor.agent.log.path not in self.logs:
            self.logs.append(predictor.agent.log.path)

    def settle(
        self,
        estimates: Mapping[str, Estimate],
        decisions: Sequence[Decision],
        strict: bool,
        cause: Callable[[], str] = lambda: "",
    ) -> None:
        """Record what was measured and decided; fail where a limit is broken, warn (strict: fail)
        where it is open.

        ``cause`` is asked, for more to say, where it fails.
        """
        self.note(
            estimates={name: _estimate(name, estimate) for name, estimate in estimates.items()},
            limits=[_decision(decision) for decision in decisions],
            verdict=worst(decision.verdict for decision in decisions).value,
            margin=_finite(margin(decisions)),
        )
        failed = [one for one in decisions if one.verdict is Verdict.FAILED]
        undecided = [one for one in decisions if one.verdict is Verdict.INCONCLUSIVE]
        if failed or (undecided and strict):
            pytest.fail(
                "\n".join([*map(explain, failed + undecided), *cause().splitlines()]), pytrace=False
            )
        for one in undecided:
            path, line = one.limit.place
            warnings.warn_explicit(explain(one), MlmsInconclusive, str(path), line)

    def settle_upgrade(
        self, verdict: Verdict, margin: float, text: str, place: Place, strict: bool
    ) -> None:
        """Record the verdict on an upgrade.

        Fail where it is REGRESSED, warn (strict: fail) where it is open.
        """
        self.note(verdict=verdict.value, margin=_finite(margin), text=text)
        if verdict is Verdict.REGRESSED or (strict and verdict is Verdict.INCONCLUSIVE):
            pytest.fail(text, pytrace=False)
        if verdict is Verdict.INCONCLUSIVE:
            warnings.warn_explicit(text, MlmsInconclusive, str(place.path), place.line)

    def as_dict(self) -> dict[str, Any]:
        """Return what was recorded, as plain values, with the paths of artifacts relative to the
        run's folder.
        """
        logs = [log.relative_to(self._run_folder).as_posix() for log in self.logs if log.exists()]
        files = {
            "artifacts": dict(self._artifacts),
            "artifacts_lost": dict(self._lost),
            "logs": logs,
        }
        plain: dict[str, Any] = to_plain({**self._facts, **files, "cpu_shares": self._cpu.shares()})
        return plain


def describe(case: Case) -> dict[str, Any]:
    """Return what a case is, as plain values."""
    manifest = case.loaded.manifest
    return {
        "kind": case.kind,
        "manifest": {
            "path": str(case.loaded.place().path),
            "name": manifest.name,
            "version": manifest.version,
        },
        "model": {"framework": case.model.framework, "sha256": dict(case.model.sha256)},
        "dataset": manifest.dataset
        and manifest.dataset.model_dump(include={"name", "version", "sha256"}),
        "stack": {
            "name": case.stack.name,
            "threads": case.threads,
            "cores": list(case.stack.cores),
        },
        "against": case.against and {"name": case.against.name, "threads": case.baseline.threads},
        "options": dict(case.model.options),
        "framework": case.stack.framework,
        "device": case.device,
        "batch_size": case.batch_size,
        "scenario": case.scenario,
        "seed": manifest.evaluate.seed,
    }


RECORDER = pytest.StashKey[Recorder]()
"""Where an item keeps its recorder."""


def _folder_name(nodeid: str) -> str:
    """Return a folder's name that a person can read and no two items share."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", nodeid).strip("-.")[-100:]
    return f"{readable}-{hashlib.sha256(nodeid.encode()).hexdigest()[:8]}"


def _estimate(name: str, estimate: Estimate) -> dict[str, Any]:
    fields = {key: _finite(value) for key, value in dataclasses.asdict(estimate).items()}
    return {**fields, "unit": QUANTITIES[name].unit}


def _decision(decision: Decision) -> dict[str, Any]:
    limit = decision.limit
    return {
        "quantity": limit.quantity,
        QUANTITIES[limit.quantity].bound: limit.value,
        "place": str(limit.place),
        "verdict": decision.verdict.value,
    }


def _finite(value: Any) -> Any:
    """JSON has no infinity and no NaN: null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
