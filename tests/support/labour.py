"""Upgrades of the labour predictor, one made-up stack against another, in real agents."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pytest_mlms.core.records import Comparison, Stack
from pytest_mlms.decide.upgrade.agents import AgentPair, open_pair
from pytest_mlms.decide.upgrade.compared_inputs import Extent
from pytest_mlms.decide.upgrade.crash import Exits
from pytest_mlms.decide.upgrade.criteria import Criteria, least_calls
from pytest_mlms.decide.upgrade.explanation import explain_upgrade
from pytest_mlms.decide.upgrade.interleave_plan import InterleavePlan
from pytest_mlms.decide.upgrade.output_check import OutputCheck
from pytest_mlms.decide.upgrade.result import UpgradeResult
from pytest_mlms.decide.upgrade.round_estimate import RoundSpan
from pytest_mlms.decide.upgrade.rounds import Array, Clock, Outputs, SideName
from pytest_mlms.decide.upgrade.run import UpgradeRun
from pytest_mlms.decide.upgrade.setting import UpgradeSetting
from pytest_mlms.manifest import load
from pytest_mlms.measure.agent.opening import PredictorSpec
from pytest_mlms.measure.pipeline import Dataset, open_dataset
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.stacks.launch import prepare
from tests.support.project import PREDICTORS, copy_digits

Settings = Mapping[str, Any]
"""Environment of a stack, without the prefix LABOUR_; ``cores`` and ``threads`` are those of the stack."""

ROUNDS = RoundSpan(3, 5)  # fewer than by default, as each starts two processes

SETTING = UpgradeSetting(
    a="old",
    b="new",
    budget=120,
    threads=(1, 1),
    place="m.yaml:1",
    tolerance_given=True,
    machine={},
    cpu_shares={},
    rounds=ROUNDS,
)


class Sink:
    """A recorder that keeps the fields of the item's line, and the arrays of its artifacts."""

    def __init__(self, folder: Path) -> None:
        self.fields: dict[str, Any] = {}
        self.arrays: dict[str, dict[str, Array]] = {}
        self._folder = folder

    def note(self, **fields: Any) -> None:
        self.fields.update(fields)

    def keep(self, name: str, write: Callable[[Path], None]) -> None:
        write(self._folder / name)
        with np.load(self._folder / name) as file:
            self.arrays[name] = dict(file)


class LabourUpgrade:
    """Runs upgrades, and holds what the last one came to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        manifest = copy_digits(folder / "manifests")
        text = manifest.read_text()
        manifest.write_text(text.replace("onnxruntime >=1.17", "labour"))
        self.loaded = load(manifest)
        self.pairs: list[AgentPair] = []
        self.sink = Sink(folder)
        self.check_device: Callable[[], list[str]] = list
        self.check_accuracy = True
        self.gates: tuple[str, ...] = ("latency",)
        self.budget = 3600.0  # on a busy machine a round may take minutes, and none depends on it
        self.clock: Clock | None = None
        self.at_own_threads = False
        self.device = "cpu"
        self.exits: Exits | None = None
        self.tolerances = {"latency": 0.5}
        self._upgrade: UpgradeRun | None = None
        self._logs = 0

    @property
    def result(self) -> UpgradeResult:
        assert self._upgrade
        return self._upgrade.result

    @property
    def text(self) -> str:
        return explain_upgrade(self.result, SETTING)

    def run(self, a: Settings, b: Settings) -> UpgradeResult:
        """Compare stacks "old" and "new" of these settings."""
        case = self.case(a, b)
        dataset = self._dataset() if self.check_accuracy else None
        self.sink = Sink(self.folder)
        criteria = Criteria(self.tolerances, self.gates, self.clock, rounds=ROUNDS)
        step_files = self.loaded.step_files.items()
        files = {name: Path(artifact.source) for name, artifact in step_files}
        extent = Extent(None, self.budget, seed=7)
        unheld = self._open_unheld(case) if self.at_own_threads else None
        check = OutputCheck(case, dataset, files, {}, extent, unheld)
        self._upgrade = UpgradeRun(criteria, 2, check, self.sink, self.check_device)
        cores: list[int] = []
        if hasattr(os, "sched_getaffinity"):
            cores = sorted(os.sched_getaffinity(0))
        plan = InterleavePlan(
            *(0.01, self.budget, 7, cores),
            threads=1,
            rounds=ROUNDS,
            least_calls=least_calls(criteria),
            watches_late="late_latency" in self.gates,
        )
        batch = {"image": np.zeros((2, 1, 8, 8), np.float32)}

        def open_fresh(order: Sequence[SideName], cores: Sequence[int]) -> Any:
            return self._open(case, order, cores)

        def batches_for(predictor: object) -> Sequence[Outputs]:
            return [batch]

        return self._upgrade.run(plan, open_fresh, batches_for)

    def of(self, quantity: str) -> Comparison:
        """Return the comparison of a quantity."""
        for compared in self.result.comparisons:
            if compared.quantity == quantity:
                return compared
        raise AssertionError(f"{quantity} was not compared")

    def case(self, a: Settings, b: Settings) -> Case:
        model = self.loaded.manifest.models[0]
        old = _stack("old", a)
        new = _stack("new", b)
        return Case(
            "upgrade",
            self.loaded,
            model,
            new,
            self.device,
            2,
            None,
            against=old,
            model_against=model,
        )

    @contextlib.contextmanager
    def _open(
        self, case: Case, order: Sequence[SideName], cores: Sequence[int]
    ) -> Iterator[AgentPair]:
        sides: dict[SideName, PredictorSpec] = {
            "a": self._spec(case.baseline),
            "b": self._spec(case),
        }
        with open_pair(sides, order, cores, self.exits) as pair:
            self.pairs.append(pair)
            yield pair

    def _open_unheld(self, case: Case) -> Any:
        return lambda: self._open(case.with_own_threads, ("a", "b"), ())

    def _spec(self, case: Case) -> PredictorSpec:
        self._logs += 1
        log = self.folder / f"{self._logs}.log"
        files = {}
        for role, artifact in self.loaded.model_files(case.model).items():
            files[role] = Path(artifact.source)
        launch = prepare(case.stack, self.folder)
        return PredictorSpec(case, launch, PREDICTORS / "labour.py", files, log, timeout=300)

    def _dataset(self) -> Dataset:
        file = self.loaded.dataset_file
        assert file
        place = self.loaded.place("dataset")
        return open_dataset(Path(file.source), self.loaded.manifest.inputs, place)


def _stack(name: str, settings: Settings) -> Stack:
    env = []
    for key, value in settings.items():
        if key not in ("cores", "threads"):
            env.append((f"LABOUR_{key.upper()}", str(value)))
    cores = settings.get("cores", ())
    threads = settings.get("threads")
    return Stack(
        name, "labour", interpreter="current", env=tuple(env), cores=cores, threads=threads
    )
