"""Traces of items, and the static cost of their models."""

from __future__ import annotations

import contextlib
import csv
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pytest_mlms.items import item_tracer
from pytest_mlms.items.item_tracer import FILES, static_cost
from pytest_mlms.manifest.load import load
from pytest_mlms.measure.trace import PHASES
from pytest_mlms.measure.trace.analyses.requests import step_rows
from pytest_mlms.measure.trace.correlate import parents_of
from pytest_mlms.measure.trace.counters import phase_rows
from pytest_mlms.measure.trace.exporters.perfetto import WrittenTrace
from pytest_mlms.measure.trace.records import LayerWork
from pytest_mlms.measure.trace.spans import Trace
from pytest_mlms.measure.trace.storage import load_trace
from pytest_mlms.measure.trace.summary import layer_time
from pytest_mlms.provide.artifacts.fetch import CaseFiles
from pytest_mlms.provide.cases import Case
from pytest_mlms.warning_types import MlmsWarning
from tests.support.cases import digits_case
from tests.support.project import (
    DIGITS,
    PREDICTORS,
    QUICK,
    Project,
    Ran,
    SharedRuns,
    copy_digits,
    write_matrix,
)
from tests.support.traces import TraceWriter

LEVELS = ["model", "application", "application+hardware", "layer", "hardware"]
"""Runs of a trace with layers and hardware, where layers do not run one by one."""

UNREACHABLE = "  throughput: {min: 1000000000000000 /s}"
TWO_PROCESSES = "--mlms-processes=2"  # of which there is an interval, and none is that wide
HANG_SECONDS = 600
LEAST_CALLS = 10


@pytest.fixture
def one(project: Project) -> Project:
    """A project with the digits manifest at batch size 8."""
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    return project


def run_trace_item(project: Project, *arguments: str) -> pytest.RunResult:
    return project.run("-k", "trace and (onnxruntime or faulty)", *arguments)


def trace_layers_and_hardware(project: Project) -> pytest.RunResult:
    junit = ("--junitxml=out.xml", "-o", "junit_logging=system-out")
    return run_trace_item(project, "--mlms-trace=layer,hardware", *junit)


@pytest.fixture
def traced(one: Project, shared_runs: SharedRuns) -> Ran:
    """A run that traced layers and hardware, which tests only read."""
    return shared_runs.of(trace_layers_and_hardware, one)


PROFILERS: dict[str, dict[str, Any]] = {
    "none": {},
    "stepwise": {"layers": "stepwise", "pages": 1000},
    "killed": {"layers": "killed"},
    "broken": {"layers": "raise"},
    "dead": {"at": "predict", "fault": "killed"},
}
"""Folder of a manifest -> what its predictor does."""


def trace_profilers(project: Project) -> pytest.RunResult:
    for name, spec in PROFILERS.items():
        project.fork(name).use_faulty(**spec)
    project.drop()
    return run_trace_item(project, "--mlms-trace=layer,hardware")


@pytest.fixture
def profilers(project: Project, shared_runs: SharedRuns) -> Ran:
    """A run that traced each of PROFILERS, which tests only read."""
    ran = shared_runs.of(trace_profilers, project)
    ran.result.assert_outcomes(passed=4, failed=1, warnings=3)
    return ran


def item_of(profilers: Ran, name: str) -> dict[str, Any]:
    """Return the item of one of PROFILERS."""
    (item,) = [item for item in profilers.project.items() if f"/{name}/" in item["nodeid"]]
    return item


def run_failing_item(project: Project, *arguments: str) -> pytest.RunResult:
    """Run a performance item whose limit can't be met."""
    project.set_thresholds(UNREACHABLE)
    chosen = "performance and onnxruntime and single_stream"
    return project.run("-k", chosen, TWO_PROCESSES, *arguments)


def only_item(project: Project) -> dict[str, Any]:
    (item,) = project.items()
    return item


def trace_of(project: Project, item: dict[str, Any]) -> Trace:
    return load_trace(project.results / item["artifacts"]["trace.npz"])


def load_only_trace(project: Project) -> Trace:
    return trace_of(project, only_item(project))


def read_table(project: Project, item: dict[str, Any], name: str) -> list[dict[str, str]]:
    with (project.results / item["artifacts"][name]).open(newline="") as file:
        return list(csv.DictReader(file))


def levels_of(item: dict[str, Any]) -> list[str]:
    return [run["level"] for run in item["trace"]["runs"]]


def names_at(trace: Trace, level: str) -> set[str]:
    spans = trace.spans.take(trace.spans.at(level))
    return set(trace.texts(spans.name))


def test_without_the_option_there_are_no_trace_items(one: Project) -> None:
    by_default = one.run("--collect-only", "-q").stdout.str()
    assert "test_performance" in by_default
    assert "test_trace" not in by_default
    assert "test_trace" not in one.run("--collect-only", "--mlms-trace=none").stdout.str()


