"""ci/gpu: its steps and their facts without a GPU, the page, and the wheels that it carries."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from tests.support.driver import H200, Driver
from tests.support.project import DIGITS, ROOT


@pytest.fixture
def ci(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules of ci/gpu by name."""
    monkeypatch.syspath_prepend(ROOT / "ci")
    names = ("bundle", "facts", "gates", "kernels", "memory", "page", "power")
    found = {name: importlib.import_module(f"gpu_steps.{name}") for name in names}
    return SimpleNamespace(gpu=importlib.import_module("gpu"), **found)


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(ROOT / "ci" / "gpu"), sys.executable, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def kept(ci: Any, folder: Path) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = ci.facts.read_facts(folder / "steps.jsonl")
    return facts


def test_without_a_gpu_steps_tell_what_they_can_and_which_need_one(ci: Any, tmp_path: Path) -> None:
    done = run(
        "--device=cpu", f"--out={tmp_path}", "--only", "machine", "kernels", "path tensorflow"
    )
    facts = kept(ci, tmp_path)
    assert done.returncode == 0, done.stderr
    assert [fact["step"] for fact in facts if "card" in fact] == ["machine"]
    reasons = {fact["step"]: fact["not_run"] for fact in facts if "not_run" in fact}
    assert reasons["kernels"] == "it needs a GPU"
    assert "tensorflow" in reasons["path tensorflow, SavedModel"]
    assert "| kernels | not run: it needs a GPU |" in done.stdout


def test_a_step_that_is_not_there_is_refused() -> None:
    done = run("--only", "paths")
    assert done.returncode == 2
    assert "no step paths; --list has them" in done.stderr


def test_steps_are_left_out_when_the_time_is_over(ci: Any, tmp_path: Path) -> None:
    run("--device=cpu", f"--out={tmp_path}", "--only", "machine", "--seconds=3")
    (fact,) = kept(ci, tmp_path)
    assert fact["not_run"] == "3 s were left"


