"""Upgrades of the labour predictor in real agents, whose clocks are those of their work."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_mlms.core.errors import AgentError, InvalidRun, MlmsError
from pytest_mlms.core.records import Verdict
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.decide.upgrade.interleave import RoundRunner
from pytest_mlms.decide.upgrade.rounds import CLOCKS
from pytest_mlms.warning_types import MlmsKilled
from tests.support.labour import LabourUpgrade
from tests.support.project import ROOT


@contextmanager
def leaving_no_agent(folder: Path) -> Iterator[LabourUpgrade]:
    made = LabourUpgrade(folder)
    yield made
    for pair in made.pairs:
        assert not pair.a.agent.alive
        assert not pair.b.agent.alive


@pytest.fixture
def upgrade(tmp_path: Path) -> Iterator[LabourUpgrade]:
    with leaving_no_agent(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def equal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabourUpgrade]:
    """An upgrade of equal stacks, which tests only read."""
    with leaving_no_agent(tmp_path_factory.mktemp("equal")) as made:
        made.run({}, {"version": 2})
        yield made


@pytest.fixture(scope="module")
def faster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabourUpgrade]:
    """An upgrade to a faster stack, which tests only read."""
    with leaving_no_agent(tmp_path_factory.mktemp("faster")) as made:
        made.run({"work": 8}, {"work": 1})
        yield made


def test_equal_stacks_pass(equal: LabourUpgrade) -> None:
    assert equal.result.verdict is Verdict.PASSED


def test_every_round_has_processes_of_its_own(equal: LabourUpgrade) -> None:
    rounds = equal.result.rounds
    recorded = set()
    for record in rounds:
        recorded |= {side.pid for side in record.sides.values()}
    started = set()
    for pair in equal.pairs:
        started |= pair.pids
    assert recorded == started
    assert len(recorded) == 2 * len(rounds)


def test_a_slower_stack_regresses_and_the_layer_that_changed_is_named(
    upgrade: LabourUpgrade,
) -> None:
    result = upgrade.run({"work": 1}, {"work": 8})
    assert result.verdict is Verdict.REGRESSED
    assert upgrade.of("latency").ratio == pytest.approx(8)
    assert upgrade.of("throughput").ratio == pytest.approx(1 / 8)
    assert upgrade.of("agreement").verdict is Verdict.PASSED
    changed = result.layers[0]
    assert (changed.name, changed.type) == ("extra", "MatMul")
    assert changed.share == pytest.approx(1)
    first, second, *_ = upgrade.text.splitlines()
    assert first.startswith("latency ×8.000 (8.000 to 8.000), tolerance 50 %, and ")
    assert second.startswith("new (B) against old (A): REGRESSED in latency, ")
    assert "extra (MatMul)" in upgrade.text
    assert "try: if this is intended, allow it: --mlms-tolerance" in upgrade.text


def test_a_faster_stack_is_improved_and_every_pair_is_kept(faster: LabourUpgrade) -> None:
    result = faster.result
    assert faster.of("latency").ratio == pytest.approx(1 / 8)
    assert result.verdict is Verdict.IMPROVED
    assert len(result.rounds) == 3
    for index, record in enumerate(result.rounds):
        raw = faster.sink.arrays[f"pairs-{index}.npz"]
        assert raw["wall_a"].shape == (record.pairs, record.calls)
        assert raw["wall_b"].shape == (record.pairs, record.calls)
        assert raw["b_first"].shape == (record.pairs,)
        assert record.pairs >= 30
        assert 0 < raw["b_first"].mean() < 1
        assert len(record.cores) <= 1
    assert faster.text.splitlines()[0] == "new (B) against old (A): IMPROVED"


def test_a_stack_whose_first_calls_are_slow_regresses_in_its_warm_up(
    upgrade: LabourUpgrade,
) -> None:
    upgrade.run({}, {"early": 0.2})
    assert upgrade.of("latency").verdict is Verdict.PASSED
    assert upgrade.of("warm_up_time").verdict is Verdict.REGRESSED
    first, second, *_ = upgrade.text.splitlines()
    assert first.startswith("warm_up_time ×")
    assert second.startswith("new (B) against old (A): REGRESSED in warm_up_time")


def test_a_stack_that_gets_slower_after_many_calls_regresses_in_these(
    upgrade: LabourUpgrade,
) -> None:
    upgrade.run({"unit": 1e-4}, {"unit": 1e-4, "late": 1500})
    assert upgrade.of("latency").verdict is Verdict.PASSED
    assert upgrade.of("late_latency").ratio == pytest.approx(3)
    assert upgrade.of("late_latency").verdict is Verdict.REGRESSED


def test_late_calls_of_a_stack_that_stays_as_it_is_are_no_quantity(upgrade: LabourUpgrade) -> None:
    result = upgrade.run({"unit": 1e-4}, {"unit": 2e-4})
    assert "late_latency" not in {compared.quantity for compared in result.comparisons}


def test_late_calls_that_are_a_gate_are_measured_where_they_are_as_before(
    upgrade: LabourUpgrade,
) -> None:
    upgrade.gates = ("latency", "late_latency")
    result = upgrade.run({"unit": 1e-4}, {"unit": 1e-4, "version": 2})
    assert upgrade.of("late_latency").replicates == len(result.rounds)
    assert result.verdict is Verdict.PASSED


def test_every_call_has_its_wait_and_its_cpu_time_by_the_clocks_of_the_machine(
    upgrade: LabourUpgrade,
) -> None:
    upgrade.budget = 2.0
    result = upgrade.run({"clock": "real"}, {"clock": "real", "work": 2})
    assert result.clock in CLOCKS
    raw = upgrade.sink.arrays["pairs-0.npz"]
    for side in "ab":
        assert (raw[f"wall_{side}"] > 0).all()
        assert (raw[f"cpu_{side}"] > 0).all()
        if "wait_a" in raw:
            assert (raw[f"wait_{side}"] <= raw[f"wall_{side}"]).all()
    assert upgrade.of("latency").floor > 0


def test_a_candidate_that_is_faster_because_it_is_wrong_regresses_after_one_round(
    upgrade: LabourUpgrade,
) -> None:
    result = upgrade.run({"work": 8}, {"work": 1, "fault": "wrong"})
    assert result.verdict is Verdict.REGRESSED
    assert len(result.rounds) == 1
    assert "REGRESSED, B computes something else" in upgrade.text


def test_a_candidate_that_gives_nan_regresses(upgrade: LabourUpgrade) -> None:
    assert upgrade.run({}, {"fault": "nan"}).verdict is Verdict.REGRESSED
    agreement = upgrade.of("agreement")
    assert agreement.lacking.startswith("candidate new: output 'logits' has NaN or infinity for 3")
    assert (
        "infinitely more than what is allowed on 300 of 600 inputs (worst: row " in agreement.told
    )


def test_outputs_that_are_wrong_for_few_inputs_regress_and_these_are_named(
    upgrade: LabourUpgrade,
) -> None:
    assert upgrade.run({}, {"fault": "few"}).verdict is Verdict.REGRESSED
    told = upgrade.of("agreement").told
    assert re.search(r"on \d+ of 600 inputs \(worst: row \d+, row \d+, row \d+\)", told)
    assert len(upgrade.result.rounds) == 1


def test_a_fault_on_every_7th_call_is_named_with_its_rate(upgrade: LabourUpgrade) -> None:
    assert upgrade.run({}, {"fault": "seventh"}).verdict is Verdict.REGRESSED
    found = upgrade.result.outputs
    assert found is not None
    calls, differing = found.repeated["b"]
    assert calls >= 20
    assert 0 < differing < calls / 3
    assert upgrade.of("agreement").told.startswith(f"B gives something else on {differing} of ")
    assert found.repeated["a"][1] == 0


def test_outputs_are_compared_at_the_frameworks_own_number_of_threads_too(
    upgrade: LabourUpgrade,
) -> None:
    assert upgrade.run({"threads": 1}, {"threads": 1, "fault": "race"}).verdict is Verdict.PASSED
    upgrade.at_own_threads = True
    assert upgrade.run({"threads": 1}, {"threads": 1, "fault": "race"}).verdict is Verdict.REGRESSED
    told = upgrade.of("agreement").told
    assert told.startswith("at the frameworks' own number of threads, outputs differ by up to ")


def test_a_baseline_that_gives_nan_is_invalid(upgrade: LabourUpgrade) -> None:
    with pytest.raises(InvalidRun, match="baseline old: output 'logits' has NaN or infinity"):
        upgrade.run({"fault": "nan"}, {})


def test_a_side_whose_outputs_differ_between_processes_is_invalid(
    upgrade: LabourUpgrade,
) -> None:
    drift = {"fault": "drift", "count": upgrade.folder / "count"}
    message = (
        "baseline old gave other outputs in round 2 than in round 1 for the same inputs: 'logits'"
    )
    with pytest.raises(InvalidRun, match=message):
        upgrade.run(drift, {**drift, "work": 2})
    assert len(upgrade.result.rounds) == 2
    assert upgrade.result.complete is False


@pytest.mark.parametrize(
    ("a", "b", "label"),
    [({}, {"fault": "die"}, "candidate new"), ({"fault": "die"}, {}, "baseline old")],
)
def test_a_side_that_dies_during_a_turn_is_named_with_its_exit_status(
    upgrade: LabourUpgrade, a: dict[str, Any], b: dict[str, Any], label: str
) -> None:
    message = f"{label}: the agent .* ended while it did 'turn': exit status 7"
    with pytest.raises(AgentError, match=message):
        upgrade.run(a, b)


def test_a_side_that_is_killed_while_it_waits_for_its_turn_is_named(
    upgrade: LabourUpgrade, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_turns = RoundRunner._run_turns

    def kill_first(runner: RoundRunner, turn_plan: Any) -> Any:
        runner._pair.b.agent.process.kill()
        return run_turns(runner, turn_plan)

    monkeypatch.setattr(RoundRunner, "_run_turns", kill_first)
    message = "candidate new: the agent .* ended while it did 'turn': killed by SIGKILL"
    with pytest.warns(MlmsKilled, match=message), pytest.raises(AgentError, match=message):
        upgrade.run({}, {"work": 2})


def test_a_candidate_that_is_killed_from_outside_once_is_measured_again(
    upgrade: LabourUpgrade, tmp_path: Path
) -> None:
    shot = {"fault": "shot", "count": str(tmp_path / "count")}
    with pytest.warns(MlmsKilled, match="killed by SIGKILL[^Z]*it was started once more"):
        result = upgrade.run({}, shot)
    assert result.verdict is Verdict.PASSED
    assert len(upgrade.pairs) == len(result.rounds) + 1


def test_outputs_are_compared_whole_again_where_the_candidate_was_killed_in_between(
    upgrade: LabourUpgrade,
) -> None:
    killed: list[int] = []

    def kill_once() -> list[str]:
        if not killed:
            killed.append(upgrade.pairs[-1].b.agent.pid)
            os.kill(killed[0], signal.SIGKILL)
        return []

    upgrade.check_device = kill_once
    with pytest.warns(MlmsKilled):
        result = upgrade.run({}, {"version": "2.0"})
    assert result.verdict is Verdict.PASSED
    assert "600 of 600 inputs" in upgrade.of("agreement").told


def test_a_side_that_does_not_load_is_named_with_the_error_of_the_framework(
    upgrade: LabourUpgrade,
) -> None:
    message = "candidate new: 'load' raised ValueError: an operator that this version lacks"
    with pytest.raises(AgentError, match=message):
        upgrade.run({}, {"fault": "load"})


def test_a_side_on_another_device_is_invalid(upgrade: LabourUpgrade) -> None:
    with pytest.raises(InvalidRun, match="candidate new: asked for cpu, labour runs on cuda:0"):
        upgrade.run({}, {"fault": "device"})


def test_sides_with_different_threads_are_invalid(upgrade: LabourUpgrade) -> None:
    message = "the baseline runs with threads of its own choice and the candidate with 7"
    with pytest.raises(InvalidRun, match=message):
        upgrade.run({}, {"fault": "threads"})


def test_cpu_time_is_the_clock_where_the_kernel_does_not_count_waits(
    upgrade: LabourUpgrade,
) -> None:
    result = upgrade.run({}, {"fault": "deaf", "work": 8})
    assert result.clock == "cpu"
    assert result.verdict is Verdict.REGRESSED
    assert "wait_b" not in upgrade.sink.arrays["pairs-0.npz"]


def test_asking_for_a_clock_that_is_not_there_says_why_and_which_there_are(
    upgrade: LabourUpgrade,
) -> None:
    upgrade.clock = "adj"
    message = r"--mlms-clock adj .* isn't there: the kernel doesn't count .* one of cpu, wall"
    with pytest.raises(InvalidRun, match=message):
        upgrade.run({}, {"fault": "deaf"})
    upgrade.clock = "device"
    with pytest.raises(InvalidRun, match="--mlms-clock device"):
        upgrade.run({}, {"work": 2})


def test_a_budget_that_is_too_small_is_inconclusive_and_says_what_to_raise(
    upgrade: LabourUpgrade,
) -> None:
    upgrade.budget = 0.01
    result = upgrade.run({}, {"work": 8})
    assert result.verdict is Verdict.INCONCLUSIVE
    assert len(result.rounds) == 1
    assert "INCONCLUSIVE" in upgrade.text
    assert "try: --mlms-budget (120 s was too little for 3 rounds)" in upgrade.text


def test_a_device_that_is_taken_between_rounds_is_invalid_and_its_rounds_are_kept(
    upgrade: LabourUpgrade,
) -> None:
    reasons = iter([[], ["other processes were on it: 77"]])
    upgrade.check_device = lambda: next(reasons)
    with pytest.raises(InvalidRun, match="can't be trusted; other processes were on it: 77"):
        upgrade.run({}, {"work": 8})
    assert len(upgrade.result.rounds) == 2
    assert set(upgrade.sink.arrays) == {"pairs-0.npz", "pairs-1.npz"}


def test_a_slow_model_gets_fewer_pairs(upgrade: LabourUpgrade) -> None:
    upgrade.check_accuracy = False
    upgrade.budget = 8
    slow = {"sleep": 0.2, "clock": "real"}
    result = upgrade.run(slow, {**slow, "work": 2})
    record = result.rounds[0]
    assert 3 <= record.pairs < 30
    assert (record.calls, record.skipped) == (1, 0)
    assert record.warmup_pairs <= 16


def test_two_names_for_the_same_software_are_an_error(upgrade: LabourUpgrade) -> None:
    message = "both sides are the same: old and new start the same interpreter"
    with pytest.raises(MlmsError, match=message):
        upgrade.run({}, {})


def test_a_candidate_that_takes_more_memory_regresses(upgrade: LabourUpgrade) -> None:
    result = upgrade.run({}, {"hoard": 400})
    assert upgrade.of("peak_memory").verdict is Verdict.REGRESSED
    assert result.verdict is Verdict.REGRESSED


def test_a_candidate_that_takes_more_of_the_gpu_regresses_though_the_host_has_no_more(
    upgrade: LabourUpgrade,
) -> None:
    upgrade.device = "cuda:0"
    result = upgrade.run({"events": 0.001, "gpu": 200}, {"events": 0.001, "gpu": 400})
    assert [one.quantity for one in result.regressed] == ["device_memory"]
    memory = upgrade.of("device_memory")
    assert (memory.a, memory.b, memory.gate) == (200 << 20, 400 << 20, False)
    side = upgrade.result.rounds[0].sides["b"]
    assert to_plain(side)["device_memory"]["counters"] == {"labour.peak": 400 << 20}


def test_memory_of_a_gpu_by_unlike_counters_is_not_compared_but_named(
    upgrade: LabourUpgrade,
) -> None:
    upgrade.device = "cuda:0"
    common = {"events": 0.001, "gpu": 200}
    result = upgrade.run(common, {**common, "gpu": 800, "counter": "labour.newer"})
    memory = upgrade.of("device_memory")
    assert (memory.verdict, memory.gate) == (Verdict.INCONCLUSIVE, False)
    assert memory.lacking == "not measured: A tells it by labour.peak, B tells it by labour.newer"
    assert f"INCONCLUSIVE device_memory: {memory.lacking}" in upgrade.text
    assert result.verdict is Verdict.PASSED


def test_a_candidate_that_is_slow_to_load_regresses(upgrade: LabourUpgrade) -> None:
    upgrade.gates = ("latency", "load_time")
    upgrade.tolerances["load_time"] = 0.5
    upgrade.run({}, {"slow": 1.5})
    assert upgrade.of("load_time").verdict is Verdict.REGRESSED


def test_time_on_the_device_is_the_clock_where_the_predictor_reports_it(
    upgrade: LabourUpgrade,
) -> None:
    upgrade.device = "cuda:0"
    result = upgrade.run({"events": 0.001}, {"events": 0.002})
    assert result.clock == "device"
    assert upgrade.of("latency").ratio == pytest.approx(2)
    assert result.verdict is Verdict.REGRESSED
    assert (upgrade.sink.arrays["pairs-0.npz"]["device_b"] == 0.002).all()


def test_a_side_whose_kernels_wait_for_launches_is_named_with_both_times(
    upgrade: LabourUpgrade,
) -> None:
    upgrade.device = "cuda:0"
    upgrade.run({"events": 0.001, "ahead": 0.0002}, {"events": 0.001, "ahead": 0.00095})
    assert "A is host-bound (kernels take 200 µs of 1.00 ms between its events)" in upgrade.text
    assert "B is host-bound" not in upgrade.text
    sides = upgrade.result.rounds[0].sides
    assert to_plain(sides["b"])["event_times"] == [0.001, 0.00095]


def test_a_predictor_without_layers_is_named_in_their_place(upgrade: LabourUpgrade) -> None:
    result = upgrade.run({"fault": "untold"}, {"fault": "untold", "work": 8})
    assert result.verdict is Verdict.REGRESSED
    reason = "'profile' raised NotImplementedError: this version tells no layers"
    assert f"no layer times: baseline old: {reason}" in upgrade.text


def test_a_profiler_that_ends_the_process_does_not_hide_the_regression(
    upgrade: LabourUpgrade,
) -> None:
    result = upgrade.run({"fault": "profiler"}, {"fault": "profiler", "work": 8})
    assert result.verdict is Verdict.REGRESSED
    assert "no layer times: baseline old: the agent" in upgrade.text
    assert "ended while it did 'profile': exit status 9" in upgrade.text


def test_a_round_is_recorded_before_anything_is_computed_from_it(
    upgrade: LabourUpgrade, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("pytest_mlms.decide.upgrade.run.figures_of", interrupt)
    with pytest.raises(KeyboardInterrupt):
        upgrade.run({}, {"work": 2})
    (record,) = upgrade.sink.fields["rounds"]
    assert record.pairs >= 30
    assert len(upgrade.sink.arrays["pairs-0.npz"]["wall_a"]) == record.pairs
    assert upgrade.sink.fields["complete"] is False


def test_a_seed_draws_the_same_order_and_cores_again(
    upgrade: LabourUpgrade, faster: LabourUpgrade
) -> None:
    again = upgrade.run({"work": 8}, {"work": 1}).rounds[0]
    record = faster.result.rounds[0]
    assert (again.started_first, again.cores) == (record.started_first, record.cores)


def test_everything_that_is_noted_has_a_form_in_json(faster: LabourUpgrade) -> None:
    text = json.dumps(to_plain(faster.sink.fields), allow_nan=False)
    line = json.loads(text)
    first = line["rounds"][0]
    assert first["sides"]["a"]["versions"] == {"labour": "1.0"}
    assert first["figures"]["latency"][4] >= 30
    assert line["comparisons"][0]["quantity"] == "agreement"
    assert line["terms"] == {
        "tolerances": {"latency": 0.5},
        "gates": ["latency"],
        "clock": None,
        "places": {},
        "rounds": {"least": 3, "most": 5},
    }
    assert line["order_effect"] is None
    assert (line["complete"], line["duel_seed"]) == (True, 7)


STOPPED = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from pytest_mlms.decide.upgrade.interleave import RoundRunner
from tests.support.labour import LabourUpgrade

def stay(runner, turn_plan):
    print(*runner._pair.pids, flush=True)
    time.sleep(900)

RoundRunner._run_turns = stay
LabourUpgrade(Path(sys.argv[2])).run({"fault": "child"}, {"fault": "child", "work": 2})
"""


