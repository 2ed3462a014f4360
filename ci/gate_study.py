"""Study what the upgrade gate finds and what it flags wrongly, on this machine.

    bash ci/gate_study [--quick] [--minutes 20] [--items 60 15] [--threads 1] [--beside-load]
                       [--models digits] [--gate-only] [--coin] [--output FILE]
    bash ci/gate_study --simulate [--decisions 1000] [--unlike | --outputs | --inputs]
                       [--rounds 6 12] [--processes 2]

Writes docs/gate.md, or another page. Identical models (A/A) are compared, and candidates that do
about 2, 5 and 10 % more work: extra layers, whose size is found for each model by a line through
the CPU time of several sizes, and verified by CPU time in processes of their own. The same time is
then given to what one would do with pytest-benchmark: first one side, then the other, and
--benchmark-compare-fail. All run on one thread unless --threads says otherwise. The decisions are
taken in a random order, as many as fit into the minutes: a shorter study is a smaller one. On
several threads only identical models tell something, as CPU time then holds that of spinning.

With --simulate nothing is measured: decisions are made on simulated processes, whose truth is
known, and the tables of docs/methodology.md are printed; with --unlike that of noises which the two
sides don't share.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gate_models import ROOT, SOURCES, Network, make_networks
from gate_report import EFFECTS, TOLERANCE, Conditions, Item, make_report
from gate_simulation import SimulationPlan, simulation_report, unlike_report
from output_simulation import output_report
from pytest_benchmark.utils import parse_compare_fail
from workload_simulation import workload_report

from pytest_mlms.core.records import Stack
from pytest_mlms.decide.upgrade.agents import AgentPair, open_pair
from pytest_mlms.decide.upgrade.criteria import SHARE_OF_TOLERANCE, Criteria
from pytest_mlms.decide.upgrade.decision import are_gates_decided
from pytest_mlms.decide.upgrade.figures import figures_of
from pytest_mlms.decide.upgrade.interleave import MeasuredRound, run_interleaved
from pytest_mlms.decide.upgrade.interleave_plan import InterleavePlan
from pytest_mlms.decide.upgrade.output_check import OutputFindings, check_outputs
from pytest_mlms.decide.upgrade.result import UpgradeResult
from pytest_mlms.decide.upgrade.round_estimate import ROUNDS, RoundSpan
from pytest_mlms.decide.upgrade.rounds import Outputs, SideName
from pytest_mlms.decide.upgrade.run import UpgradeRun
from pytest_mlms.manifest import load
from pytest_mlms.measure.agent.opening import PredictorSpec, open_predictor
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.host.machine import CpuTimes
from pytest_mlms.provide.stacks.launch import prepare

AfterRound = Callable[[int, MeasuredRound, AgentPair], bool]

PREDICTOR = ROOT / "predictors" / "onnxruntime.py"
RULES = {"mean:5%": parse_compare_fail("mean:5%"), "min:5%": parse_compare_fail("min:5%")}
COIN_TIMES = 2
TIMEOUT = 120  # seconds
BUDGET = 120  # seconds
MOST_ELEMENTS = 4_000_000
MEASURABLE = 0.05  # change of CPU time

MANIFEST = """
name: {name}
version: 1.0.0
task: study
models: [{{framework: onnxruntime, graph: {graph}, sha256: {sha256}}}]
inputs: [{{name: x, type: tensor, element_type: float32}}]
outputs: [{{name: y, type: tensor}}]
evaluate: {{threads: {threads}}}
"""

LOAD = """
import random, time
while True:
    time.sleep(random.random())
    until = time.monotonic() + random.random()
    while time.monotonic() < until:
        sum(range(10_000))
"""


@contextlib.contextmanager
def other_load() -> Iterator[None]:
    """Run a process for each core that computes for up to a second and sleeps for up to another."""
    processes = [subprocess.Popen([sys.executable, "-c", LOAD]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


class NoSink:
    """A destination of results that keeps nothing: the study reads what it needs of the run."""

    def note(self, **fields: Any) -> None:
        """Ignore fields of an item's line."""

    def keep(self, name: str, write: Callable[[Path], None]) -> None:
        """Ignore an artifact."""


