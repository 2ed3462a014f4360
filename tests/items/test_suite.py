"""The whole way, with real models in real agents: measured, judged, recorded, shown."""

from __future__ import annotations

import csv
import itertools
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.support.project import PREDICTORS, QUICK, Project


@pytest.fixture
def small(project: Project) -> Project:
    """The digits model itself, at one batch size and in one scenario."""
    project.edit("[1, 8, 64]", "[8]")
    project.edit("[single_stream, offline]", "[offline]")
    project.set_thresholds("  top1: {min: 0.95}\n  top5: {min: 99 %}")
    return project


def test_the_shipped_model_meets_its_thresholds(project: Project) -> None:
    project.edit("5 ms", "60 min")  # whatever else this machine does
    project.edit("200 /s", "0 /s")
    project.edit("256 MiB", "1000 GiB")
    result = project.run("--mlms-processes=2", "--mlms-duration=0.05")
    result.assert_outcomes(passed=7)
    items = project.items()
    assert {item["verdict"] for item in items} == {"PASSED"}
    top1 = items[0]["estimates"]["top1"]
    assert top1["low"] >= 0.95
    assert top1["replicates"] == 600
    speed = items[1]["estimates"]
    assert set(speed) == {
        *("latency_mean", "latency_p50", "latency_p90", "latency_p95", "latency_p99", "throughput"),
        *("first_inference", "load_time", "peak_memory"),
    }
    for estimate in speed.values():
        assert 0 <= estimate["low"] <= estimate["value"] <= estimate["high"]
    assert speed["latency_p50"]["value"] <= speed["latency_p90"]["value"]
    assert items[0]["versions"]["onnxruntime"]
    assert items[0]["machine"]["cpu"]["model"]


def test_probabilities_predictions_and_raw_samples_are_kept(small: Project) -> None:
    small.run("--mlms-processes=2").assert_outcomes(passed=2)
    run = small.path / "mlms-results" / "latest"
    accuracy, speed = small.items()
    kept = np.load(run / accuracy["artifacts"]["probabilities.npz"])
    assert kept["probability"].shape == (600, 10)
    assert np.allclose(kept["probability"].sum(axis=1), 1)
    assert (kept["probability"].argmax(axis=1) == kept["label"]).mean() == accuracy["estimates"][
        "top1"
    ]["value"]
    with (run / accuracy["artifacts"]["predictions.csv"]).open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 600
    assert sum(row["class_1"] == row["label"] for row in rows) == round(
        600 * accuracy["estimates"]["top1"]["value"]
    )
    assert [name for name in speed["artifacts"] if name.startswith("samples")] == [
        "samples-0.npz",
        "samples-1.npz",
    ]
    samples = np.load(run / speed["artifacts"]["samples-0.npz"])
    assert (samples["end"] >= samples["start"]).all()
    assert samples["at"][-1] == len(samples["start"]) == speed["processes"][0]["calls"]
    assert (run.parent / ".gitignore").read_text() == "*\n"


def test_a_broken_limit_fails_the_item_and_every_report_has_its_figures(small: Project) -> None:
    line = small.manifest.read_text().splitlines().index("thresholds:") + 2
    small.edit("top1: {min: 0.95}", "top1: {min: 0.999}")
    (small.folder / "again.yaml").write_text(small.manifest.read_text().replace("0.999", "0.9"))
    result = small.run("-k", "accuracy", "--junitxml=junit.xml")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "top1 is not at least 99.90 %: measured 99.00 %, interval 97.84 % to 99.54 % (95 % confidence, 600 inputs)",
            f"  limit set by manifests/digits.yaml:{line}",
        ]
    )
    passed, failed = small.items()
    assert passed["nodeid"].startswith("manifests/again.yaml::")
    assert (failed["verdict"], failed["outcome"], failed["phase"]) == ("FAILED", "failed", "call")
    assert "limit set by" in failed["message"]
    check_table(result.outlines)
    check_junit(small.path / "junit.xml")


def check_table(printed: list[str]) -> None:
    """Worst first, within 100 columns."""
    lines = printed[printed.index(next(line for line in printed if "mlms: accuracy" in line)) :]
    assert [line.split()[0] for line in lines[1:4]] == ["verdict", "FAILED", "PASSED"]
    assert all(
        len(line) <= 100 for line in lines if not line.startswith(("=", "-", "mlms:", "FAILED m"))
    )
    assert "99.00 (97.84 to 99.54) %" in lines[2]


