"""Tests of whole runs, with real models in real agents: measured, judged, recorded and shown."""

from __future__ import annotations

import csv
import itertools
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.support.project import Project, Ran, SharedRuns

QUANTITIES = {
    "latency_mean",
    "latency_p50",
    "latency_p90",
    "latency_p95",
    "latency_p99",
    "throughput",
    "first_inference",
    "load_time",
    "peak_memory",
    "import_memory",
    "memory_growth",
    "start_time",
}


@pytest.fixture
def small(project: Project) -> Project:
    """The digits model itself, at one batch size and in one scenario."""
    project.edit("[1, 8, 64]", "[8]")
    project.edit("[single_stream, offline]", "[offline]")
    project.set_thresholds("  top1: {min: 0.95}\n  top5: {min: 99 %}")
    return project


def run_both(project: Project) -> pytest.RunResult:
    return project.run("--mlms-processes=2")


@pytest.fixture
def measured(small: Project, shared_runs: SharedRuns) -> Ran:
    """A run of an accuracy and a performance item, which tests only read."""
    return shared_runs.of(run_both, small)


def item_of(project: Project, kind: str) -> dict[str, Any]:
    """Return the only item of a kind."""
    (item,) = [item for item in project.items() if item["kind"] == kind]
    return item


def run_folders(project: Project) -> list[Path]:
    """Return the folders of all runs."""
    found = []
    for path in (project.path / "mlms-results").iterdir():
        if path.is_dir() and not path.is_symlink():
            found.append(path)
    return found


def top1_of(item: dict[str, Any]) -> float:
    value: float = item["estimates"]["top1"]["value"]
    return value


def test_the_shipped_model_meets_its_thresholds(project: Project) -> None:
    # Limits that hold whatever else this machine does.
    project.edit("5 ms", "60 min")
    project.edit("200 /s", "0 /s")
    project.edit("256 MiB", "1000 GiB")
    result = project.run("--mlms-processes=2", "--mlms-duration=0.05")
    result.assert_outcomes(passed=7)
    items = project.items()
    assert {item["verdict"] for item in items} == {"PASSED"}
    accuracy, speed, *_ = items
    top1 = accuracy["estimates"]["top1"]
    assert top1["low"] >= 0.95
    assert top1["replicates"] == 600
    estimates = speed["estimates"]
    assert set(estimates) == QUANTITIES
    for estimate in estimates.values():
        assert 0 <= estimate["low"] <= estimate["value"] <= estimate["high"]
    assert estimates["latency_p50"]["value"] <= estimates["latency_p90"]["value"]
    assert accuracy["versions"]["onnxruntime"]
    assert accuracy["machine"]["cpu"]["model"]


def test_an_accuracy_item_keeps_probabilities_and_predictions(measured: Ran) -> None:
    measured.result.assert_outcomes(passed=2)
    results = measured.project.results
    item = item_of(measured.project, "accuracy")
    kept = np.load(results / item["artifacts"]["probabilities.npz"])
    probabilities = kept["probability"]
    assert probabilities.shape == (600, 10)
    assert np.allclose(probabilities.sum(axis=1), 1)
    right = probabilities.argmax(axis=1) == kept["label"]
    assert right.mean() == top1_of(item)
    with (results / item["artifacts"]["predictions.csv"]).open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 600
    right_rows = [row for row in rows if row["class_1"] == row["label"]]
    assert len(right_rows) == round(600 * top1_of(item))


def test_a_performance_item_keeps_the_raw_samples_of_each_process(measured: Ran) -> None:
    item = item_of(measured.project, "performance")
    names = [name for name in item["artifacts"] if name.startswith("samples")]
    assert names == ["samples-0.npz", "samples-1.npz"]
    samples = np.load(measured.project.results / item["artifacts"]["samples-0.npz"])
    calls = len(samples["start"])
    assert (samples["end"] >= samples["start"]).all()
    assert samples["at"][-1] == calls
    assert item["processes"][0]["calls"] == calls


