"""Steps of a request on the pytest side."""

from __future__ import annotations

from pytest_mlms.measure.trace.analyses.requests import StepRow, step_rows
from pytest_mlms.measure.trace.spans import Trace
from tests.support.traces import TraceWriter

US = 1000
STEPS = (
    ("decode", 1, 3),
    ("decode", 4, 6),
    ("pre-process", 0, 6),
    ("predict", 6, 10),
    ("request", 0, 10),
)


def requests(level: str, *scales: int) -> Trace:
    """Requests of 10 µs times a scale: 6 of pre-process with two steps of 2, and 4 of predict."""
    writer = TraceWriter()
    run = writer.run(level)
    at = 0
    for number, scale in enumerate(scales):
        run.request = number
        for name, start, end in STEPS:
            run.span("application", name, at + start * scale * US, at + end * scale * US)
        at += 20 * scale * US
    return writer.build()


def test_each_step_has_its_phase_and_its_share_of_the_request() -> None:
    assert step_rows(requests("application", 1, 1, 1, 1, 50)) == [
        StepRow("request", "", 1.0, 10.0, 1.0),
        StepRow("pre-process", "request", 1.0, 6.0, 0.6),
        StepRow("decode", "pre-process", 2.0, 4.0, 0.4),
        StepRow("predict", "request", 1.0, 4.0, 0.4),
    ]


def test_requests_with_counters_have_no_latencies() -> None:
    assert step_rows(requests("application+hardware", 1)) == []


def test_a_run_without_spans_has_no_rows() -> None:
    assert step_rows(requests("application")) == []