def wait_until(condition: Callable[[], bool], seconds: float = 300) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def is_stopped(process: psutil.Process) -> bool:
    return bool(process.status() == psutil.STATUS_STOPPED)


def is_gone(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="processes are stopped on Linux only"
)
def test_stopped_agents_and_their_children_end_with_a_pytest_that_is_killed(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", STOPPED, str(ROOT), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        processes = []
        for pid in run.stdout.readline().split():
            agent = psutil.Process(int(pid))
            processes += [agent, *agent.children()]
        assert len(processes) == 4
        assert wait_until(lambda: all(is_stopped(process) for process in processes))
        run.send_signal(signal.SIGKILL)
    assert wait_until(lambda: all(is_gone(process) for process in processes))


LOADING = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from pytest_mlms.decide.upgrade import agents
from tests.support.labour import LabourUpgrade

load_together = agents._load_together

def tell(started, labels):
    print(*[side.agent.process.pid for side in started.values()], flush=True)
    return load_together(started, labels)

agents._load_together = tell
LabourUpgrade(Path(sys.argv[2])).run({"slow": "900"}, {"slow": "901"})
"""


def test_an_interrupt_ends_both_agents_that_load(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOADING, str(ROOT), str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout
        assert run.stderr
        processes = [psutil.Process(int(pid)) for pid in run.stdout.readline().split()]
        assert len(processes) == 2
        time.sleep(0.3)
        run.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in run.stderr.read()
    assert all(map(is_gone, processes))


def test_a_candidate_that_leaks_regresses(upgrade: LabourUpgrade) -> None:
    upgrade.check_accuracy = False
    assert upgrade.run({}, {"leak": 20_000}).verdict is Verdict.REGRESSED
    growth = upgrade.of("memory_growth")
    assert growth.a < 100
    assert growth.b == pytest.approx(20_000, rel=0.1)
    regressed = {compared.quantity for compared in upgrade.result.regressed}
    assert "memory_growth" in regressed <= {"memory_growth", "peak_memory"}


def test_a_gate_on_growth_finds_a_kilobyte_a_call_in_short_rounds(upgrade: LabourUpgrade) -> None:
    upgrade.check_accuracy = False
    upgrade.gates = ("latency", "memory_growth")
    upgrade.run({"leak": 1000}, {"leak": 2500})
    growth = upgrade.of("memory_growth")
    assert growth.verdict is Verdict.REGRESSED
    assert [growth.a, growth.b] == pytest.approx([1000, 2500], rel=0.25)


@pytest.mark.slow
def test_a_longer_import_regresses_with_the_parts_of_the_start(upgrade: LabourUpgrade) -> None:
    upgrade.check_accuracy = False
    assert upgrade.run({}, {"import": 3}).verdict is Verdict.REGRESSED
    assert [compared.quantity for compared in upgrade.result.regressed] == ["start_time"]
    (line,) = [line for line in upgrade.text.splitlines() if "(interpreter " in line]
    assert ", import " in line