def test_an_unknown_level_is_an_error(one: Project) -> None:
    result = one.run("--mlms-trace=layer,soul")
    result.stderr.fnmatch_lines(
        ["*unknown trace level 'soul'; choose from application, model, layer,*"]
    )


def test_each_level_is_traced_in_a_process_of_its_own(traced: Ran) -> None:
    traced.result.assert_outcomes(passed=1)
    trace = load_only_trace(traced.project)
    assert [run.level for run in trace.runs] == LEVELS
    agents = {run.process for run in trace.runs if not run.level.startswith("application")}
    assert len(agents) == 3
    assert os.getpid() not in agents
    layers = trace.spans.take(trace.spans.at("layer"))
    assert set(layers.run.tolist()) == {LEVELS.index("layer")}
    assert {"Conv", "MaxPool"} <= set(trace.texts(layers.type))
    assert names_at(trace, "model") == {"load", "predict"}


def test_requests_of_this_side_have_phases_steps_and_counters(traced: Ran) -> None:
    trace = load_only_trace(traced.project)
    assert {"pre-process", "decode", "normalize", "post-process"} <= names_at(trace, "application")
    within = {row.step: row.within for row in step_rows(trace)}
    assert {step for step in within if within[step] == "request"} == set(PHASES)
    assert within["decode"] == "pre-process"
    assert within["softmax"] == "post-process"
    counted = {trace.runs[series.run].level for series in trace.series}
    assert counted == {"application+hardware", "hardware"}
    assert {row.phase for row in phase_rows(trace)} == {*PHASES, "predict"}


def test_the_work_of_layers_is_that_of_the_framework_where_it_tells(project: Project) -> None:
    project.drop()
    write_matrix(project.folder)
    project.run("--mlms-trace=model", "-k", "trace").assert_outcomes(passed=1)
    product = LayerWork(
        name="mul",
        type="Product",
        flops=2 * 3 * 5,
        bytes=4 * (3 * 5 + 3 + 5),
        reads=("x",),
        writes=("y",),
        shape=(1, 5),
    )
    assert load_only_trace(project).metadata.static == (product,)


def test_an_agent_that_dies_while_it_tells_its_structure_costs_nothing_else(
    project: Project,
) -> None:
    project.drop()
    write_matrix(project.folder, "die")
    project.run("--mlms-trace=model,hardware", "-k", "trace").assert_outcomes(passed=1)
    metadata = load_only_trace(project).metadata
    assert metadata.static == ()
    assert "SIGKILL" in metadata.structure_unavailable
    assert metadata.peaks is not None
    assert metadata.peaks.flops > 0


def test_the_results_have_the_summary_and_the_files(traced: Ran) -> None:
    item = only_item(traced.project)
    assert set(item["artifacts"]) == set(FILES)
    summary = item["trace"]
    (layer,) = [run for run in summary["runs"] if run["level"] == "layer"]
    assert layer["calls"] >= LEAST_CALLS
    assert layer["overhead"] == pytest.approx(layer["traced_us"] / layer["plain_us"] - 1)
    time = layer_time(load_only_trace(traced.project))
    assert time is not None
    assert summary["coverage"] == pytest.approx(time.share)
    assert summary["coverage"] == pytest.approx(summary["layers_us"] / summary["call_us"])
    rows = read_table(traced.project, item, "layers.csv")
    total_us = sum(float(row["latency_us"]) for row in rows)
    assert summary["layers_us"] == pytest.approx(total_us, rel=1e-3)
    assert len(rows) == summary["layers"]
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1, abs=1e-3)


def test_the_terminal_has_a_table_of_where_the_time_went(traced: Ran) -> None:
    traced.result.stdout.fnmatch_lines(
        ["*mlms: where the time went*", "PASSED*digits-cnn*onnxruntime-cpu-b8*%*"]
    )


@pytest.mark.slow
def test_a_level_without_anything_to_see_is_a_warning(one: Project) -> None:
    result = run_trace_item(one, "--mlms-trace=kernel")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*nothing to see at level kernel*",
            "*MlmsUnseen: *: level kernel: cupti, kineto: the device is cpu*",
        ]
    )
    assert "the device is cpu" in only_item(one)["trace"]["unseen"]["kernel"]


@pytest.mark.slow
def test_a_level_without_anything_to_see_fails_a_strict_run(one: Project) -> None:
    result = run_trace_item(one, "--mlms-trace=kernel", "--mlms-strict")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*level kernel: cupti, kineto: the device is cpu*"])
    assert only_item(one)["verdict"] == "FAILED"


