"""The headline of an item."""

from __future__ import annotations

from tests.support.result_lines import estimate, upgrade
from tests.support.views import view_of


def test_the_headline_of_calls_is_their_median() -> None:
    estimates = {"throughput": estimate(200, 190, 210, "/s"), "latency_p50": estimate(0.004, 0, 1)}
    assert view_of({"estimates": estimates}).headline == "latency p50 4.00 ms"


def test_the_headline_of_queries_is_the_percentile_that_is_limited() -> None:
    estimates = {"latency_p50": estimate(0.004, 0, 1), "query_latency": estimate(0.009, 0, 1)}
    item = view_of({"estimates": estimates, "load": {"latency": 0.01, "percentile": 90.0}})
    assert item.headline == "query latency p90 9.00 ms"


def test_the_headline_of_what_is_worse_is_that() -> None:
    (latency,) = upgrade()["comparisons"]
    fine = {**latency, "verdict": "PASSED", "ratio": 1.002}
    memory = {**latency, "quantity": "peak_memory", "ratio": 1.5, "low": 1.4, "high": 1.6}
    item = view_of({**upgrade(), "comparisons": [fine, memory]})
    assert item.headline == "peak memory ×1.500 (1.400 to 1.600)"
    limit = {"quantity": "load_time", "max": 1.0, "place": "m.yaml:1", "verdict": "FAILED"}
    estimates = {"latency_p50": estimate(0.004, 0.003, 0.005), "load_time": estimate(2.0, 1.9, 2.1)}
    assert view_of({"estimates": estimates, "limits": [limit]}).headline == "load time 2.00 s"


def test_the_case_tells_what_the_gpu_did_where_no_text_of_an_upgrade_does() -> None:
    notes = ["GPU 1980 MHz, 412 W, 47 °C", "L2 hot (3.0 MiB of 60.0 MiB)"]
    text = view_of({"device_used": "cuda:0", "gpu_notes": notes}).case_text
    assert text == f"cuda:0, batch size 1, {notes[0]}, {notes[1]}"
    assert notes[0] not in view_of({"kind": "upgrade", "gpu_notes": notes}).case_text
    assert view_of({"gpu_notes": 7}).case_text


def test_the_headline_of_nothing_is_empty() -> None:
    assert view_of({}).headline == ""
