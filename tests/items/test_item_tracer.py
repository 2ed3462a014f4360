"""Traces as items: what they leave behind, and what goes wrong without costing them."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.trace import PHASES
from pytest_mlms.trace.counters import phase_rows
from pytest_mlms.trace.latency import layer_coverage
from pytest_mlms.trace.metadata import LayerWork
from pytest_mlms.trace.spans import Trace
from pytest_mlms.trace.steps import step_rows
from pytest_mlms.trace.storage import load_trace
from tests.support.project import PREDICTORS, QUICK, Project, write_matrix

LEVELS = ["model", "application", "application+hardware", "layer", "hardware"]
"""The runs of a trace with layers and hardware, of a framework whose layers don't run one by one.
"""

FILES = {"trace.npz", "trace.pftrace", "layers.csv", "kernels.csv", "counters.csv"}


@pytest.fixture
def one(project: Project) -> Project:
    """The digits manifest at batch size 8 alone."""
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    return project


def only(project: Project) -> dict[str, Any]:
    (item,) = project.items()
    return item


def trace_of(project: Project) -> Trace:
    folder = project.path / "mlms-results" / "latest"
    return load_trace(folder / only(project)["artifacts"]["trace.npz"])


def traced(project: Project, *arguments: str) -> pytest.RunResult:
    return project.run("-k", "trace and (onnxruntime or faulty)", *arguments)


def test_without_the_option_there_are_no_traces(one: Project) -> None:
    result = one.run("--collect-only", "-q")
    assert (
        "test_trace"
        not in result.stdout.str() + one.run("--collect-only", "--mlms-trace=none").stdout.str()
    )


def test_a_level_that_there_is_not_is_told(one: Project) -> None:
    result = one.run("--mlms-trace=layer,soul")
    result.stderr.fnmatch_lines(
        ["*unknown trace level 'soul'; choose from application, model, layer,*"]
    )


def test_a_trace_has_its_levels_each_from_a_process_of_its_own(one: Project) -> None:
    traced(one, "--mlms-trace=layer,hardware").assert_outcomes(passed=1)
    trace = trace_of(one)
    assert [run.level for run in trace.runs] == LEVELS
    assert len({run.process for run in trace.runs}) == 4
    layers = trace.spans.take(trace.spans.at("layer"))
    assert set(layers.run.tolist()) == {LEVELS.index("layer")}
    assert {"Conv", "MaxPool"} <= set(trace.texts(layers.type))
    application = trace.spans.take(trace.spans.at("application"))
    assert {"pre-process", "decode", "normalize", "post-process"} <= set(
        trace.texts(application.name)
    )
    assert {"load", "predict"} == set(trace.texts(trace.spans.name[trace.spans.at("model")]))
    assert {LEVELS[series.run] for series in trace.series} == {"application+hardware", "hardware"}
    assert {row.phase for row in phase_rows(trace)} == {*PHASES, "predict"}
    within = {row.step: row.within for row in step_rows(trace)}
    assert {step for step in within if within[step] == "request"} == set(PHASES)
    assert (within["request"], within["decode"], within["softmax"]) == (
        "",
        "pre-process",
        "post-process",
    )


def test_rooflines_have_the_work_that_the_framework_counts_in_its_own_model(
    project: Project,
) -> None:
    project.drop()
    write_matrix(project.folder)
    project.run("--mlms-trace=model", "-k", "trace").assert_outcomes(passed=1)
    assert trace_of(project).metadata.static == (
        LayerWork("mul", "Product", 2 * 3 * 5, 4 * (3 * 5 + 3 + 5)),
    )


def test_a_model_that_dies_of_the_question_what_it_is_made_of_costs_its_trace_nothing(
    project: Project,
) -> None:
    project.drop()
    write_matrix(project.folder, "die")
    project.run("--mlms-trace=model,hardware", "-k", "trace").assert_outcomes(passed=1)
    metadata = trace_of(project).metadata
    assert metadata.static == ()
    assert "SIGKILL" in metadata.structure_unavailable
    assert metadata.peaks is not None
    assert metadata.peaks.flops > 0


def test_its_line_says_what_it_found_and_where_the_files_are(one: Project) -> None:
    result = traced(one, "--mlms-trace=layer")
    result.stdout.fnmatch_lines(
        ["*mlms: where the time went*", "PASSED*digits-cnn*onnxruntime-cpu-b8*%*"]
    )
    item = only(one)
    assert set(item["artifacts"]) == FILES
    found = item["trace"]
    layer = next(run for run in found["runs"] if run["level"] == "layer")
    assert layer["calls"] >= 10
    assert layer["overhead"] == pytest.approx(layer["traced_us"] / layer["plain_us"] - 1)
    assert found["coverage"] == pytest.approx(layer_coverage(trace_of(one)))
    folder = one.path / "mlms-results" / "latest"
    with (folder / item["artifacts"]["layers.csv"]).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == found["layers"]
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1, abs=1e-3)


@pytest.mark.slow
def test_what_this_machine_cannot_show_is_a_warning_and_strictly_a_failure(one: Project) -> None:
    result = traced(one, "--mlms-trace=kernel")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*MlmsUnseen: level kernel: cupti, kineto: the device is cpu*",
            "*nothing to see at level kernel*",
        ]
    )
    assert "the device is cpu" in only(one)["trace"]["unseen"]["kernel"]
    strict = traced(one, "--mlms-trace=kernel", "--mlms-strict")
    strict.assert_outcomes(failed=1)
    strict.stdout.fnmatch_lines(["*level kernel: cupti, kineto: the device is cpu*"])
    assert only(one)["verdict"] == "FAILED"


@pytest.mark.slow
def test_junit_xml_names_the_files_as_attachments(one: Project) -> None:
    traced(
        one, "--mlms-trace=layer", "--junitxml=out.xml", "-o", "junit_logging=system-out"
    ).assert_outcomes(passed=1)
    text = ElementTree.parse(one.path / "out.xml").findtext(".//system-out") or ""
    paths = [
        line[len("[[ATTACHMENT|") : -2]
        for line in text.splitlines()
        if line.startswith("[[ATTACHMENT|")
    ]
    assert {Path(path).name for path in paths} == FILES
    assert all(Path(path).is_file() for path in paths)


def test_a_framework_without_a_layer_profiler_is_told(project: Project) -> None:
    project.use_faulty()
    result = traced(project, "--mlms-trace=layer")
    result.assert_outcomes(passed=1, warnings=1)
    assert "no layer profiler" in only(project)["trace"]["unseen"]["layer"]


def test_layers_that_run_one_by_one_are_counted_one_by_one(project: Project) -> None:
    project.use_faulty(layers="stepwise", pages=1000)
    result = traced(project, "--mlms-trace=layer,hardware")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*overhead of tracing each level*", "verdict*+layer*+hardware*+layer +hardware"]
    )
    item = only(project)
    assert [run["level"] for run in item["trace"]["runs"]].count("layer+hardware") == 1
    path = project.path / "mlms-results" / "latest" / item["artifacts"]["counters.csv"]
    with path.open(newline="") as file:
        faults = {
            row["layer"]: float(row["per_call"])
            for row in csv.DictReader(file)
            if row["counter"] == "page-faults"
        }
    if not faults:
        pytest.skip("this machine doesn't let page faults be counted")
    assert faults["large"] >= 1000 > 500 > faults["small"]


def test_layers_that_do_not_run_one_by_one_have_no_run_of_counters(one: Project) -> None:
    result = traced(one, "--mlms-trace=layer,hardware")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["no counters by layer in 1 item: onnxruntime runs all layers in one call"]
    )
    assert "layer+hardware" not in [run["level"] for run in only(one)["trace"]["runs"]]


def test_an_agent_that_dies_at_a_level_costs_that_level_alone(project: Project) -> None:
    project.use_faulty(layers="killed")
    result = traced(project, "--mlms-trace=layer,hardware")
    result.assert_outcomes(passed=1, warnings=1)
    item = only(project)
    assert "killed by SIGKILL" in item["trace"]["unseen"]["layer"]
    assert [run.level for run in trace_of(project).runs] == LEVELS


@pytest.mark.parametrize(("strict", "outcome"), [((), "passed"), (("--mlms-strict",), "failed")])
def test_a_level_that_an_agent_died_at_after_some_calls_is_told(
    project: Project, strict: tuple[str, ...], outcome: str
) -> None:
    project.use_faulty(
        layers="killed later", pages=1, seconds=0.03
    )  # at most 8 calls in a reply, and it takes 10
    result = traced(project, "--mlms-trace=layer", *strict)
    result.assert_outcomes(**{outcome: 1}, warnings=int(not strict))
    found = only(project)["trace"]
    assert found["layers"]
    assert not found["unseen"]
    assert "killed by SIGKILL" in found["faults"]["layer"]
    result.stdout.fnmatch_lines(
        ["*level layer was cut short: *SIGKILL*", "*cut short at level layer in 1 item: *SIGKILL*"]
    )


def test_an_agent_that_dies_without_any_probe_is_an_error_and_the_files_load(
    project: Project,
) -> None:
    project.use_faulty(at="predict", fault="killed")
    traced(project, "--mlms-trace=layer").assert_outcomes(failed=1)
    item = only(project)
    assert item["verdict"] == "ERROR"
    assert "SIGKILL" in item["message"]
    assert trace_of(project).runs[0].level == "model"


def test_a_layer_profiler_that_raises_is_told(project: Project) -> None:
    project.use_faulty(layers="raise")
    traced(project, "--mlms-trace=layer").assert_outcomes(passed=1, warnings=1)
    assert "another profiler is active" in only(project)["trace"]["unseen"]["layer"]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL")
def test_a_run_that_is_killed_while_tracing_leaves_a_trace_that_loads(project: Project) -> None:
    project.use_faulty(layers="hang", pids=str(project.path / "pids"))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--mlms-manifests=manifests",
        f"--mlms-predictors={PREDICTORS}",
    ]
    pids = project.path / "pids"
    process = subprocess.Popen(
        [*command, "-k", "trace", "--mlms-trace=layer", *QUICK], cwd=project.path
    )
    try:
        deadline = time.monotonic() + 600
        while not (
            pids.exists() and " " in pids.read_text()
        ):  # it hangs in the layer run: the model's is over
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    os.kill(
        int(pids.read_text().split()[1]), signal.SIGKILL
    )  # in a session of its own, so out of the agent's reach
    (path,) = (project.path / "mlms-results").glob("*/items/*/trace.npz")
    trace = load_trace(path)
    assert trace.runs[0].calls >= 10
    assert trace.spans.at("model").sum() >= 10


BEYOND = "  throughput: {min: 1000000000000000 /s}"
SURELY = "--mlms-processes=2"  # two have an interval, and no interval is that wide


@pytest.mark.slow
def test_a_performance_item_that_fails_is_traced_if_asked_for(one: Project) -> None:
    one.set_thresholds(BEYOND)
    choose = ("-k", "performance and onnxruntime and single_stream", SURELY)
    one.run(*choose, "--mlms-trace-on-fail").assert_outcomes(failed=1)
    item = only(one)
    assert set(item["artifacts"]) >= FILES
    assert item["trace"]["levels"] == ["layer", "hardware"]
    assert "throughput is not at least" in item["message"]
    one.run(*choose).assert_outcomes(failed=1)
    assert not FILES & set(only(one)["artifacts"])


def test_a_trace_that_fails_does_not_hide_why_the_item_failed(one: Project) -> None:
    one.set_thresholds(BEYOND)
    one.pytester.makeconftest(
        """
        import pytest_mlms.items.item_tracer

        def broken(*arguments):
            raise ZeroDivisionError("a fault of the tracer")

        pytest_mlms.items.item_tracer.run_trace = broken
        """
    )
    result = one.run(
        "-k", "performance and onnxruntime and single_stream", "--mlms-trace-on-fail", SURELY
    )
    result.assert_outcomes(failed=1, warnings=1)
    result.stdout.fnmatch_lines(
        ["*throughput is not at least*", "*the failed item could not be traced*"]
    )
    assert only(one)["verdict"] == "FAILED"


@pytest.mark.slow
def test_a_test_of_ones_own_can_trace(one: Project) -> None:
    one.pytester.makepyfile(
        """
        import pytest

        @pytest.mark.mlms(manifest="manifests/digits.yaml", kind="trace")
        def test_where(mlms_case, mlms_tracer):
            if mlms_case.stack.framework == "onnxruntime":
                summary = mlms_tracer.trace(["layer"])
                assert summary["coverage"] > 0
        """
    )
    one.pytester.runpytest_subprocess("-k", "onnxruntime", *QUICK).assert_outcomes(passed=1)