def test_junit_xml_names_the_files_as_attachments(traced: Ran) -> None:
    text = ElementTree.parse(traced.project.path / "out.xml").findtext(".//system-out") or ""
    paths = []
    for line in text.splitlines():
        if line.startswith("[[ATTACHMENT|"):
            paths.append(Path(line.removeprefix("[[ATTACHMENT|").removesuffix("]]")))
    assert {path.name for path in paths} == set(FILES)
    assert all(path.is_file() for path in paths)


def test_a_framework_without_a_layer_profiler_shows_no_layers(profilers: Ran) -> None:
    item = item_of(profilers, "none")
    assert item["outcome"] == "passed"
    assert "no layer profiler" in item["trace"]["unseen"]["layer"]


def test_layers_that_run_one_by_one_have_counters_each(profilers: Ran) -> None:
    item = item_of(profilers, "stepwise")
    assert item["outcome"] == "passed"
    profilers.result.stdout.fnmatch_lines(
        ["*overhead of tracing each level*", "verdict*+layer*+hardware*+layer +hardware"]
    )
    assert levels_of(item).count("layer+hardware") == 1
    faults = {}
    for row in read_table(profilers.project, item, "counters.csv"):
        if row["counter"] == "page-faults":
            faults[row["layer"]] = float(row["per_call"])
    if not faults:
        pytest.skip("this machine does not let page faults be counted")
    assert faults["large"] >= 1000
    assert faults["small"] < 500


def test_layers_that_run_in_one_call_have_no_counters(traced: Ran) -> None:
    traced.result.stdout.fnmatch_lines(
        ["no counters by layer in 1 item: onnxruntime runs all layers in one call"]
    )
    assert "layer+hardware" not in levels_of(only_item(traced.project))


def test_an_agent_that_dies_at_a_level_costs_that_level_alone(profilers: Ran) -> None:
    item = item_of(profilers, "killed")
    assert item["outcome"] == "passed"
    assert "killed by SIGKILL" in item["trace"]["unseen"]["layer"]
    assert [run.level for run in trace_of(profilers.project, item).runs] == LEVELS


@pytest.mark.slow
@pytest.mark.parametrize(("strict", "outcome"), [((), "passed"), (("--mlms-strict",), "failed")])
def test_a_level_that_was_cut_short_is_a_warning_or_fails_a_strict_run(
    project: Project, strict: tuple[str, ...], outcome: str
) -> None:
    # at most 8 calls fit into a reply, and the run needs 10
    project.use_faulty(layers="killed later", pages=1, seconds=0.03)
    result = run_trace_item(project, "--mlms-trace=layer", *strict)
    result.assert_outcomes(**{outcome: 1}, warnings=int(not strict))
    summary = only_item(project)["trace"]
    assert summary["layers"]
    assert not summary["unseen"]
    assert "killed by SIGKILL" in summary["faults"]["layer"]
    told = "*cut short at level layer in 1 item: *SIGKILL*"
    said = "*level layer was cut short: *SIGKILL*"  # a failure above the tables, or a warning below
    result.stdout.fnmatch_lines([said, told] if strict else [told, said])


def test_an_agent_that_dies_without_any_probe_is_an_error_and_the_trace_loads(
    profilers: Ran,
) -> None:
    item = item_of(profilers, "dead")
    assert (item["verdict"], item["outcome"]) == ("ERROR", "failed")
    assert "SIGKILL" in item["message"]
    assert trace_of(profilers.project, item).runs[0].level == "model"


def test_a_layer_profiler_that_raises_has_its_error_as_the_reason(profilers: Ran) -> None:
    item = item_of(profilers, "broken")
    assert item["outcome"] == "passed"
    assert "another profiler is active" in item["trace"]["unseen"]["layer"]


def wait_for_layer_run(process: subprocess.Popen[bytes], pids: Path) -> int:
    """Wait until the agent of the layer run hangs; return its process ID.

    The predictor writes the process ID of each agent to a file: the model's, then the layers'.
    """
    deadline = time.monotonic() + HANG_SECONDS
    while time.monotonic() < deadline:
        if pids.exists() and " " in pids.read_text():
            _, layer_agent, *_ = pids.read_text().split()
            return int(layer_agent)
        assert process.poll() is None
        time.sleep(0.05)
    raise AssertionError("the layer run did not begin")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL")
def test_a_run_that_is_killed_while_it_traces_leaves_a_trace_that_loads(project: Project) -> None:
    pids = project.path / "pids"
    project.use_faulty(layers="hang", pids=str(pids))
    options = ["--mlms-manifests=manifests", f"--mlms-predictors={PREDICTORS}", *QUICK]
    command = [sys.executable, "-m", "pytest", "-k", "trace", "--mlms-trace=layer", *options]
    process = subprocess.Popen(command, cwd=project.path)
    try:
        agent = wait_for_layer_run(process, pids)
    finally:
        process.kill()
        process.wait()
    with contextlib.suppress(ProcessLookupError):  # where no supervisor has ended it
        os.kill(agent, signal.SIGKILL)
    (path,) = (project.path / "mlms-results").glob("*/items/*/trace.npz")
    trace = load_trace(path)
    assert trace.runs[0].calls >= LEAST_CALLS
    assert trace.spans.at("model").sum() >= LEAST_CALLS


