"""Events of xdist from a worker on another host, held against what xdist makes of them.

xdist takes an event for what it should be: a false one is an error of the controller, which ends
the run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

import pytest
from xdist.workermanage import Marker

from pytest_mlms.distribute.message_types import misfit, types_of

_Place = tuple[str, int | None, str]


class _Crash(TypedDict):
    path: str
    lineno: int
    message: str


class _Lines(TypedDict):
    lines: Sequence[str]


class _Arguments(TypedDict):
    args: Sequence[tuple[str, Any]]


class _EntryData(_Lines, total=False):
    reprfuncargs: _Arguments | None
    reprlocals: _Lines | None
    reprfileloc: _Crash | None
    style: str


class _Entry(TypedDict):
    type: str
    data: _EntryData


class _Traceback(TypedDict):
    reprentries: Sequence[_Entry]
    extraline: str | None
    style: str


class _Trace(TypedDict):
    reprcrash: _Crash | None
    reprtraceback: _Traceback
    sections: Sequence[tuple[str, str, str]]
    chain: Sequence[tuple[_Traceback, _Crash | None, str | None]] | None


_Skip = tuple[str, int, str]
_Reason = str | _Skip | _Trace


class _Report(TypedDict):
    nodeid: str
    sections: Sequence[tuple[str, str]]


class _CollectReport(_Report):
    outcome: Literal["failed", "skipped"]
    longrepr: _Reason
    result: None


class _Expected(TypedDict, total=False):
    wasxfail: str


class _TestReport(_Report, _Expected):
    item_index: int
    outcome: str
    longrepr: _Reason | None
    location: _Place
    keywords: Mapping[str, Any]
    user_properties: Sequence[tuple[str, Any]]
    when: str
    duration: float


class _About(TypedDict):
    version: str
    executable: str


class _Output(TypedDict):
    exitstatus: int
    shouldfail: bool | str
    shouldstop: bool | str


class _Warning(TypedDict):
    message_module: str | None
    message_class_name: str | None
    message_args: Sequence[Any] | None
    message_str: str
    category_module: str | None
    category_class_name: str | None
    filename: str
    lineno: int
    file: Any
    line: str | None
    source: Any


class _Ready(TypedDict):
    workerinfo: _About


class _InternalError(TypedDict):
    formatted_error: str


class _Finished(TypedDict):
    workeroutput: _Output


class _Log(TypedDict):
    nodeid: str
    location: _Place


class _Collected(TypedDict):
    ids: Sequence[str]


class _Reported(TypedDict):
    data: _TestReport


class _Failed(TypedDict):
    data: _CollectReport


class _Complete(TypedDict):
    item_index: int
    duration: float


class _Unscheduled(TypedDict):
    indices: Sequence[int]


class _Recorded(TypedDict):
    warning_message_data: _Warning
    when: str
    nodeid: str
    location: _Place | None


class _Nothing(TypedDict):
    pass


_EVENTS: Mapping[str, Any] = {
    "collectionstart": _Nothing,
    "workerready": _Ready,
    "internal_error": _InternalError,
    "workerfinished": _Finished,
    "logstart": _Log,
    "logfinish": _Log,
    "collectionfinish": _Collected,
    "testreport": _Reported,
    "collectreport": _Failed,
    "runtest_protocol_complete": _Complete,
    "unscheduled": _Unscheduled,
    "warning_recorded": _Recorded,
}
_READ_BY_KEY = ("collectionstart", "collectionfinish", "testreport", "collectreport")
_REPORTS: Mapping[str, type[pytest.TestReport] | type[pytest.CollectReport]] = {
    "testreport": pytest.TestReport,
    "collectreport": pytest.CollectReport,
}
_ONCE = ("workerready", "collectionfinish", "workerfinished")


class CheckedEvents:
    """Takes the events of a worker in place of xdist's method, which gets those that are right.

    ``give_up`` is called with what is wrong with the first one that isn't; the end of the
    connection, which no other process can send, always goes on.
    """

    def __init__(
        self, take: Callable[[Any], None], give_up: Callable[[str], object], config: pytest.Config
    ) -> None:
        self._take = take
        self._give_up = give_up
        self._config = config
        self._seen: set[str] = set()
        self._is_over = False

    def __call__(self, event: Any) -> None:
        """Take an event, in the thread of the gateway that receives."""
        if event is Marker.END:
            self._take(event)
        elif not self._is_over:
            problem = self._problem_in(event)
            self._is_over = bool(problem) or event[0] == "workerfinished"
            if problem:
                self._give_up(problem)
            else:
                self._take(event)

    def _problem_in(self, event: Any) -> str:
        is_pair = isinstance(event, (tuple, list)) and len(event) == 2
        name, fields = event if is_pair else ("", None)
        kind = _EVENTS.get(name) if isinstance(name, str) else None
        if kind is None or not isinstance(fields, dict):
            return "an event of an unknown kind"
        wrong = misfit(fields, kind, name)
        if wrong:
            return f"an event whose {wrong!r} is of another type"
        if name not in _READ_BY_KEY and fields.keys() != types_of(kind).keys():
            return f"{name} with other fields"
        is_early = name == "collectionfinish" and "workerready" not in self._seen
        if is_early or (name in _ONCE and name in self._seen):
            return f"{name} out of turn"
        self._seen.add(name)
        return self._problem_in_report(name, fields["data"]) if name in _REPORTS else ""

    def _problem_in_report(self, name: str, data: dict[str, Any]) -> str:
        """Return what keeps pytest from making and telling a report of its right parts."""
        if isinstance(data["longrepr"], list):
            data["longrepr"] = tuple(data["longrepr"])  # a key of what pytest counts
        try:
            report = self._config.hook.pytest_report_from_serializable(
                config=self._config, data=copy.deepcopy(data)
            )
        except Exception as error:  # whatever a plugin makes of it
            return f"a report that can't be read ({type(error).__name__})"
        if not isinstance(report, _REPORTS[name]):
            return "a report of a kind that no plugin knows here"
        is_plain_skip = report.skipped and not hasattr(report, "wasxfail")
        if is_plain_skip and not isinstance(report.longrepr, tuple):
            return "a skip without its place and reason"
        return ""