def check_junit(path: Path) -> None:
    for case, verdict in zip(
        ElementTree.parse(path).iter("testcase"), ("PASSED", "FAILED"), strict=True
    ):
        properties = {entry.get("name"): entry.get("value") for entry in case.iter("property")}
        assert properties["mlms_verdict"] == verdict
        assert float(properties["mlms_top1"] or 0) == pytest.approx(0.99)
        assert (properties["mlms_framework"], properties["mlms_stack"]) == ("onnxruntime", "here")
        assert properties["mlms_version_of_onnxruntime"]


def test_an_interval_astride_its_limit_warns_and_under_strict_fails(small: Project) -> None:
    small.edit("top1: {min: 0.95}", "top1: {min: 0.985}")
    result = small.run("-k", "accuracy")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        ["*MlmsInconclusive: top1 may not be at least 98.50 %: measured 99.00 %*"]
    )
    assert small.items()[0]["verdict"] == "INCONCLUSIVE"
    small.run("-k", "accuracy", "--mlms-strict").assert_outcomes(failed=1)


def test_a_broken_speed_limit_fails_by_the_interval_over_the_processes(project: Project) -> None:
    project.use_faulty(seconds=0.03)
    project.set_thresholds(
        "  throughput: {min: 1000000000000000 /s}\n  latency_p50: {max: 60000 min}"
    )  # beyond any interval
    result = project.run("-k", "performance", "--mlms-processes=5")
    result.assert_outcomes(failed=1)
    said = "throughput is not at least 1,000,000,000,000,000 /s: measured *, interval * (98.3 % confidence, 5 processes)"
    result.stdout.fnmatch_lines([said])
    (item,) = project.items()
    assert {limit["quantity"]: limit["verdict"] for limit in item["limits"]} == {
        "latency_p50": "PASSED",
        "throughput": "FAILED",
    }
    assert item["estimates"]["throughput"]["replicates"] == len(item["processes"]) == 5


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_benchmark_document_is_written_with_and_without_xdist(
    small: Project, workers: tuple[str, ...]
) -> None:
    small.run("--mlms-benchmark-json=out/bench.json", *workers).assert_outcomes(passed=2)
    document = json.loads((small.path / "out" / "bench.json").read_text())
    assert {"machine_info", "commit_info", "benchmarks", "datetime", "version"} <= set(document)
    (entry,) = document["benchmarks"]
    (item,) = [item for item in small.items() if item["kind"] == "performance"]
    assert entry["fullname"] == item["nodeid"]
    assert entry["stats"]["rounds"] == sum(process["calls"] for process in item["processes"])
    assert entry["stats"]["mean"] == pytest.approx(item["estimates"]["latency_mean"]["value"])
    shutil.copy(small.path / "out" / "bench.json", small.path / "out" / "other.json")
    compare = [
        sys.executable,
        "-m",
        "pytest_benchmark",
        "compare",
        "out/bench.json",
        "out/other.json",
    ]
    compared = subprocess.run(compare, cwd=small.path, capture_output=True, text=True)
    assert compared.returncode == 0, compared.stderr
    assert "test_performance[onnxruntime-cpu-b8-offline]" in compared.stdout


def test_neither_xdist_nor_pytest_benchmark_is_needed(small: Project) -> None:
    small.pytester.makeconftest("import sys; sys.modules['pytest_benchmark'] = None")
    bare = ["-p", "no:xdist", "-p", "no:benchmark"]
    small.run(*bare).assert_outcomes(passed=2)
    result = small.run(*bare, "--mlms-benchmark-json=bench.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["mlms: --mlms-benchmark-json needs pytest-benchmark; pip install*"]
    )


def test_with_xdist_the_controller_has_every_result_and_one_run(small: Project) -> None:
    small.edit("[8]", "[1, 8]")
    result = small.run("-n", "2", "-v")
    result.assert_outcomes(passed=3)
    assert {item["worker"] for item in small.items()} <= {"gw0", "gw1"}
    runs = [
        path
        for path in (small.path / "mlms-results").iterdir()
        if path.is_dir() and not path.is_symlink()
    ]
    assert len(runs) == 1
    assert all(
        (runs[0] / path).exists() for item in small.items() for path in item["artifacts"].values()
    )
    result.stdout.fnmatch_lines(
        ["*mlms: accuracy*", "*mlms: latency and throughput*", "mlms: results in *results.jsonl"]
    )


def test_with_xdist_measurements_on_one_device_do_not_overlap(small: Project) -> None:
    small.edit("[8]", "[1, 2, 4, 8]")
    xdists_own = [
        "-p",
        "no:mlms-fleet",
    ]  # ours leaves a device to one worker; here the locks alone have to
    small.run("-n", "2", "-k", "performance", *xdists_own).assert_outcomes(passed=4)
    run = small.path / "mlms-results" / "latest"
    stretches = []
    for item in small.items():
        samples = np.load(run / item["artifacts"]["samples-0.npz"])
        stretches.append((samples["start"][0], samples["end"][-1]))
    assert len({item["worker"] for item in small.items()}) == 2
    stretches.sort()
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(stretches))


