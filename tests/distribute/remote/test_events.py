"""Events of a worker on another host, of which false ones ended the run in xdist."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.remote import getinfodict, serialize_warning_message

from pytest_mlms.distribute.remote.events import CheckedEvents
from tests.distribute.test_xdist_patches import recorded_warning

PLACE = ("m.yaml", 3, "test_accuracy")
REPORT: dict[str, Any] = {
    "$report_type": "TestReport",
    "nodeid": "a",
    "item_index": 0,
    "location": PLACE,
    "outcome": "passed",
    "longrepr": None,
    "when": "call",
    "keywords": {"a": 1},
    "sections": [("stdout", "text")],
    "user_properties": [("mlms", {"a": None})],
    "duration": 0.1,
}
FAILED = {**REPORT, "$report_type": "CollectReport", "outcome": "failed", "longrepr": "text"}
OUTPUT = {"exitstatus": 0, "shouldfail": False, "shouldstop": "text"}
WARNING = {
    "warning_message_data": serialize_warning_message(recorded_warning(UserWarning("a"))),
    "when": "config",
    "nodeid": "",
    "location": None,
}
READY = ("workerready", {"workerinfo": getinfodict()})
COLLECTED = ("collectionfinish", {"topdir": "/a", "ids": ["a"]})
FINISHED = ("workerfinished", {"workeroutput": OUTPUT})
HONEST: list[Any] = [
    ("warning_recorded", WARNING),
    READY,
    ("collectionstart", {}),
    ("collectreport", {"data": FAILED}),
    COLLECTED,
    ("logstart", {"nodeid": "a", "location": ("m.yaml", None, "a")}),
    ("testreport", {"data": REPORT}),
    ("testreport", {"data": {**REPORT, "longrepr": ("m.yaml", 3, "reason")}}),
    ("testreport", {"data": {**REPORT, "longrepr": {"reprcrash": {}, "reprtraceback": {}}}}),
    ("logfinish", {"nodeid": "a", "location": PLACE}),
    ("runtest_protocol_complete", {"item_index": 0, "duration": 1}),
    ("unscheduled", {"indices": []}),
    ("internal_error", {"formatted_error": "text"}),
    FINISHED,
    -1,
]


def taken(*events: Any) -> tuple[list[Any], list[str]]:
    """Return the events that xdist takes, and what is wrong with the worker."""
    found: list[Any] = []
    problems: list[str] = []
    checked = CheckedEvents(found.append, problems.append)
    for event in events:
        checked(event)
    return found, problems


def test_the_events_of_an_honest_worker_are_taken() -> None:
    assert taken(*HONEST) == (HONEST, [])


def of_report(**changes: Any) -> Any:
    return ("testreport", {"data": {**REPORT, **changes}})


@pytest.mark.parametrize(
    "event",
    [
        ("teardownreport", {"data": REPORT}),
        ("logwarning", {}),
        (5, {}),
        ("workerready",),
        ("workerready", {"workerinfo": {"version": 3, "executable": "a"}}),
        ("workerfinished", {"workeroutput": {}}),
        ("logstart", {"nodeid": "a", "location": ("m.yaml", "3", "a")}),
        ("logstart", {"nodeid": "a", "location": PLACE, "more": 1}),
        ("logfinish", {"nodeid": "a", "location": PLACE[:2]}),
        ("collectreport", {"data": {**FAILED, "outcome": "passed"}}),
        ("collectreport", {"data": {**FAILED, "longrepr": []}}),
        of_report(duration=float("nan")),
        of_report(item_index="0"),
        of_report(sections=[("a",)]),
        of_report(user_properties=[1]),
        of_report(longrepr=["a"]),
        ("runtest_protocol_complete", {"item_index": 1.5, "duration": 1}),
        ("unscheduled", {"indices": 3}),
        ("unscheduled", {"indices": ["a"]}),
        ("warning_recorded", {**WARNING, "location": 5}),
        COLLECTED,
        READY,
    ],
)
def test_a_false_event_gives_the_worker_up_and_nothing_after_it_is_taken(event: Any) -> None:
    before = [] if event is COLLECTED else [READY]
    found, problems = taken(*before, event, event, ("internal_error", {"formatted_error": ""}), -1)
    assert found == [*before, -1]
    assert len(problems) == 1


def test_nothing_is_taken_after_the_end_of_a_worker() -> None:
    assert taken(READY, FINISHED, FINISHED, COLLECTED) == ([READY, FINISHED], [])
