"""MLPerf's LoadGen in a real agent."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.measure.agent.load import Batcher, LoadGenPlan, LoadPlan
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.measure.load.arrivals import poisson_arrivals
from pytest_mlms.measure.load.loadgen import (
    LoadGenSettings,
    read_summary,
    server_settings,
    settings_of,
)
from tests.support.load_agents import LIBRARY, in_turn, open_server
from tests.support.loadgen import LoadGenRun

needs_loadgen = pytest.mark.skipif(
    importlib.util.find_spec("mlperf_loadgen") is None,
    reason="needs the package mlcommons_loadgen",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Predictor]:
    with open_server(tmp_path_factory.mktemp("server"), seconds=0.001) as opened:
        yield opened


def plan_of(asked: LoadGenSettings, **fields: object) -> LoadGenPlan:
    return LoadGenPlan(asked.scenario, asked.settings, longest=60, **fields)  # type: ignore[arg-type]


def kept(folder: Path, logs: dict[str, bytes]) -> LoadGenRun:
    for name, content in logs.items():
        (folder / name).write_bytes(content)
    return LoadGenRun(folder)


@needs_loadgen
@pytest.mark.parametrize("scenario", ["single_stream", "multi_stream", "server", "offline"])
def test_loadgen_drives_each_scenario_and_its_logs_come_back(
    server: Predictor, scenario: str, tmp_path: Path
) -> None:
    own = server_settings(200, 1.0, 0.9) if scenario == "server" else {}
    own |= {"max_query_count": 100} if scenario != "offline" else {"offline_expected_qps": 100}
    asked = settings_of(scenario, 7, 0.1, valid=False, **own)
    per_query = 8 if scenario == "multi_stream" else 1
    if per_query > 1:
        asked.settings["multi_stream_samples_per_query"] = per_query  # type: ignore[index]
    logs = server.run_loadgen(LIBRARY, plan_of(asked, samples_per_query=per_query))
    assert {"mlperf_log_summary.txt", "mlperf_log_detail.txt", "mlperf_log_accuracy.json"} < set(
        logs
    )
    summary = read_summary(logs["mlperf_log_summary.txt"].decode())
    assert summary.values
    run = kept(tmp_path, logs)
    assert len(run.latencies) >= per_query
    assert run.latencies.min() >= 1_000_000


@needs_loadgen
def test_instances_and_batches_serve_its_queries(server: Predictor, tmp_path: Path) -> None:
    own = {**server_settings(400, 1.0, 0.9), "max_query_count": 200}
    asked = settings_of("server", 7, 0.1, valid=False, **own)
    plan = plan_of(asked, instances=2, batcher=Batcher(4, 2_000_000))
    run = kept(tmp_path, server.run_loadgen(LIBRARY, plan))
    assert len(run.latencies) >= 40


@needs_loadgen
def test_outputs_are_in_its_accuracy_log(server: Predictor) -> None:
    asked = settings_of("offline", 7, 0.1, valid=False)
    logs = server.run_loadgen(LIBRARY, plan_of(asked, mode="AccuracyOnly"))
    found = json.loads(logs["mlperf_log_accuracy.json"])
    values = {
        entry["qsl_idx"]: float(np.frombuffer(bytes.fromhex(entry["data"]), "f4")[0])
        for entry in found
    }
    assert values == {place: float(place) for place in range(len(LIBRARY))}


@needs_loadgen
def test_a_setting_that_loadgen_lacks_is_refused(server: Predictor) -> None:
    with pytest.raises(Refused, match="LoadGen has no setting 'speed'"):
        server.run_loadgen(LIBRARY, LoadGenPlan("Server", {"speed": 1}, longest=10))


@needs_loadgen
def test_a_call_that_raises_ends_the_run_with_its_error(tmp_path: Path) -> None:
    with open_server(tmp_path, fault=20) as faulty:
        asked = settings_of("single_stream", 7, 0.1, valid=False)
        with pytest.raises(Refused, match="call 20 is one too many"):
            faulty.run_loadgen(LIBRARY, plan_of(asked))


@needs_loadgen
def test_both_generators_schedule_the_same_queries(server: Predictor, tmp_path: Path) -> None:
    asked = settings_of("server", 7, 0.5, valid=False, **server_settings(1000, 1.0, 0.99))
    theirs = kept(tmp_path, server.run_loadgen(LIBRARY, plan_of(asked)))
    arrivals = poisson_arrivals(1000, 7, 500_000_000, 662)
    ours = server.load_run(LIBRARY, LoadPlan(in_turn(len(arrivals)), 60, arrivals))
    assert np.array_equal(theirs.scheduled, ours.scheduled)
    assert len(theirs.latencies) == len(ours.latencies)