def test_a_step_that_hangs_is_ended_with_its_children(ci: Any) -> None:
    command = ["sh", "-c", "sleep 600 & echo $!; wait"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout
    child = int(process.stdout.readline())
    assert ci.gpu.end_of(process, 0.1) == "time-out"
    end = time.monotonic() + 60
    while Path(f"/proc/{child}").exists() and " Z " not in stat_of(child):
        assert time.monotonic() < end
        time.sleep(0.01)


def stat_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return " Z "


def test_a_step_that_fails_is_told_with_its_status(
    ci: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = ci.gpu.Step("wrong", "nothing.there", 60, True)
    options = SimpleNamespace(out=tmp_path, device="cpu")
    ci.gpu.run_step(wrong, options, 60)
    failed = kept(ci, tmp_path)[-1]["failed"]
    assert failed == "it ended with 1; see log.txt"
    assert "wrong" in (tmp_path / "log.txt").read_text()


def test_wheels_that_the_interpreter_does_not_take_cost_no_other_step(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')  # without this project
    python.chmod(0o755)
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "gpu").write_text((ROOT / "ci" / "gpu").read_text())
    (tmp_path / "ci" / "gpu.py").write_text("print('steps')")
    (tmp_path / ".lease").mkdir()
    (tmp_path / ".lease" / "another-1.0-cp27-none-any.whl").touch()
    command = ["bash", str(tmp_path / "ci" / "gpu"), str(python)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "steps\n")
    assert "the wheels in .lease are for another Python" in done.stderr


def test_a_step_whose_packages_are_missing_tells_so(ci: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-B", str(ROOT / "ci" / "gpu.py"), "--step", "machine"]
    subprocess.run([*command, "--out", str(tmp_path)], check=True)
    (fact,) = kept(ci, tmp_path)
    assert "No module named" in fact["not_run"]


def test_a_name_that_our_own_modules_lack_is_a_failure(
    ci: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = importlib.import_module("gpu_steps.machine")

    def describe(*arguments: Any) -> None:
        from pytest_mlms import nothing_there  # type: ignore[attr-defined]  # noqa: F401

    monkeypatch.setattr(machine, "describe", describe)
    options = SimpleNamespace(out=tmp_path, step="machine", device="cpu")
    with pytest.raises(ImportError, match="nothing_there"):
        ci.gpu.run_here(options)


def test_stacks_of_the_gates_have_the_packages_that_were_carried(
    ci: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/carried")
    ci.gates.write_project(tmp_path, {}, {}, "cuda:0", ("x", "y", 1), 21)
    stacks = yaml.safe_load((tmp_path / "stacks.yaml").read_text())
    assert [stacks[name]["env"]["PYTHONPATH"] for name in "ab"] == ["/carried", "/carried"]
    assert [stacks[name]["env"]["MLMS_LAYERS"] for name in "ab"] == ["20", "21"]


FIGURES = [
    {"step": "machine", "at": 1.8e9, "card": "H200", "driver": "580", "commit": "abc"},
    {"step": "energy", "at": 1, "what": "a|b", "shown": "+4 %", "bound": "≤ 3 %", "holds": False},
    {"step": "clocks", "at": 2, "what": "clock", "shown": "1 MHz", "bound": "", "holds": None},
    {"step": "ncu", "at": 3, "not_run": "it needs a GPU"},
    {"step": "both", "at": 4, "failed": "it ended with time-out; see log.txt"},
]


def test_the_page_gets_the_figures_with_card_and_commit(ci: Any, tmp_path: Path) -> None:
    file, page = tmp_path / "steps.jsonl", tmp_path / "gpu.md"
    lines = [json.dumps(figure) for figure in FIGURES]
    file.write_text("\n".join(lines) + '\n{"step": "cut o')
    page.write_text("before\n<!-- figures -->\nold\n<!-- end of figures -->\nafter\n")
    ci.page.write_page(ci.facts.read_facts(file), page)
    assert (
        page.read_text()
        == """\
before
<!-- figures -->
Measured by `ci/gpu` on 2027-01-15 (H200, driver 580, commit abc).

| step | what | figure | bound | within |
|---|---|---:|---|---|
| energy | a\\|b | +4 % | ≤ 3 % | **no** |
| clocks | clock | 1 MHz |  |  |
| ncu | not run: it needs a GPU |  |  |  |
| both | it ended with time-out; see log.txt |  |  | **no** |
<!-- end of figures -->
after
"""
    )


def test_the_page_of_the_docs_has_a_place_for_the_figures(ci: Any, tmp_path: Path) -> None:
    page = tmp_path / "gpu.md"
    page.write_text((ROOT / "docs" / "gpu.md").read_text())
    ci.page.write_page(FIGURES, page)
    assert "(H200, driver 580, commit abc)" in page.read_text()


def held(ci: Any, folder: Path) -> dict[str, Any]:
    return {fact["what"]: fact["holds"] for fact in kept(ci, folder) if "what" in fact}


@pytest.mark.parametrize(("late", "holds"), [(3.0, True), (15.0, False)])
def test_times_of_kernels_by_events_are_held_against_their_length(
    ci: Any, tmp_path: Path, late: float, holds: bool
) -> None:
    facts = ci.facts.Facts(tmp_path / "steps.jsonl", "kernels")

    def time_of(rows: int, columns: int) -> Any:
        us = 10.0 * rows * columns
        return ci.kernels.Times(us + 20, us + 40, us + late)

    ci.kernels.measure(facts, time_of, exact=True)
    found = held(ci, tmp_path)
    assert found["a kernel of 1 ms, launched ahead"] is holds
    assert found["a kernel of 1 ms, as turns time it"] is None


@pytest.mark.parametrize(
    ("little", "much", "holds"),
    [
        ({"own": 2}, {"own": 4096}, [None, True]),
        ({"own": 2, "NVML": 502}, {"own": 4096, "NVML": 4596}, [True, True]),
        ({"own": 2, "NVML": 502}, {"own": 4096, "NVML": 4696}, [True, False]),
        ({"own": 2, "NVML": 502}, {"own": 3996, "NVML": 4496}, [False, True]),
        ({}, {}, [False]),
    ],
)
def test_memory_by_nvml_is_held_against_the_framework_s_own_counter(
    ci: Any, tmp_path: Path, little: dict[str, int], much: dict[str, int], holds: list[bool]
) -> None:
    facts = ci.facts.Facts(tmp_path / "steps.jsonl", "memory")
    found = [{name: size << 20 for name, size in each.items()} for each in (little, much)]
    ci.memory.compare(facts, *found)
    assert list(held(ci, tmp_path).values()) == holds


@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (0.96, False)])
def test_energy_is_held_against_the_integral_of_power(
    ci: Any, tmp_path: Path, factor: float, holds: bool
) -> None:
    facts = ci.facts.Facts(tmp_path / "steps.jsonl", "energy")
    readings = [
        ci.power.Reading(at / 100, factor * 700 * (at // 10) / 10, 700, 650) for at in range(401)
    ]
    ci.power.compare(facts, readings)
    assert held(ci, tmp_path)["energy beside the integral of power"] is holds
    period = [
        fact["shown"] for fact in kept(ci, tmp_path) if fact.get("what", "").startswith("period")
    ]
    assert period == ["100 ms"]


def test_the_driver_s_answers_are_told_call_by_call(
    ci: Any, tmp_path: Path, driver: Driver
) -> None:
    driver.says(H200)
    run(f"--out={tmp_path}", "--only", "machine")
    facts = kept(ci, tmp_path)
    assert next(fact["card"] for fact in facts if "card" in fact) == "NVIDIA H200"
    answers = {fact["nvml"]: fact for fact in facts if "nvml" in fact}
    assert answers["uuid"]["answer"] == "GPU-aa00"
    assert answers["instant power"]["answer"] == 430
    assert answers["ECC"]["refused"]


def test_clocks_under_load_are_told_with_what_holds_them_down(
    ci: Any, tmp_path: Path, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.says(H200, "reasons 0x40")
    monkeypatch.setattr(ci.power, "products", lambda *shape: None)
    monkeypatch.setattr(ci.power, "_under_load", lambda work, seconds: iter([1.5, 3.0, 4.5]))
    monkeypatch.setattr(ci.power, "AFTER", (0,))
    ci.power.clocks(ci.facts.Facts(tmp_path / "steps.jsonl", "clocks"), "cuda:0")
    facts = kept(ci, tmp_path)
    problems = [fact["problems"] for fact in facts if "problems" in fact]
    assert problems == 2 * [["throttled: it was too hot (hardware)"]]
    shown = [fact["shown"] for fact in facts if "what" in fact]
    assert shown == 2 * ["GPU 1980 MHz, 412 W, 47 °C"]


@pytest.mark.parametrize(("watts", "holds"), [(430, True), (412, False)])
def test_energy_is_held_against_power_as_the_driver_tells_both(
    ci: Any, tmp_path: Path, driver: Driver, watts: int, holds: bool
) -> None:
    driver.says(H200, f"energy 0+{watts}000@0.02")
    with ci.power.sampled("cuda:0") as readings:
        time.sleep(1)
    ci.power.compare(ci.facts.Facts(tmp_path / "steps.jsonl", "energy"), readings)
    assert held(ci, tmp_path)["energy beside the integral of power"] is holds


@pytest.mark.slow
def test_the_gate_judges_a_planted_upgrade(
    ci: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = tmp_path / "digits_cnn.onnx"
    graph.write_bytes((DIGITS / graph.name).read_bytes())
    model = {"framework": "onnxruntime"}
    ci.gates.write_project(tmp_path, model, {"graph": graph}, "cpu", ("image", "logits", 8))
    facts = ci.facts.Facts(tmp_path / "steps.jsonl", "same")
    judged = ci.gates.judge(facts, tmp_path, 20)
    assert judged.verdict in ("PASSED", "INCONCLUSIVE", "REGRESSED", "IMPROVED", "INVALID")
    assert judged.ratio
    assert kept(ci, tmp_path)[0]["verdict"] == judged.verdict


def resolved(ci: Any, **packages: tuple[str, list[str]]) -> Any:
    versions = {name: Version(version) for name, (version, _) in packages.items()}
    needs = {name: list(map(Requirement, lines)) for name, (_, lines) in packages.items()}
    return ci.bundle.Resolved(versions, needs)


@pytest.mark.parametrize(
    ("listed", "wanted", "carried"),
    [
        ("torch==2.11", "numpy>=1.24", ["numpy==2.5"]),  # numpy isn't among what it surely has
        ("numpy==2.5", "numpy>=1.24", []),
        ("numpy>=1.20", "numpy>=1.24", ["numpy==2.5"]),  # it may have one that is too old
        ("numpy>=1.24", "numpy>=1.24", []),
        ("numpy>=1.24", "numpy>=1.24,<2", ["numpy==2.5"]),
        ("pytest", "pytest>=8", ["pluggy==1.7", "pytest==9.2"]),
        ("torch==2.11", "sympy>=1.13", []),  # as that version of torch needs it
        ("torch>=2.10", "sympy>=1.13", ["sympy==1.14"]),  # what an older one needs isn't known
    ],
)
def test_what_a_machine_may_lack_is_carried_with_what_it_needs(
    ci: Any, listed: str, wanted: str, carried: list[str]
) -> None:
    found = resolved(
        ci,
        torch=("2.11", ["sympy>=1.13"]),
        sympy=("1.14", []),
        numpy=("2.5", []),
        pytest=("9.2", ["pluggy>=1.6"]),
        pluggy=("1.7", []),
    )
    machine = ci.bundle.Machine.of(found, [Requirement(listed)])
    assert ci.bundle.divide(found, machine, [Requirement(wanted)])[0] == carried


def test_the_machine_s_packages_and_ours_are_requirements_for_its_python(ci: Any) -> None:
    ours = {requirement.name for requirement in ci.bundle.project_requirements()}
    assert {"pydantic", "pytest-xdist", "nvidia-ml-py"} <= ours
    assert "tomli" not in ours  # of older Pythons
    assert "torch" in {requirement.name for requirement in ci.bundle.machine_requirements()}
