"""Arrivals, samples, percentiles and early stopping, held against LoadGen itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.measure.load.arrivals import loaded_samples, poisson_arrivals, sample_order
from pytest_mlms.measure.load.early_stopping import (
    LOADGEN_SHARES,
    estimate,
    least_within,
    loadgen_percentile,
)
from tests.support.loadgen import LoadGenRequest, LoadGenRun, run_loadgen

pytest.importorskip("mlperf_loadgen")

VERSION = "6.0.17"
SEEDS = [*range(18), 3_066_443_479_025_735_752, 2**64 - 9]
RATE = 20_000.5
MILLISECONDS = 30
LEAST = 300
LOADED = 64
LIMIT = 20_000


def seeds_of(seed: int) -> dict[str, int]:
    modulus = 2**64
    return {
        "qsl_rng_seed": seed,
        "sample_index_rng_seed": (seed + 1) % modulus,
        "schedule_rng_seed": (seed + 2) % modulus,
    }


def server_request(seed: int) -> LoadGenRequest:
    settings = {
        **seeds_of(seed),
        "server_target_qps": RATE,
        "server_target_latency_ns": LIMIT,
        "min_duration_ms": MILLISECONDS,
        "min_query_count": LEAST,
    }
    return LoadGenRequest("Server", settings, loaded=LOADED, total=LOADED + 10)


def stream_request(scenario: str, seed: int, loaded: int, least: int) -> LoadGenRequest:
    settings = {
        **seeds_of(seed),
        "min_duration_ms": 5,
        "min_query_count": least,
        "single_stream_expected_latency_ns": 10_000,
        "multi_stream_expected_latency_ns": 10_000,
        "multi_stream_samples_per_query": 8,
    }
    return LoadGenRequest(scenario, settings, loaded=loaded, total=loaded)


@pytest.fixture(scope="module")
def server_runs(tmp_path_factory: pytest.TempPathFactory) -> list[LoadGenRun]:
    requests = [server_request(seed) for seed in SEEDS]
    return run_loadgen(tmp_path_factory.mktemp("server"), requests)


STREAMS = {
    "SingleStream": stream_request("SingleStream", 3, 100, 700),
    "MultiStream": stream_request("MultiStream", 4, 65, 700),
    "many samples": stream_request("SingleStream", 5, 70_000, 100),
    "one sample": stream_request("SingleStream", 6, 1, 100),
    "few queries": stream_request("SingleStream", 7, 10, 100),
}


@pytest.fixture(scope="module")
def stream_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LoadGenRun]:
    folder: Path = tmp_path_factory.mktemp("streams")
    return dict(zip(STREAMS, run_loadgen(folder, list(STREAMS.values())), strict=True))


def test_the_loadgen_is_the_one_that_this_was_written_from(server_runs: list[LoadGenRun]) -> None:
    assert str(server_runs[0].log["loadgen_version"]).startswith(VERSION)


def test_arrivals_are_loadgens_to_the_nanosecond(server_runs: list[LoadGenRun]) -> None:
    for seed, run in zip(SEEDS, server_runs, strict=True):
        schedule_seed = seeds_of(seed)["schedule_rng_seed"]
        arrivals = poisson_arrivals(RATE, schedule_seed, MILLISECONDS * 1_000_000, LEAST)
        np.testing.assert_array_equal(arrivals, run.scheduled, f"seed {seed}")


def test_samples_of_server_are_loadgens(server_runs: list[LoadGenRun]) -> None:
    for seed, run in zip(SEEDS, server_runs, strict=True):
        loaded = loaded_samples(LOADED, seed)
        assert run.log["loaded_qsl_set"] == loaded.tolist()
        order = sample_order(
            loaded, len(run.samples), seeds_of(seed)["sample_index_rng_seed"], least=LEAST
        )
        np.testing.assert_array_equal(order.ravel(), run.samples, f"seed {seed}")


@pytest.mark.parametrize("name", STREAMS)
def test_samples_of_streams_are_loadgens(name: str, stream_runs: dict[str, LoadGenRun]) -> None:
    request = STREAMS[name]
    run = stream_runs[name]
    width = 8 if request.scenario == "MultiStream" else 1
    order = sample_order(
        loaded_samples(request.loaded, request.settings["qsl_rng_seed"]),
        len(run.samples) // width,
        request.settings["sample_index_rng_seed"],
        least=request.settings["min_query_count"],
        samples_per_query=width,
    )
    np.testing.assert_array_equal(order.ravel(), run.samples)


def test_percentiles_are_those_of_loadgens_log(
    server_runs: list[LoadGenRun], stream_runs: dict[str, LoadGenRun]
) -> None:
    for run in [*server_runs[:5], *stream_runs.values()]:
        check_percentiles(run, "latency", run.latencies)
    run = stream_runs["MultiStream"]
    check_percentiles(run, "per_query_latency", run.query_latencies)


def check_percentiles(run: LoadGenRun, key: str, latencies: np.ndarray) -> None:
    log = run.log
    ordered = np.sort(latencies)
    for share in LOADGEN_SHARES:
        expected = log[f"result_{share * 100:.2f}_percentile_{key}_ns"]
        assert loadgen_percentile(ordered, share) == expected


def test_early_stopping_estimates_are_those_of_loadgens_log(
    stream_runs: dict[str, LoadGenRun],
) -> None:
    for name in ("SingleStream", "many samples", "few queries"):
        run = stream_runs[name]
        ordered = np.sort(run.latencies)
        assert run.log["early_stopping_latency_ss"] == (estimate(ordered, 0.9) or 0)
        assert run.log["early_stopping_latency_ms"] == (estimate(ordered, 0.99) or 0)
    run = stream_runs["MultiStream"]
    ordered = np.sort(run.query_latencies)
    assert run.log["early_stopping_latency_ms"] == estimate(ordered, 0.99)


def test_servers_rule_is_that_of_loadgens_log(server_runs: list[LoadGenRun]) -> None:
    for run in server_runs:
        over = int(np.count_nonzero(run.latencies > LIMIT))
        queries = len(run.latencies)
        assert run.log["result_overlatency_query_count"] == over
        missing = least_within(over, 0.99) + over - queries
        assert run.log["early_stopping_met"] == (missing <= 0)
        if missing > 0:
            assert f"at least {missing} more queries" in run.log["early_stopping_result"]
