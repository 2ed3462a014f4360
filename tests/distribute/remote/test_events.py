"""Events of a worker on another host, of which false ones ended the run in xdist."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from xdist.remote import getinfodict, serialize_warning_message
from xdist.workermanage import Marker

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
FAILED: dict[str, Any] = {
    "$report_type": "CollectReport",
    "nodeid": "a",
    "outcome": "failed",
    "longrepr": "text",
    "result": None,
    "sections": [],
}
CRASH = {"path": "a.py", "lineno": 3, "message": "text"}
ENTRY = {
    "type": "ReprEntry",
    "data": {
        "lines": ["text"],
        "reprfuncargs": {"args": [("a", "1")]},
        "reprlocals": None,
        "reprfileloc": CRASH,
        "style": "long",
    },
}
TRACEBACK = {"reprentries": [ENTRY], "extraline": None, "style": "long"}
TRACE: dict[str, Any] = {
    "reprcrash": CRASH,
    "reprtraceback": TRACEBACK,
    "sections": [("title", "text", "-")],
    "chain": [(copy.deepcopy(TRACEBACK), CRASH, None)],  # it shares nothing, as execnet's
}
OUTPUT = {"exitstatus": 0, "shouldfail": False, "shouldstop": "text"}
WARNING: dict[str, Any] = {
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
    ("testreport", {"data": {**REPORT, "outcome": "failed", "longrepr": TRACE}}),
    ("logfinish", {"nodeid": "a", "location": PLACE}),
    ("runtest_protocol_complete", {"item_index": 0, "duration": 1}),
    ("unscheduled", {"indices": []}),
    ("internal_error", {"formatted_error": "text"}),
    FINISHED,
    Marker.END,
]


Taken = tuple[list[Any], list[str]]


@pytest.fixture
def taken(pytestconfig: pytest.Config) -> Callable[..., Taken]:
    """Return a function of events: those that xdist takes, and what is wrong with the worker."""
    return partial(_taken, pytestconfig)


def _taken(config: pytest.Config, *events: Any) -> Taken:
    found: list[Any] = []
    problems: list[str] = []
    checked = CheckedEvents(found.append, problems.append, config)
    for event in events:
        checked(event)
    return found, problems


def test_the_events_of_an_honest_worker_are_taken(taken: Callable[..., Taken]) -> None:
    assert taken(*HONEST) == (HONEST, [])


def test_the_report_of_a_subtest_is_taken(
    pytester: pytest.Pytester, pytestconfig: pytest.Config, taken: Callable[..., Taken]
) -> None:
    if not pytestconfig.pluginmanager.hasplugin("subtests"):
        pytest.skip("pytest has subtests since 9.0")
    pytester.makepyfile("def test_a(subtests):\n    with subtests.test('b'): assert 0")
    reports = pytester.inline_run("-pno:mlms").getreports("pytest_runtest_logreport")
    data = [
        pytestconfig.hook.pytest_report_to_serializable(config=pytestconfig, report=report)
        for report in reports
    ]
    assert "_subtest.context" in data[1]
    events = [("testreport", {"data": {**each, "item_index": 0}}) for each in data]
    assert taken(READY, *events) == ([READY, *events], [])


def test_a_reason_to_skip_is_hashable_as_pytest_counts_it(taken: Callable[..., Taken]) -> None:
    skipped = {**FAILED, "outcome": "skipped", "longrepr": ["m.yaml", 3, "reason"]}
    (_, (_, event)), problems = taken(READY, ("collectreport", {"data": skipped}))
    assert not problems
    assert hash(event["data"]["longrepr"])


def of_report(**changes: Any) -> Any:
    return ("testreport", {"data": {**REPORT, **changes}})


def of_trace(**changes: Any) -> Any:
    return of_report(outcome="failed", longrepr={**TRACE, **changes})


def of_warning(**changes: Any) -> Any:
    data = {**WARNING["warning_message_data"], **changes}
    return ("warning_recorded", {**WARNING, "warning_message_data": data})


@pytest.mark.parametrize(
    "event",
    [
        ("teardownreport", {"data": REPORT}),
        ("logwarning", {}),
        (5, {}),
        ("workerready",),
        5,
        "ab",
        {"a": 1},
        None,
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
        of_report(**{"$report_type": "CollectReport"}),
        of_report(**{"$report_type": "Other"}),
        of_report(**{"$report_type": None}),
        of_report(wasxfail=5),
        of_report(outcome="skipped", longrepr="text"),
        of_report(outcome="skipped"),
        of_trace(reprcrash={**CRASH, "message": 5}),
        of_trace(reprcrash={**CRASH, "lineno": "3"}),
        of_trace(reprcrash={**CRASH, "more": 1}),
        of_trace(sections=[("title", "text")]),
        of_trace(chain=[(TRACEBACK, CRASH)]),
        of_trace(reprtraceback={**TRACEBACK, "extraline": 5}),
        of_trace(reprtraceback={**TRACEBACK, "reprentries": [{**ENTRY, "type": "Other"}]}),
        of_trace(reprtraceback={**TRACEBACK, "reprentries": [{**ENTRY, "data": {"lines": [5]}}]}),
        ("collectreport", {"data": {**FAILED, "$report_type": "TestReport"}}),
        ("collectreport", {"data": {**FAILED, "result": 5}}),
        ("collectreport", {"data": {**FAILED, "outcome": "skipped"}}),
        of_warning(line=5),
        of_warning(message_args=5),
        ("runtest_protocol_complete", {"item_index": 1.5, "duration": 1}),
        ("unscheduled", {"indices": 3}),
        ("unscheduled", {"indices": ["a"]}),
        ("warning_recorded", {**WARNING, "location": 5}),
        COLLECTED,
        READY,
    ],
)
def test_a_false_event_gives_the_worker_up_and_nothing_after_it_is_taken(
    taken: Callable[..., Taken], event: Any
) -> None:
    before = [] if event is COLLECTED else [READY]
    after = ("internal_error", {"formatted_error": ""})
    found, problems = taken(*before, event, event, after, Marker.END)
    assert found == [*before, Marker.END]
    assert len(problems) == 1


def test_nothing_is_taken_after_the_end_of_a_worker(taken: Callable[..., Taken]) -> None:
    assert taken(READY, FINISHED, FINISHED, COLLECTED) == ([READY, FINISHED], [])