def test_each_run_has_a_folder_of_its_own_whose_lines_are_dated_and_numbered(
    small: Project,
) -> None:
    small.pytester.makeconftest("def pytest_mlms_result(result): print('TOLD', result['verdict'])")
    for _ in range(2):
        small.run("-k", "accuracy", "-s").stdout.fnmatch_lines(["*TOLD PASSED*"])
    folders = [
        path
        for path in (small.path / "mlms-results").iterdir()
        if path.is_dir() and not path.is_symlink()
    ]
    assert len(folders) == 2
    lines = small.lines()
    assert [line["type"] for line in lines] == ["run", "item", "end"]
    assert {line["format"] for line in lines} == {1}
    assert len({line["run"] for line in lines}) == 1
    assert lines[-1]["exit_status"] == 0


def test_a_killed_run_keeps_what_was_measured(small: Project) -> None:
    small.edit("[8]", "[1, 8]")
    options = ["--mlms-manifests=manifests", *QUICK, "--mlms-processes=500", "--mlms-duration=3"]
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *options], cwd=small.path, stdout=subprocess.DEVNULL
    ) as run:
        results = small.path / "mlms-results" / "latest"
        end = time.monotonic() + 600
        while (
            not list(results.glob("items/*performance*/samples-0.npz")) and time.monotonic() < end
        ):
            time.sleep(0.05)
        run.kill()
    assert [line["type"] for line in small.lines()] == ["run", "item"]
    assert small.items()[0]["verdict"] == "PASSED"
    assert list(results.glob("items/*performance*/samples-0.npz"))


def interrupt_in_mid_item(project: Project, *options: str) -> str:
    """Press Ctrl-C when an item has measured three of its many processes.

    Return what was printed.
    """
    project.use_faulty(seconds=0.02)
    long = [
        "--mlms-manifests=manifests",
        *QUICK,
        "--mlms-processes=500",
        "--mlms-duration=1",
        "-k",
        "performance",
    ]
    command = [sys.executable, "-m", "pytest", *long, f"--mlms-predictors={PREDICTORS}", *options]
    with subprocess.Popen(command, cwd=project.path, stdout=subprocess.PIPE, text=True) as run:
        folder = project.path / "mlms-results"
        end = time.monotonic() + 600
        while not list(folder.glob("*/items/*/samples-2.npz")) and time.monotonic() < end:
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        output, _ = run.communicate(timeout=600)
    assert run.returncode == pytest.ExitCode.INTERRUPTED, output
    return output


def test_an_interrupted_item_is_written_as_far_as_it_came(project: Project) -> None:
    output = interrupt_in_mid_item(project)
    (item,) = project.items()
    assert (item["verdict"], item["outcome"]) == ("ERROR", "interrupted")
    assert len(item["processes"]) >= 2
    assert "mlms: results in" in output
    assert project.lines()[-1]["type"] == "end"


def test_with_xdist_an_interrupted_item_is_written_too_with_its_samples(project: Project) -> None:
    interrupt_in_mid_item(project, "-n", "1")
    (item,) = project.items()
    assert (item["verdict"], item["outcome"]) == ("ERROR", "interrupted")
    run = project.path / "mlms-results" / "latest"
    assert (run / item["artifacts"]["samples-1.npz"]).exists()


def test_results_that_can_not_be_written_are_printed_and_fail_the_run(small: Project) -> None:
    in_the_way = "def pytest_collection_finish(): open('results', 'w').write('a file where the folder should be')"
    small.pytester.makeconftest(in_the_way)
    result = small.run("--mlms-results=results", "--mlms-benchmark-json=bench.json")
    result.assert_outcomes(passed=2, warnings=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "  manifests/digits.yaml:9: MlmsArtifactLost: *probabilities.npz could not be written: *; make room, or name *",
            '{"format": 1,*"type": "item"*"top1"*',
            "mlms: --mlms-benchmark-json: without manifests/digits.yaml::test_performance*, whose samples are not on disk",
            "mlms: *results.jsonl: *; 4 lines were not written",
        ]
    )
    assert "Traceback" not in result.stdout.str()
    assert "mlms: results in" not in result.stdout.str()
    assert json.loads((small.path / "bench.json").read_text())["benchmarks"] == []


def test_a_benchmark_document_that_can_not_be_written_fails_the_run(small: Project) -> None:
    (small.path / "occupied").write_text("a file where the folder should be")
    result = small.run("-k", "performance", "--mlms-benchmark-json=occupied/x.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["mlms: --mlms-benchmark-json: *occupied/x.json can't be written*"])