def compare_timed_outputs(
    pair: AgentPair, outputs: Mapping[SideName, Outputs], of_first_call: Mapping[SideName, Outputs]
) -> OutputFindings:
    """Compare the outputs of the timed inputs."""
    return OutputFindings([check_outputs(outputs["a"], outputs["b"])])


class Study:
    """Runs upgrades from models to their variants, and keeps the decisions.

    ``seconds`` is how long the turns of a round take, ``options`` are those of the command line.
    """

    def __init__(self, folder: Path, seconds: float, options: argparse.Namespace) -> None:
        self.folder = folder
        self.seconds = seconds
        self.threads: int = options.threads
        self.stack = Stack("here", "onnxruntime", interpreter="current", threads=self.threads)
        self.random = random.Random(options.seed)
        self.coin: bool = options.coin
        self.judges = False
        self.rules = {} if options.gate_only else RULES
        self.items: list[Item] = []
        self.networks = []
        for network in make_networks(folder, options.seed):
            if network.name in options.models:
                self.networks.append(network)
        self._logs = 0

    def calibrate(self, network: Network, rounds: int) -> None:
        """Find the extra work for each effect, and verify it.

        The work is on a line through the CPU time of several sizes. A first guess says how large
        these must be.
        """
        elements, change = self.guess_size(network)
        points = []
        for share in (0.02, 0.06, 0.12):
            size = max(1, round(elements * share / max(change, 0.01)))
            points.append((size, self.cpu_change(network, size, rounds)))
        sizes, changes = np.array(points).T
        slope, intercept = np.polyfit(sizes, changes, 1)
        for effect in EFFECTS:
            size = 0
            if effect:
                size = max(1, round((effect - intercept) / slope))
            network.sizes[effect] = size
            network.verified[effect] = self.cpu_change(network, size, rounds)
        found = [f"{effect:.0%} is {network.verified[effect]:+.2%}" for effect in EFFECTS]
        print(f"{network.name}: CPU time, {', '.join(found)}", flush=True)

    def guess_size(self, network: Network) -> tuple[int, float]:
        """Return elements of extra work, and the change of CPU time that they make."""
        elements = 16_000
        while True:
            change = self.cpu_change(network, elements, 1)
            if change >= MEASURABLE or elements >= MOST_ELEMENTS:
                return elements, change
            elements *= 2

    def cpu_change(self, network: Network, extra: int, rounds: int) -> float:
        """Return how CPU time grows with ``extra``: the median over rounds of fresh processes."""
        values: list[float] = []

        def after_round(index: int, measured: MeasuredRound, pair: AgentPair) -> bool:
            figures = figures_of(measured.raw, "wall", 1)
            values.append(figures["cpu_time"].value)
            return index + 1 >= rounds

        self.run_interleaved(network, extra, self.seconds / 2, after_round)
        return math.expm1(statistics.median(values))

    def run_interleaved(
        self,
        network: Network,
        extra: int,
        seconds: float,
        after_round: AfterRound,
        precision: float = 0.0,
        is_for_guards: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run rounds of the model and its variant until ``after_round`` returns True."""
        cores: list[int] = []
        if hasattr(os, "sched_getaffinity"):
            cores = sorted(os.sched_getaffinity(0))
        seed = self.random.getrandbits(32)
        plan = InterleavePlan(seconds, BUDGET, seed, cores, self.threads, precision=precision)

        def open_fresh(
            order: Sequence[SideName], cores: Sequence[int]
        ) -> AbstractContextManager[AgentPair]:
            sides: dict[SideName, PredictorSpec] = {
                "a": self.spec_of(network, 0),
                "b": self.spec_of(network, 0 if self.is_spared() else extra),
            }
            return open_pair(sides, order, cores)

        def batches_for(predictor: Predictor) -> Sequence[Outputs]:
            return [network.batch]

        run_interleaved(plan, open_fresh, batches_for, after_round, is_for_guards=is_for_guards)

    def is_spared(self) -> bool:
        """Return whether the candidate's next process does no more work: by a coin with --coin."""
        return self.judges and self.coin and self.random.random() < 0.5

    def spec_of(self, network: Network, extra: int) -> PredictorSpec:
        """Return what is needed to load a variant of a model."""
        self._logs += 1
        loaded = load(self.manifest_of(network))
        model = loaded.manifest.models[0]
        case = Case("upgrade", loaded, model, self.stack, "cpu", len(network.batch["x"]), None)
        return PredictorSpec(
            case=case,
            launch=prepare(self.stack, self.folder, threads=self.threads),
            predictor=PREDICTOR,
            files={"graph": network.file(extra)},
            log=self.folder / f"{self._logs}.log",
            timeout=TIMEOUT,
        )

    def manifest_of(self, network: Network) -> Path:
        """Return the manifest of a model; it is written where it is not there yet."""
        manifest = self.folder / f"{network.name}.yaml"
        if not manifest.exists():
            graph = network.file(0)
            sha256 = hashlib.sha256(graph.read_bytes()).hexdigest()
            text = MANIFEST.format(
                name=network.name, graph=graph.name, sha256=sha256, threads=self.threads
            )
            manifest.write_text(text)
        return manifest

    def judge(self, network: Network, effect: float) -> Item:
        """Decide by the gate, then by the other rules in the time that its turns took."""
        timed = 0.0
        criteria = Criteria({"latency": TOLERANCE})
        upgrade = UpgradeRun(criteria, 1, compare_timed_outputs, NoSink())

        def after_round(index: int, measured: MeasuredRound, pair: AgentPair) -> bool:
            nonlocal timed
            for side in measured.raw:
                timed += float(side.wall.sum())
                assert side.wait is not None, "this kernel doesn't count the waits for a core"
            return upgrade.after_round(index, measured, pair)

        extra = network.sizes[effect] * (COIN_TIMES if self.coin else 1)
        began = time.monotonic()
        self.judges = True
        precision = SHARE_OF_TOLERANCE * TOLERANCE

        def is_for_guards() -> bool:
            return are_gates_decided(upgrade.result.comparisons)

        self.run_interleaved(network, extra, self.seconds, after_round, precision, is_for_guards)
        seconds = time.monotonic() - began
        item = item_of(network.name, effect, upgrade.result, seconds)
        others = {}
        if self.rules:
            others = self.one_after_the_other(network, extra, max(timed, self.seconds) / 2)
        self.items.append(replace(item, others=others))
        return self.items[-1]

    def one_after_the_other(self, network: Network, extra: int, seconds: float) -> dict[str, bool]:
        """Return which of pytest-benchmark's rules flag the variant, timed after the model."""
        before = self.time_alone(network, 0, seconds)
        after = self.time_alone(network, extra, seconds)
        return {name: bool(rule.fails(after, before)) for name, rule in self.rules.items()}

    def time_alone(self, network: Network, extra: int, seconds: float) -> dict[str, float]:
        """Return the mean and the least latency of a variant in a process of its own."""
        with open_predictor(self.spec_of(network, extra)) as predictor:
            warm_up = seconds / 10
            predictor.run("single_stream", [network.batch], seconds=warm_up, least=16, longest=60)
            run = predictor.run("single_stream", seconds=seconds, least=16, longest=60)
        return {"mean": float(run.latencies.mean()), "min": float(run.latencies.min())}


def item_of(network: str, effect: float, result: UpgradeResult, seconds: float) -> Item:
    """Return the decision on a variant; ``seconds`` includes starting the agents."""
    ratios = {compared.quantity: compared.ratio for compared in result.comparisons}
    starting = 0.0
    for record in result.rounds:
        starts = [side.start_seconds for side in record.sides.values()]
        starting += max(starts) if record.started_together else sum(starts)
    return Item(
        network=network,
        effect=effect,
        verdict=result.verdict.value,
        ratio=ratios["latency"],
        cpu_ratio=ratios["cpu_time"],
        seconds=seconds - starting,
        rounds=len(result.rounds),
        decided_by=[compared.quantity for compared in result.regressed],
    )


def plan_items(
    networks: Sequence[Network], same: int, worse: int, rng: random.Random
) -> list[tuple[Network, float]]:
    """Return what to judge, in random order: ``same`` identical pairs, ``worse`` of each effect."""
    items = []
    for effect in EFFECTS:
        count = worse if effect else same
        for index in range(count):
            items.append((networks[index % len(networks)], effect))
    rng.shuffle(items)
    return items


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="a few decisions of short rounds: that it works"
    )
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument(
        "--items", type=int, nargs=2, default=(60, 15), help="identical pairs; of each effect"
    )
    parser.add_argument(
        "--beside-load",
        action="store_true",
        help="run other processes that compute on and off meanwhile",
    )
    parser.add_argument(
        "--coin",
        action="store_true",
        help="of candidates with more work, every other process has twice of it, and the rest none",
    )
    parser.add_argument("--threads", type=int, default=1, help="of each side; default: %(default)s")
    parser.add_argument(
        "--models", nargs="+", choices=list(SOURCES), default=list(SOURCES), help="default: all"
    )
    parser.add_argument(
        "--gate-only", action="store_true", help="don't compare with pytest-benchmark's rules"
    )
    parser.add_argument(
        "--simulate", action="store_true", help="decide on simulated processes instead"
    )
    parser.add_argument(
        "--unlike", action="store_true", help="--simulate noises that the two sides don't share"
    )
    parser.add_argument(
        "--outputs", action="store_true", help="--simulate faults of outputs on few inputs"
    )
    parser.add_argument(
        "--inputs", action="store_true", help="--simulate slow-downs of a part of the inputs"
    )
    parser.add_argument("--processes", type=int, help="of --simulate; default: one a core")
    parser.add_argument("--decisions", type=int, default=1000, help="of each cell of --simulate")
    parser.add_argument(
        "--rounds",
        type=int,
        nargs=2,
        default=ROUNDS,
        metavar=("LEAST", "MOST"),
        help="of each item of --simulate; default: 6 12",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--output", type=Path, help="default: docs/gate.md, or docs/gate_beside_load.md"
    )
    options = parser.parse_args()
    if options.output is None:
        name = "gate_beside_load.md" if options.beside_load else "gate.md"
        options.output = ROOT / "docs" / name
    if options.quick:
        options.items = (3, 2)
    return options


