"""Two stacks in real agents, in turns: what is worse, wrong or broken is told.

Their clocks are those of their work.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from pytest_mlms.cases import Case
from pytest_mlms.errors import AgentError, InvalidRun, MlmsError
from pytest_mlms.manifest import load
from pytest_mlms.pipeline import open_dataset
from pytest_mlms.records import Comparison, Stack, Verdict
from pytest_mlms.stacks.launch import prepare
from pytest_mlms.upgrade import interleave as duel
from pytest_mlms.upgrade.agents import SideSpec, open_pair
from pytest_mlms.upgrade.decision import CLOCKS
from pytest_mlms.upgrade.explanation import explain_upgrade
from pytest_mlms.upgrade.interleave import AgentPair, InterleavePlan, run_interleaved
from pytest_mlms.upgrade.output_check import OutputCheck
from pytest_mlms.upgrade.run import Criteria, Upgrade
from tests.support.project import PREDICTORS, ROOT, copy_digits


class Ring:
    """A place for upgrades of the labour predictor, one stack against another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = copy_digits(folder / "manifests")
        self.manifest.write_text(self.manifest.read_text().replace("onnxruntime >=1.17", "labour"))
        self.loaded = load(self.manifest)
        self.pairs: list[AgentPair] = []
        self.kept: dict[str, Any] = {}
        self.look: Callable[[AgentPair], list[str]] = lambda pair: []
        self.examined = True
        self.gates: tuple[str, ...] = ("latency",)
        self._logs = 0

    def case(self, a: dict[str, Any], b: dict[str, Any], device: str) -> Case:
        model = self.loaded.manifest.models[0]
        stacks = [
            Stack(
                name,
                "labour",
                interpreter="current",
                env=tuple(
                    (f"LABOUR_{key.upper()}", str(value))
                    for key, value in env.items()
                    if key != "cores"
                ),
                cores=env.get("cores", ()),
            )
            for name, env in (("old", a), ("new", b))
        ]
        return Case(
            "upgrade",
            self.loaded,
            model,
            stacks[1],
            device,
            2,
            None,
            against=stacks[0],
            model_against=model,
        )

    def run_interleaved(
        self,
        a: dict[str, Any],
        b: dict[str, Any],
        budget: float = 3600,  # on a busy machine a round may take minutes, and none depends on it
        clock: Any = None,
        device: str = "cpu",
        **tolerances: float,
    ) -> Upgrade:
        case = self.case(a, b, device)
        files = {
            role: Path(artifact.source)
            for role, artifact in self.loaded.model_files(case.model).items()
        }
        dataset_file = self.loaded.dataset_file
        assert dataset_file
        manifest = self.loaded.manifest
        dataset = open_dataset(
            Path(dataset_file.source), manifest.inputs, self.loaded.place("dataset")
        )
        dataset = dataset if self.examined else None
        sides: Any = {
            side: SideSpec(one, prepare(one.stack, self.folder), PREDICTORS / "labour.py", files)
            for side, one in (("a", case.baseline), ("b", case))
        }

        @contextlib.contextmanager
        def fresh(order: Any, cores: Any) -> Iterator[AgentPair]:
            self._logs += 1
            logs: Any = {side: self.folder / f"{side}{self._logs}.log" for side in "ab"}
            with open_pair(sides, order, cores, logs, 300) as pair:
                self.pairs.append(pair)
                yield pair

        tolerances = {"latency": 0.5, **tolerances}
        examine = OutputCheck.of(case, dataset, {}, {})
        keep = lambda *kept: self.kept.update([kept])  # noqa: E731
        self.upgrade = Upgrade(Criteria(tolerances, self.gates, clock), 2, examine, keep, self.look)
        batches = [{"image": np.zeros((2, 1, 8, 8), np.float32)}]
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        plan = InterleavePlan(0.01, budget, seed=7, cores=cores, threads=1)
        run_interleaved(plan, fresh, lambda side: batches, self.upgrade.after_round)
        return self.upgrade

    def of(self, quantity: str) -> Comparison:
        return next(one for one in self.upgrade.comparisons if one.quantity == quantity)

    def text(self) -> str:
        setting = {
            "a": "old",
            "b": "new",
            "budget": 120,
            "place": "m.yaml:1",
            "asked": True,
            "threads": [1, 1],
        }
        return explain_upgrade(self.upgrade.comparisons, {**self.upgrade.facts, **setting})


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    made = Ring(tmp_path)
    yield made
    for pair in made.pairs:  # whatever happened, nobody is left behind, stopped or not
        assert not pair.a.agent.alive
        assert not pair.b.agent.alive