def test_a_broken_limit_fails_the_item_and_is_in_every_report(small: Project) -> None:
    lines = small.manifest.read_text().splitlines()
    limit_line = lines.index("thresholds:") + 2
    small.edit("top1: {min: 0.95}", "top1: {min: 0.999}")
    again = small.manifest.read_text().replace("0.999", "0.9")
    (small.folder / "again.yaml").write_text(again)
    result = small.run("-k", "accuracy", "--junitxml=junit.xml")
    result.assert_outcomes(passed=1, failed=1)
    interval = "interval 97.84 % to 99.54 % (95 % confidence, 600 inputs)"
    result.stdout.fnmatch_lines(
        [
            f"digits-cnn onnxruntime-cpu: top1 is not at least 99.90 %: measured 99.00 %, {interval}",
            f"  limit set by manifests/digits.yaml:{limit_line}",
        ]
    )
    passed, failed = small.items()
    assert passed["nodeid"].startswith("manifests/again.yaml::")
    assert (failed["verdict"], failed["outcome"], failed["phase"]) == ("FAILED", "failed", "call")
    assert "limit set by" in failed["message"]
    check_table(result.outlines)
    check_junit(small.path / "junit.xml", ["PASSED", "FAILED"])


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_failure_names_model_and_case_and_the_command_that_runs_it_again(
    small: Project, workers: tuple[str, ...]
) -> None:
    small.edit("top1: {min: 0.95}", "top1: {min: 0.999}")
    result = small.run("-k", "accuracy", *workers)
    result.stdout.fnmatch_lines(
        [
            "*__ digits-cnn: test_accuracy[[]onnxruntime-cpu[]] __*",
            "digits-cnn onnxruntime-cpu: top1 is not at least 99.90 %*",
            "reproduce: pytest *",
            "FAILED manifests/digits.yaml::test_accuracy* - top1 99.00 * %, limit at least 99.90 %",
        ]
    )
    (command,) = [line for line in result.outlines if line.startswith("reproduce: ")]
    _, program, *arguments = shlex.split(command)
    assert program == "pytest"
    assert not any(argument.startswith("--mlms-manifests") for argument in arguments)
    again = small.pytester.runpytest_subprocess(*arguments)
    again.assert_outcomes(failed=1)
    assert command in again.outlines


def check_table(printed: Sequence[str]) -> None:
    """The worst item is first, with what it broke, and the table fits 100 columns."""
    titles = [index for index, line in enumerate(printed) if "mlms: accuracy" in line]
    header, failed, reason, passed = printed[titles[0] + 1 : titles[0] + 5]
    assert header.split()[0] == "verdict"
    assert failed.split()[0] == "FAILED"
    assert passed.split()[0] == "PASSED"
    assert "99.00 (97.84 to 99.54) %" in failed
    assert reason == "  top1 99.00 (97.84 to 99.54) %, limit at least 99.90 %"
    assert max(len(header), len(failed), len(passed)) <= 100


def check_junit(path: Path, verdicts: Sequence[str]) -> None:
    """Each test case has its verdict, estimates and versions as properties."""
    cases = list(ElementTree.parse(path).iter("testcase"))
    assert len(cases) == len(verdicts)
    for case, verdict in zip(cases, verdicts, strict=True):
        entries = case.iter("property")
        properties = {entry.get("name"): entry.get("value") for entry in entries}
        assert properties["mlms_verdict"] == verdict
        assert float(properties["mlms_top1"] or 0) == pytest.approx(0.99)
        assert properties["mlms_framework"] == "onnxruntime"
        assert properties["mlms_stack"] == "here"
        assert properties["mlms_version_of_onnxruntime"]


UNDECIDED = (
    "top1 is not shown to be at least 98.50 %: measured 99.00 %, interval 97.84 % to 99.54 % "
    "(95 % confidence, 600 inputs); undecided: the limit is inside the interval; a larger dataset "
    "narrows it"
)


def skips_and_failures(junit: Path) -> dict[str, str | None]:
    """Return the messages of the elements of JUnit XML that say that a test did not pass."""
    found = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        for element in case:
            if element.tag != "properties":
                found[element.tag] = element.get("message")
    return found


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_an_interval_that_straddles_its_limit_is_undecided_in_every_report(
    small: Project, workers: tuple[str, ...]
) -> None:
    small.edit("top1: {min: 0.95}", "top1: {min: 0.985}")
    result = small.run("-k", "accuracy", "--junitxml=junit.xml", "-v", *workers)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "*UNDECIDED*",
            f"*MlmsInconclusive: digits-cnn onnxruntime-cpu: {UNDECIDED}",
            "mlms: 1 model: 1 undecided; 1 measured, 0 not gated",
            "*1 warning, 1 undecided in *",
        ]
    )
    assert skips_and_failures(small.path / "junit.xml") == {"skipped": UNDECIDED}
    (item,) = small.items()
    assert (item["verdict"], item["outcome"]) == ("INCONCLUSIVE", "undecided")


def test_an_interval_that_straddles_its_limit_fails_under_strict(small: Project) -> None:
    small.edit("top1: {min: 0.95}", "top1: {min: 0.985}")
    result = small.run("-k", "accuracy", "--mlms-strict", "--junitxml=junit.xml")
    result.assert_outcomes(failed=1)
    assert "failure" in skips_and_failures(small.path / "junit.xml")


