"""Arrivals, samples, percentiles and early stopping, held against LoadGen itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.records import Verdict
from pytest_mlms.measure.load.arrivals import loaded_samples, poisson_arrivals, sample_order
from pytest_mlms.measure.load.evidence import judge_run
from pytest_mlms.measure.load.loadgen import (
    LOADGEN_SHARES,
    estimate,
    fails,
    least_within,
    loadgen_percentile,
    most_over,
    queries_needed,
)
from tests.support.loadgen import LoadGenRequest, LoadGenRun, run_loadgen

SHARES = st.sampled_from([0.5, 0.9, 0.95, 0.97, 0.99, 0.999])


@given(st.integers(0, 500), SHARES)
def test_the_queries_within_a_limit_are_the_least_that_show_it(over: int, share: float) -> None:
    within = least_within(over, share)
    assert scipy.stats.binom.cdf(over, within + over, 1 - share) < 0.01
    if within > 1:
        assert scipy.stats.binom.cdf(over, within - 1 + over, 1 - share) >= 0.01


@pytest.mark.parametrize(
    ("share", "least"), [(0.5, 11), (0.9, 64), (0.95, 130), (0.99, 662), (0.999, 6636)]
)
def test_a_percentile_needs_as_many_queries_as_loadgen_says(share: float, least: int) -> None:
    assert queries_needed(share) == least
    ordered = np.arange(least)
    assert estimate(ordered, share) == least - 1
    assert estimate(ordered[1:], share) is None


@given(st.integers(0, 20_000), SHARES)
def test_the_queries_that_may_be_over_are_the_most(queries: int, share: float) -> None:
    over = most_over(queries, share)
    assert over == -1 or least_within(over, share) + over <= queries
    assert least_within(over + 1, share) + over + 1 > queries


@given(st.integers(1, 20_000), st.data(), SHARES)
def test_a_run_fails_where_so_many_over_the_limit_are_rare(
    queries: int, data: st.DataObject, share: float
) -> None:
    over = data.draw(st.integers(0, min(queries, 50)))
    probability = scipy.stats.binom.sf(over - 1, queries, 1 - share)
    if abs(probability - 0.01) > 1e-9:
        assert fails(queries, over, share) == (probability < 0.01)


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


TOKENS = (2, 3, 7, 4)
TOKEN_LIMITS = [(10**9, 10**9), (LIMIT, 2_000), (LIMIT, 10**9), (10**9, 2_000), (1, 1)]
"""Nanoseconds to the first token, and for each further one."""


def token_request(ttft: int, tpot: int, tokens: Sequence[int]) -> LoadGenRequest:
    limits = {"use_token_latencies": True, "ttft_latency": ttft, "tpot_latency": tpot}
    request = server_request(ttft + tpot)
    return request._replace(settings={**request.settings, **limits}, tokens=tokens)


@pytest.fixture(scope="module")
def token_runs(tmp_path_factory: pytest.TempPathFactory) -> list[LoadGenRun]:
    requests = [token_request(ttft, tpot, TOKENS) for ttft, tpot in TOKEN_LIMITS]
    requests.append(token_request(10**9, 10**9, [1]))
    return run_loadgen(tmp_path_factory.mktemp("tokens"), requests)


def token_times(run: LoadGenRun) -> tuple[np.ndarray, np.ndarray]:
    """Return the nanoseconds to the first token, and for each further one, as ours are computed."""
    first = run.first_tokens
    counts = np.array(TOKENS)[run.samples % len(TOKENS)]
    return first, (run.whole_answers - first) // (counts - 1)


def test_percentiles_of_tokens_are_those_of_loadgens_log(token_runs: list[LoadGenRun]) -> None:
    for run in token_runs[:-1]:
        ttft, tpot = map(np.sort, token_times(run))
        for share in LOADGEN_SHARES:
            percent = f"{share * 100:.2f}_percentile"
            log = run.log
            assert (
                loadgen_percentile(ttft, share) == log[f"result_first_token_{percent}_latency_ns"]
            )
            assert (
                loadgen_percentile(tpot, share) == log[f"result_time_per_output_token_{percent}_ns"]
            )


def test_the_rule_on_both_limits_of_tokens_is_that_of_loadgens_log(
    token_runs: list[LoadGenRun],
) -> None:
    for run, limits in zip(token_runs, TOKEN_LIMITS, strict=False):
        found = [
            judge_run(values, np.zeros(1, np.int64), limit, 0.99)
            for values, limit in zip(token_times(run), limits, strict=True)
        ]
        enough = all(verdict.missing == 0 for verdict in found)
        assert run.log["early_stopping_met"] == enough
        within = [each.percentile <= limit for each, limit in zip(found, limits, strict=True)]
        assert run.log["result_perf_constraints_met"] == all(within)
        both = all(each.verdict is Verdict.PASSED for each in found)
        assert both == (enough and all(within))


def test_an_answer_of_one_token_is_an_error_of_loadgen(token_runs: list[LoadGenRun]) -> None:
    assert token_runs[-1].log["error_runtime"] == "Number of tokens need to be greater than 1"
