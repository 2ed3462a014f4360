"""Tests of the scenarios of a manifest: their keys, labels and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.manifest.scenarios import MultiStream, ScenarioEntry, Server, labels_of
from tests.support.small_manifest import error_of, small

LIMITED = {"rate": "200 /s", "latency": "15 ms"}


def labels(*entries: Any) -> list[str]:
    return labels_of([ScenarioEntry.model_validate(entry) for entry in entries])


def server(**changes: Any) -> dict[str, Any]:
    return {"server": {**LIMITED, **changes}}


def test_a_server_has_its_rate_and_limit_in_base_units() -> None:
    load = ScenarioEntry.model_validate(server(percentile=99.9)).load
    assert isinstance(load, Server)
    assert (load.rate, load.latency, load.share) == (200, 0.015, 0.999)


def test_a_name_alone_has_the_defaults() -> None:
    assert ScenarioEntry.model_validate("single_stream").load is None
    assert ScenarioEntry.model_validate("multi_stream").load == MultiStream(samples_per_query=8)


LABELS = {
    "offline": "offline",
    "multi_stream": "multi_stream",
    "multi_stream-4": {"multi_stream": {"samples_per_query": 4}},
    "server-200-15ms": server(),
    "server-0.5-15ms": server(rate="0.5 /s"),
    "server-200-2ms": server(latency="2 ms"),
    "server-123456.75-15ms": server(rate="123456.75 /s"),
    "server-200-15ms-p99.9": server(percentile=99.9),
    "server-2-ttft2000ms-tpot200ms": {"server": {"rate": "2 /s", "ttft": "2 s", "tpot": "200 ms"}},
    "peak-15ms": {"peak": {"latency": "15 ms"}},
    "peak-15ms-0.1": {"peak": {"latency": "15 ms", "precision": "10 %"}},
    "replay-day_one_trace.csv": {"replay": {"arrivals": "day one/trace.csv"}},
    "replay-trace.csv-x2-15ms": {
        "replay": {"arrivals": "trace.csv", "speed": 2, "latency": "15 ms"}
    },
}
"""A scenario's name in ids -> the scenario as it is written."""


def test_a_scenario_is_called_by_its_name_and_keys_whatever_others_there_are() -> None:
    assert labels(*LABELS.values()) == list(LABELS)
    assert labels(*reversed(LABELS.values())) == list(reversed(LABELS))
    assert [label for entry in LABELS.values() for label in labels(entry)] == list(LABELS)


def test_files_of_arrivals_that_differ_by_a_sign_have_numbers() -> None:
    arrivals = [{"replay": {"arrivals": name}} for name in ("a b.csv", "a_b.csv")]
    assert labels(*arrivals) == ["replay-a_b.csv", "replay-a_b.csv-2"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (server(rate="0 /s"), ".rate: a rate of 0 /s can't be generated; write 0.001 /s to "),
        (server(rate="1e9 /s"), ".rate: a rate of 1e+09 /s can't be generated; write 0.001 /s "),
        (server(rate=200), ".rate: 200 has no unit; write one of /s, /min, as in '200 /s'"),
        (server(latency="0 ms"), ".latency: a latency is more than 0 s, and at most 60 min; "),
        (server(tpot="0 ms"), ".tpot: a latency is more than 0 s, and at most 60 min; "),
        ({"peak": {"precision": "5 %"}}, ": 'latency' is missing; write 'latency: …', as in "),
        ({"peak": {"tpot": "10 ms"}}, ": tpot alone has no peak, as it doesn't grow with the wait"),
        (server(latency="2 h"), ".latency: '2 h' has the unit 'h'; write one of ns, us,"),
        (server(percentile=100), ".percentile: found 100; write a percentile above 0 and below"),
        (server(percentile=0), ".percentile: found 0; write a percentile above 0 and below 100"),
        (server(burst=2), ": unknown key 'burst'; write one of latency, percentile, rate"),
        (
            {"server": {"rate": "1 /s"}},
            ": 'latency' is missing; write 'latency: …', as in '15 ms', or ",
        ),
        ({"sever": LIMITED}, ": unknown key 'sever'; did you mean 'server'?"),
        (
            {"server": LIMITED, "offline": None},
            ": a scenario has one name, this one has 2; begin each with '- '",
        ),
        (
            {"multi_stream": {"samples_per_query": 0}},
            ".samples_per_query: found 0; write a whole number from 1 to 65,536",
        ),
        ({"replay": {}}, ": 'arrivals' is missing; write 'arrivals: …', a CSV file beside the"),
        (
            {"replay": {"arrivals": "https://here/t.csv"}},
            ".arrivals: 'https://here/t.csv' is no local file; write the path of a CSV file",
        ),
        (
            {"replay": {"arrivals": "t.csv", "speed": 0}},
            ".speed: found 0; write a number from 0.001 to 1,000,000",
        ),
    ],
)
def test_a_wrong_scenario_says_what_to_write(
    entry: dict[str, Any], message: str, tmp_path: Path
) -> None:
    error = error_of(tmp_path, small(evaluate={"scenarios": [entry]}))
    assert message in error
    assert "evaluate.scenarios[0]" in error


def test_a_scenario_that_is_there_twice_is_an_error(tmp_path: Path) -> None:
    error = error_of(tmp_path, small(evaluate={"scenarios": [server(), server()]}))
    assert "evaluate.scenarios: 'server' is there twice; keep one" in error


@pytest.mark.parametrize("key", ["instances", "batcher"])
def test_instances_without_queries_that_wait_are_an_error(key: str, tmp_path: Path) -> None:
    values: dict[str, Any] = {"instances": 2, "batcher": {"max_batch": 8, "max_delay": "2 ms"}}
    evaluate = {"scenarios": ["multi_stream"], key: values[key]}
    error = error_of(tmp_path, small(evaluate=evaluate))
    assert f"{key} serves no scenario here; add the scenario server, replay or peak" in error
