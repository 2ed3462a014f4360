"""Where the time of a request goes on this side."""

from __future__ import annotations

from pytest_mlms.trace.builder import TraceBuilder
from pytest_mlms.trace.runs import TraceRun
from pytest_mlms.trace.spans import Trace, Track
from pytest_mlms.trace.steps import StepRow, step_rows


def requests(level: str, *scales: int) -> Trace:
    """Requests of 10 us times a scale.

    6 of pre-process with two steps of 2 of one name, and 4 of predict.
    """
    builder, start = TraceBuilder(), 0
    builder.add_run(TraceRun(level))
    track = builder.track(Track(0, 1, 1, "pytest", "thread"))
    for number, scale in enumerate(scales):
        for name, begin, end in (
            ("decode", 1, 3),
            ("decode", 4, 6),
            ("pre-process", 0, 6),
            ("predict", 6, 10),
            ("request", 0, 10),
        ):
            at = {"start": [start + begin * scale * 1000], "end": [start + end * scale * 1000]}
            builder.add(level=0, name=builder.text(name), track=track, run=0, request=number, **at)
        start += 20_000 * scale
    return builder.build()


def test_each_step_has_its_phase_and_its_share_of_the_request() -> None:
    assert step_rows(requests("application", 1, 1, 1, 1, 50)) == [
        StepRow("request", "", 1.0, 10.0, 1.0),
        StepRow("pre-process", "request", 1.0, 6.0, 0.6),
        StepRow("decode", "pre-process", 2.0, 4.0, 0.4),
        StepRow("predict", "request", 1.0, 4.0, 0.4),
    ]


def test_requests_whose_counters_were_read_are_not_timed() -> None:
    assert step_rows(requests("application+hardware", 1)) == []