def test_a_limit_on_speed_is_judged_by_the_interval_over_the_processes(project: Project) -> None:
    project.use_faulty(seconds=0.03)
    # One limit is beyond any interval, and the other within every one.
    project.set_thresholds(
        "  throughput: {min: 1000000000000000 /s}\n  latency_p50: {max: 60000 min}"
    )
    result = project.run("-k", "performance", "--mlms-processes=5")
    result.assert_outcomes(failed=1)
    broken = "*: throughput is not at least 1,000,000,000,000,000 /s: measured *"
    result.stdout.fnmatch_lines([f"{broken}, interval * (98.2 % confidence, 5 processes)"])
    (item,) = project.items()
    verdicts = {limit["quantity"]: limit["verdict"] for limit in item["limits"]}
    assert verdicts == {"latency_p50": "PASSED", "throughput": "FAILED"}
    assert len(item["processes"]) == 5
    assert item["estimates"]["throughput"]["replicates"] == 5


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_benchmark_document_is_written_with_and_without_xdist(
    small: Project, workers: tuple[str, ...]
) -> None:
    (small.path / "out").mkdir()
    small.run("--mlms-benchmark-json=out/bench.json", *workers).assert_outcomes(passed=2)
    path = small.path / "out" / "bench.json"
    document = json.loads(path.read_text())
    assert {"machine_info", "commit_info", "benchmarks", "datetime", "version"} <= set(document)
    (entry,) = document["benchmarks"]
    item = item_of(small, "performance")
    assert entry["fullname"] == item["nodeid"]
    assert entry["stats"]["rounds"] == sum(process["calls"] for process in item["processes"])
    assert entry["stats"]["mean"] == pytest.approx(item["estimates"]["latency_mean"]["value"])
    check_comparable(path)


def check_comparable(document: Path) -> None:
    """pytest-benchmark compares the document with another one."""
    shutil.copy(document, document.with_name("other.json"))
    program = [sys.executable, "-m", "pytest_benchmark"]
    compared = subprocess.run(
        [*program, "compare", "bench.json", "other.json"],
        cwd=document.parent,
        capture_output=True,
        text=True,
    )
    assert compared.returncode == 0, compared.stderr
    assert "test_performance[onnxruntime-cpu-b8-offline]" in compared.stdout


def test_neither_xdist_nor_pytest_benchmark_is_needed(small: Project) -> None:
    small.pytester.makeconftest("import sys; sys.modules['pytest_benchmark'] = None")
    bare = ["-p", "no:xdist", "-p", "no:benchmark"]
    small.run(*bare).assert_outcomes(passed=2)
    result = small.run(*bare, "--mlms-benchmark-json=bench.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*--mlms-benchmark-json needs pytest-benchmark; pip install *pytest-benchmark*"]
    )


def test_with_xdist_the_controller_has_every_result_and_one_run(small: Project) -> None:
    small.edit("[8]", "[1, 8]")
    result = small.run("-n", "2", "-v")
    result.assert_outcomes(passed=3)
    items = small.items()
    assert {item["worker"] for item in items} <= {"gw0", "gw1"}
    (run,) = run_folders(small)
    for item in items:
        assert all((run / path).exists() for path in item["artifacts"].values())
    result.stdout.fnmatch_lines(
        ["*mlms: accuracy*", "*mlms: latency and throughput*", "mlms: results in *results.jsonl"]
    )


def test_with_xdist_measurements_on_one_device_do_not_overlap(small: Project) -> None:
    small.edit("[8]", "[1, 2, 4, 8]")
    # Our scheduler gives a device to one worker. With xdist's own there are only the locks.
    result = small.run("-n", "2", "-k", "performance", "-p", "no:mlms-fleet")
    result.assert_outcomes(passed=4)
    items = small.items()
    assert len({item["worker"] for item in items}) == 2
    stretches = []
    for item in items:
        samples = np.load(small.results / item["artifacts"]["samples-0.npz"])
        stretches.append((samples["start"][0], samples["end"][-1]))
    for earlier, later in itertools.pairwise(sorted(stretches)):
        assert earlier[1] <= later[0]


def test_each_run_has_a_folder_of_its_own_whose_lines_name_it(small: Project) -> None:
    small.pytester.makeconftest("def pytest_mlms_result(result): print('HOOK', result['verdict'])")
    for _ in range(2):
        small.run("-k", "accuracy", "-s").stdout.fnmatch_lines(["*HOOK PASSED*"])
    assert len(run_folders(small)) == 2
    lines = small.lines()
    assert [line["type"] for line in lines] == ["run", "item", "end"]
    assert {line["format"] for line in lines} == {1}
    assert len({line["run"] for line in lines}) == 1
    assert lines[-1]["exit_status"] == 0
    assert (small.results.parent / ".gitignore").read_text() == "*\n"