def run_study(study: Study, options: argparse.Namespace) -> None:
    """Take the decisions, and write the page after each, so that a study may be stopped."""
    began = time.monotonic()
    cpu_times = CpuTimes()
    for network in study.networks:
        study.calibrate(network, 1 if options.quick else 2)
    same, worse = options.items
    planned = plan_items(study.networks, same, worse, study.random)
    beside = "no other load"
    if options.beside_load:
        beside = "a process on each core that computes on and off"
    text = ""
    for number, (network, effect) in enumerate(planned, 1):
        spent = time.monotonic() - began
        if spent > 60 * options.minutes:
            break
        item = study.judge(network, effect)
        print(f"{number:3} of {len(planned)} {json.dumps(vars(item))}", flush=True)
        spent = time.monotonic() - began
        about = Conditions(
            asked=len(planned),
            spent=spent,
            turn_seconds=study.seconds,
            threads=study.threads,
            beside=beside,
            busy=cpu_times.shares(),
        )
        text = make_report(study.items, study.networks, list(study.rules), about)
        if not options.quick:
            options.output.write_text(text)
    print("\n" + text)


def main() -> int:
    """Run the study."""
    options = parse_options()
    if options.simulate and options.inputs:
        for line in workload_report(options.decisions, options.seed, options.processes):
            print(line, flush=True)
        return 0
    if options.simulate and options.outputs:
        for line in output_report(options.decisions, options.seed):
            print(line, flush=True)
        return 0
    if options.simulate:
        plan = SimulationPlan(
            options.decisions,
            seed=options.seed,
            processes=options.processes,
            span=RoundSpan(*options.rounds),
        )
        for line in unlike_report(plan) if options.unlike else simulation_report(plan):
            print(line, flush=True)
        return 0
    seconds = 0.4 if options.quick else 0.75
    load_beside = other_load() if options.beside_load else contextlib.nullcontext()
    with tempfile.TemporaryDirectory() as folder, load_beside:
        run_study(Study(Path(folder), seconds, options), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
