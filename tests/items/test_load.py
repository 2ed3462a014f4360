"""Tests of items under load, with real agents: what they measure, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.project import Project, sha256

MANIFEST = """\
name: fixed
version: 1.0.0
task: regression
models: [{{framework: server, graph: model, sha256: {digest}, options: {{{options}}}}}]
inputs: [{{name: x, type: tensor, element_type: float32}}]
outputs: [{{name: y, type: tensor}}]
evaluate:
  scenarios:
{scenarios}
{more}
"""
ENOUGH = "latency: 60 s"
"""A limit that a busy machine meets, too."""

MULTI_STREAM, REPLAY = "multi_stream-4", "replay-trace.csv-60000ms"
FAST, SLOW = "server-2000-60000ms", "server-1000-60000ms-p90"
"""The scenarios' names in ids."""

_DIES_AT = 700  # a call of the load: the warm-up has 500 at most, and the load 919 or more
SHORT = "--mlms-budget=4"
TABLE = "mlms: queries under load, worst first"


def write_manifest(
    project: Project, *scenarios: str, name: str = "fixed", options: str = "", more: str = ""
) -> None:
    """Write the manifest of a model whose calls take a fixed time, as ``options`` say."""
    (project.folder / "model").write_bytes(b"model")
    text = MANIFEST.format(
        digest=sha256(b"model"),
        options=options,
        scenarios="\n".join(f"    - {scenario}" for scenario in scenarios),
        more=more,
    )
    (project.folder / f"{name}.yaml").write_text(text)


@pytest.fixture
def loads(project: Project) -> Project:
    """A project without the digits model."""
    project.drop()
    return project


def items_by_scenario(project: Project) -> dict[str, dict[str, Any]]:
    return {item["scenario"]: item for item in project.items() if item["kind"] == "performance"}


@pytest.mark.slow
def test_each_load_is_measured_from_its_schedule(loads: Project) -> None:
    rows = "".join(f"{number / 1000}\n" for number in range(500))
    (loads.folder / "trace.csv").write_text(rows)
    write_manifest(
        loads,
        "multi_stream: {samples_per_query: 4}",
        f"server: {{rate: 2000 /s, {ENOUGH}}}",
        f"server: {{rate: 1000 /s, {ENOUGH}, percentile: 90}}",
        f"replay: {{arrivals: trace.csv, {ENOUGH}}}",
        more="  instances: 2\n  batcher: {max_batch: 4, max_delay: 1 ms}",
    )
    result = loads.run("-k", "performance", SHORT)
    result.assert_outcomes(passed=4)
    assert TABLE in result.stdout.str()
    items = items_by_scenario(loads)
    assert set(items) == {MULTI_STREAM, FAST, SLOW, REPLAY}
    for item in items.values():
        (process,) = item["processes"]
        check_process(item, process["load"])
    assert items[FAST]["load"]["rate"] == 2000
    assert items[FAST]["processes"][0]["load"]["instances"] == 2
    assert items[REPLAY]["processes"][0]["load"]["queries"] == 500
    assert items[MULTI_STREAM]["processes"][0]["load"]["largest_batch"] == 4
    check_samples(loads, items[REPLAY])


def check_process(item: dict[str, Any], load: dict[str, Any]) -> None:
    estimates = item["estimates"]
    worst = estimates["query_latency"]["value"]
    share = "p90" if item["scenario"] == SLOW else "p99"
    assert load["percentiles"][share]["loadgen"] == pytest.approx(worst)
    assert estimates["query_rate"]["value"] == pytest.approx(load["rate"])
    if item["scenario"] != MULTI_STREAM:
        assert load["verdict"] == "PASSED"
        (limit,) = item["limits"]
        assert (limit["quantity"], limit["max"]) == ("query_latency", 60)


def check_samples(project: Project, item: dict[str, Any]) -> None:
    """Check that calls of a replay start when they are scheduled."""
    with np.load(project.results / item["artifacts"]["samples-0.npz"]) as times:
        np.testing.assert_allclose(times["start"], np.arange(500) / 1000)
        assert np.all(times["issued"] >= times["start"])
        assert np.all(times["end"] >= times["issued"])


@pytest.mark.slow
def test_a_load_that_can_not_be_measured_says_why(loads: Project) -> None:
    (loads.folder / "unsorted.csv").write_text("0\n2\n1\n")
    write_manifest(
        loads,
        f"server: {{rate: 0.01 /s, {ENOUGH}}}",
        "server: {rate: 1000 /s, latency: 2 ms}",
        f"replay: {{arrivals: unsorted.csv, {ENOUGH}}}",
        f"replay: {{arrivals: missing.csv, {ENOUGH}}}",
        options="seconds: 0.005",
    )
    write_manifest(
        loads,
        f"server: {{rate: 400 /s, {ENOUGH}, percentile: 99.5}}",
        name="dying",
        options=f"seconds: 0.002, die: {_DIES_AT}",
    )
    write_manifest(
        loads,
        f"server: {{rate: 1000 /s, {ENOUGH}}}",
        name="narrow",
        options="axis: 1",
        more="  batcher: {max_batch: 8, max_delay: 0 ms}",
    )
    loads.run("-k", "performance", SHORT)
    messages = {}
    for item in loads.items():
        messages[item["manifest"]["path"].rpartition("/")[2], item["scenario"]] = item["message"]
    expected = {
        ("fixed.yaml", "server-0.01-60000ms"): ": p99 takes 459 queries in each process, 45,900 s",
        ("fixed.yaml", "server-1000-2ms"): "the fastest call alone takes longer, so no load",
        ("fixed.yaml", "replay-unsorted.csv-60000ms"): ".csv:3: 1 s is before the row above",
        ("fixed.yaml", "replay-missing.csv-60000ms"): ".csv does not exist; correct the path",
        ("dying.yaml", "server-400-60000ms-p99.5"): "ended while it did 'load_run'",
        ("narrow.yaml", "server-1000-60000ms"): "a batch of 8 does not fit input 'x'",
    }
    assert messages.keys() == expected.keys()
    for key, text in expected.items():
        assert text in messages[key]
    (dying,) = [item for item in loads.items() if item["manifest"]["path"].endswith("dying.yaml")]
    assert "part-0.npz" in dying["artifacts"]