@pytest.mark.slow
def test_a_performance_item_that_fails_is_traced_where_the_option_asks_for_it(
    one: Project,
) -> None:
    run_failing_item(one, "--mlms-trace-on-fail").assert_outcomes(failed=1)
    item = only_item(one)
    assert set(item["artifacts"]) >= set(FILES)
    assert item["trace"]["levels"] == ["layer", "hardware"]
    assert "throughput is not at least" in item["message"]


@pytest.mark.slow
def test_a_performance_item_that_fails_is_not_traced_by_default(one: Project) -> None:
    run_failing_item(one).assert_outcomes(failed=1)
    assert not set(FILES) & set(only_item(one)["artifacts"])


def test_a_trace_that_fails_does_not_hide_why_the_item_failed(one: Project) -> None:
    one.pytester.makeconftest(
        """
        import pytest_mlms.items.item_tracer

        def broken(*arguments):
            raise ZeroDivisionError("a fault of the tracer")

        pytest_mlms.items.item_tracer.run_trace = broken
        """
    )
    result = run_failing_item(one, "--mlms-trace-on-fail")
    result.assert_outcomes(failed=1, warnings=1)
    result.stdout.fnmatch_lines(
        ["*throughput is not at least*", "*the failed item could not be traced*"]
    )
    assert only_item(one)["verdict"] == "FAILED"


@pytest.mark.slow
def test_a_users_own_test_gets_the_summary_of_a_trace(one: Project) -> None:
    one.pytester.makepyfile(
        """
        import pytest

        @pytest.mark.mlms(manifest="manifests/digits.yaml", kind="trace")
        def test_where(mlms_case, mlms_tracer):
            if mlms_case.stack.framework == "onnxruntime":
                summary = mlms_tracer.trace(["layer"])
                assert summary["coverage"] > 0
                assert summary["slowest"][0]["share"] > 0
        """
    )
    one.pytester.runpytest_subprocess("-k", "onnxruntime", *QUICK).assert_outcomes(passed=1)


def test_a_timeline_without_all_requests_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_some(*arguments: object) -> WrittenTrace:
        return WrittenTrace(size=1000, requests=10, dropped=4)

    monkeypatch.setattr(item_tracer, "write_perfetto", write_some)
    trace = TraceWriter().build()
    with pytest.warns(MlmsWarning, match=r"has 6 of 10 requests.*trace\.npz .* has them all"):
        item_tracer._write_timeline(trace, parents_of(trace).index, tmp_path / "trace.pftrace")


ONNX = DIGITS / "digits_cnn.onnx"


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """A case of a manifest with a local ONNX file."""
    loaded = load(copy_digits(tmp_path / "manifests"))
    return digits_case("trace", loaded=loaded)


def files_of(graph: Path) -> CaseFiles:
    return CaseFiles({"graph": graph}, None, {})


def flops_of(case: Case, graph: Path) -> int:
    cost = static_cost(case, files_of(graph))
    assert cost is not None
    return cost.flops


def test_the_work_is_that_of_the_cases_own_onnx_file(case: Case) -> None:
    cost = static_cost(case, files_of(ONNX))
    assert cost is not None
    assert [layer.type for layer in cost.layers].count("Conv") == 3


def test_the_work_is_for_a_whole_batch(case: Case) -> None:
    larger = replace(case, batch_size=8)
    assert flops_of(larger, ONNX) == 8 * flops_of(replace(case, batch_size=1), ONNX)


def test_another_framework_has_the_work_of_the_manifests_onnx_file(case: Case) -> None:
    symbols = DIGITS / "digits_cnn-symbol.json"
    assert flops_of(case, symbols) == flops_of(case, ONNX) > 0


def test_an_onnx_file_that_cannot_be_read_leaves_the_work_unknown(
    case: Case, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    assert static_cost(case, files_of(broken)) is None


def test_a_manifest_without_a_local_onnx_file_leaves_the_work_unknown(case: Case) -> None:
    remote = {"graph": "https://example.org/net.json"}
    model = case.model.model_copy(update=remote)
    manifest = case.loaded.manifest.model_copy(update={"models": [model]})
    without_onnx = replace(case, loaded=replace(case.loaded, manifest=manifest))
    assert static_cost(without_onnx, files_of(DIGITS / "digits_cnn-symbol.json")) is None