def test_equal_stacks_are_not_worse_and_much_slower_ones_are_with_the_layer_that_moved(
    ring: Ring,
) -> None:
    same = ring.run_interleaved({}, {"version": 2})
    assert same.verdict is Verdict.PASSED
    assert {side["pid"] for one in same.facts["rounds"] for side in one["sides"].values()} == {
        side.agent.process.pid for pair in ring.pairs for side in (pair.a, pair.b)
    }
    slower = ring.run_interleaved({"work": 1}, {"work": 8})
    assert slower.verdict is Verdict.REGRESSED
    assert ring.of("latency").ratio == pytest.approx(8)
    assert ring.of("throughput").ratio == pytest.approx(1 / 8)
    assert ring.of("agreement").verdict is Verdict.PASSED
    moved = slower.layers[0]
    assert (moved.name, moved.type) == ("extra", "MatMul")
    assert moved.share == pytest.approx(1)
    text = ring.text()
    assert text.startswith("new (B) against old (A): REGRESSED in latency, ")
    for part in (
        "A ",
        "µs",
        "×",
        "tolerance 50 %",
        "noise floor of this item",
        "pairs",
        "clock: ",
        "machine: ",
        "extra",
    ):
        assert part in text
    assert "try: if this is meant, allow it: --mlms-tolerance" in text


def test_much_faster_is_improved_and_keeps_every_pair(ring: Ring) -> None:
    faster = ring.run_interleaved({"work": 8}, {"work": 1})
    assert ring.of("latency").ratio == pytest.approx(1 / 8)
    assert faster.verdict is Verdict.IMPROVED
    assert len(faster.facts["rounds"]) == 2
    for index, one in enumerate(faster.facts["rounds"]):
        raw = ring.kept[f"pairs-{index}.npz"]
        assert raw["wall_a"].shape == raw["wall_b"].shape == (one["pairs"], one["calls"])
        assert raw["b_first"].shape == (one["pairs"],)
        assert one["pairs"] >= 40
        assert 0 < raw["b_first"].mean() < 1
        assert len(one["cores"]) <= 1
    assert ring.text().splitlines()[0] == "new (B) against old (A): IMPROVED"


def test_by_the_machines_own_clocks_every_call_has_its_wait_and_its_cpu_time(ring: Ring) -> None:
    upgrade = ring.run_interleaved({"clock": "real"}, {"clock": "real", "work": 2})
    assert upgrade.facts["clock"] in CLOCKS
    raw = ring.kept["pairs-0.npz"]
    for side in "ab":
        assert (raw[f"wall_{side}"] > 0).all()
        assert (raw[f"cpu_{side}"] > 0).all()
        assert "wait_a" not in raw or (raw[f"wait_{side}"] <= raw[f"wall_{side}"]).all()
    assert ring.of("latency").floor > 0


def test_faster_because_wrong_fails_at_once_and_says_so(ring: Ring) -> None:
    wrong = ring.run_interleaved({"work": 8}, {"work": 1, "fault": "wrong"})
    assert wrong.verdict is Verdict.REGRESSED
    assert len(wrong.facts["rounds"]) == 1
    assert "REGRESSED, B computes something else" in ring.text()


def test_a_candidate_that_gives_nan_is_wrong_and_a_baseline_that_does_is_no_baseline(
    ring: Ring,
) -> None:
    assert ring.run_interleaved({}, {"fault": "nan"}).verdict is Verdict.REGRESSED
    assert ring.of("agreement").lacking == "'logits' has NaN or infinity"
    with pytest.raises(InvalidRun, match="the baseline's output 'logits' has NaN or infinity"):
        ring.run_interleaved({"fault": "nan"}, {})


def test_a_side_that_computes_something_else_in_each_process_is_invalid(ring: Ring) -> None:
    drift = {"fault": "drift", "count": ring.folder / "count"}
    with pytest.raises(
        InvalidRun, match="baseline old computed another 'logits' in round 2 than in round 1"
    ):
        ring.run_interleaved(drift, {**drift, "work": 2})
    assert len(ring.upgrade.facts["rounds"]) == 2
    assert ring.upgrade.facts["complete"] is False


@pytest.mark.parametrize(
    ("a", "b", "named"),
    [({}, {"fault": "die"}, "candidate new"), ({"fault": "die"}, {}, "baseline old")],
)
def test_a_side_that_dies_in_mid_pair_is_named_with_its_exit_status(
    ring: Ring, a: dict[str, Any], b: dict[str, Any], named: str
) -> None:
    with pytest.raises(
        AgentError, match=f"{named}: the agent .* ended while it did 'turn': exit status 7"
    ):
        ring.run_interleaved(a, b)


def test_a_side_that_is_killed_while_it_waits_for_its_turn_is_named(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = duel._turns

    def kill(plan: InterleavePlan, pair: AgentPair, *rest: Any) -> Any:
        pair.b.agent.process.kill()
        return turns(plan, pair, *rest)

    monkeypatch.setattr(duel, "_turns", kill)
    with pytest.raises(
        AgentError, match="candidate new: the agent .* ended while it did 'turn': killed by SIGKILL"
    ):
        ring.run_interleaved({}, {"work": 2})


def test_a_side_that_does_not_load_is_named_with_what_the_framework_said(ring: Ring) -> None:
    with pytest.raises(
        AgentError,
        match="candidate new: 'load' raised ValueError: an operator that this version lacks",
    ):
        ring.run_interleaved({}, {"fault": "load"})


def test_a_side_on_another_device_or_with_other_threads_is_invalid(ring: Ring) -> None:
    with pytest.raises(InvalidRun, match="candidate new: asked for cpu, labour runs on cuda:0"):
        ring.run_interleaved({}, {"fault": "device"})
    with pytest.raises(
        InvalidRun,
        match="the baseline runs with threads of its own choice and the candidate with 7",
    ):
        ring.run_interleaved({}, {"fault": "threads"})


def test_without_the_kernels_count_of_waits_cpu_time_is_the_clock_and_asking_for_it_says_why_not(
    ring: Ring,
) -> None:
    slower = ring.run_interleaved({}, {"fault": "deaf", "work": 8})
    assert slower.facts["clock"] == "cpu"
    assert slower.verdict is Verdict.REGRESSED
    assert "wait_b" not in ring.kept["pairs-0.npz"]
    with pytest.raises(
        InvalidRun,
        match=r"--mlms-clock adj .* isn't there: the kernel doesn't count .* one of cpu, wall",
    ):
        ring.run_interleaved({}, {"fault": "deaf"}, clock="adj")
    with pytest.raises(InvalidRun, match="--mlms-clock device"):
        ring.run_interleaved({}, {"work": 2}, clock="device")


def test_a_budget_that_is_too_small_is_inconclusive_and_says_what_it_takes(ring: Ring) -> None:
    short = ring.run_interleaved({}, {"work": 8}, budget=0.01)
    assert short.verdict is Verdict.INCONCLUSIVE
    assert len(short.facts["rounds"]) == 1
    assert "INCONCLUSIVE" in ring.text()
    assert "try: --mlms-budget (120 s was too little for 2 rounds)" in ring.text()


def test_a_device_that_somebody_takes_in_mid_item_makes_it_invalid_and_keeps_what_there_was(
    ring: Ring,
) -> None:
    seen = iter([[], ["other processes were on it: 77"]])
    ring.look = lambda pair: next(seen)
    with pytest.raises(InvalidRun, match="can't be trusted; other processes were on it: 77"):
        ring.run_interleaved({}, {"work": 8})
    assert len(ring.upgrade.facts["rounds"]) == 2
    assert set(ring.kept) == {"pairs-0.npz", "pairs-1.npz"}


def test_a_slow_model_ends_in_the_neighbourhood_of_its_budget(ring: Ring) -> None:
    ring.examined = False
    ring.run_interleaved(
        {"sleep": 0.2, "clock": "real"}, {"sleep": 0.2, "clock": "real", "work": 2}, budget=8
    )
    one = ring.upgrade.facts["rounds"][0]
    assert 6 <= one["pairs"] < 40
    assert (one["calls"], one["skipped"]) == (1, 0)
    assert one["warmup_pairs"] <= 16


def test_two_names_for_the_same_software_are_an_error(ring: Ring) -> None:
    with pytest.raises(
        MlmsError, match="both sides are the same: old and new start the same interpreter"
    ):
        ring.run_interleaved({}, {})


def test_a_candidate_that_hoards_memory_is_found(ring: Ring) -> None:
    ring.run_interleaved({}, {"hoard": 400})
    assert ring.of("peak_memory").verdict is Verdict.REGRESSED
    assert ring.upgrade.verdict is Verdict.REGRESSED


def test_a_candidate_that_is_slow_to_load_is_found(ring: Ring) -> None:
    ring.gates = ("latency", "load_time")
    ring.run_interleaved({}, {"slow": 1.5}, load_time=0.5)
    assert ring.of("load_time").verdict is Verdict.REGRESSED


def test_where_the_predictor_tells_the_time_on_the_device_that_is_the_clock(ring: Ring) -> None:
    upgrade = ring.run_interleaved({"events": 0.001}, {"events": 0.002}, device="cuda:0")
    assert upgrade.facts["clock"] == "device"
    assert ring.of("latency").ratio == pytest.approx(2)
    assert upgrade.verdict is Verdict.REGRESSED
    assert (ring.kept["pairs-0.npz"]["device_b"] == 0.002).all()


def test_a_predictor_without_layers_is_named_in_their_place(ring: Ring) -> None:
    ring.run_interleaved({"fault": "untold"}, {"fault": "untold", "work": 8})
    assert ring.upgrade.verdict is Verdict.REGRESSED
    assert (
        "no layer times: baseline old: 'profile' raised NotImplementedError: this version tells no layers"
        in ring.text()
    )


def test_a_profiler_that_ends_the_process_does_not_hide_that_the_item_regressed(ring: Ring) -> None:
    ring.run_interleaved({"fault": "profiler"}, {"fault": "profiler", "work": 8})
    assert ring.upgrade.verdict is Verdict.REGRESSED
    assert "no layer times: baseline old: the agent" in ring.text()
    assert "ended while it did 'profile': exit status 9" in ring.text()


def test_a_round_is_in_the_record_before_anything_is_computed_from_it(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("pytest_mlms.upgrade.run.figures_of", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ring.run_interleaved({}, {"work": 2})
    (one,) = ring.upgrade.facts["rounds"]
    assert one["pairs"] >= 40
    assert len(ring.kept["pairs-0.npz"]["wall_a"]) == one["pairs"]
    assert ring.upgrade.facts["complete"] is False


def test_the_seed_draws_the_same_order_of_everything_again(ring: Ring) -> None:
    drawn = []
    for _ in range(2):
        ring.run_interleaved({"work": 8}, {"work": 1})
        first = ring.upgrade.facts["rounds"][0]
        drawn.append((first["started_first"], first["cores"]))
    assert drawn[0] == drawn[1]


def test_what_is_kept_is_plain(ring: Ring) -> None:
    import json

    upgrade = ring.run_interleaved({"work": 8}, {"work": 1})
    again = json.loads(json.dumps(upgrade.facts, allow_nan=False))
    assert again["rounds"][0]["sides"]["a"]["versions"] == {"labour": "1.0"}
    assert dataclasses.asdict(ring.of("latency"))["quantity"] == "latency"


def wait_until(condition: Callable[[], bool], seconds: float = 600) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


OPEN = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.upgrade.test_run import Ring
ring = Ring(Path(sys.argv[2]))
import pytest_mlms.upgrade.interleave as duel
duel._turns = lambda duel, pair, *_: (print(pair.a.agent.process.pid, pair.b.agent.process.pid, flush=True), time.sleep(3600))
ring.run_interleaved({"fault": "child"}, {"fault": "child", "work": 2})
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="processes are stopped on Linux only"
)
def test_stopped_agents_and_what_they_started_end_with_a_pytest_that_is_killed(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", OPEN, str(ROOT), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        agents = [psutil.Process(int(pid)) for pid in run.stdout.readline().split()]
        pids = [process.pid for agent in agents for process in (agent, *agent.children())]
        assert len(pids) == 4
        assert wait_until(
            lambda: all(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in pids)
        )
        run.send_signal(signal.SIGKILL)
    assert wait_until(lambda: all(map(gone, pids)))
