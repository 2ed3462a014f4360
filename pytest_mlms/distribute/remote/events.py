"""Events of xdist from a worker on another host, held against what xdist makes of them.

xdist takes an event for what it should be: a false one is an error of the controller, which ends
the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from pytest_mlms.distribute.message_types import misfit, types_of

__all__ = ["CheckedEvents"]

_Place = tuple[str, int | None, str]


class _Trace(TypedDict):
    reprcrash: Any
    reprtraceback: Any


_Reason = str | tuple[str, int, str] | _Trace
_Report = TypedDict(
    "_Report",
    {"$report_type": str, "nodeid": str, "sections": Sequence[tuple[str, str]]},
)


class _CollectReport(_Report):
    outcome: Literal["failed", "skipped"]
    longrepr: _Reason


class _TestReport(_Report):
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
    message_str: str
    category_module: str | None
    category_class_name: str | None
    filename: str
    lineno: int


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
_ONCE = ("workerready", "collectionfinish", "workerfinished")


class CheckedEvents:
    """Takes the events of a worker in place of xdist's method, which gets those that are right.

    ``give_up`` is called with what is wrong with the first one that isn't; the end of the
    connection, which no other process can send, always goes on.
    """

    def __init__(self, take: Callable[[Any], None], give_up: Callable[[str], object]) -> None:
        self._take = take
        self._give_up = give_up
        self._seen: set[str] = set()
        self._is_over = False

    def __call__(self, event: Any) -> None:
        """Take an event, in the thread of the gateway that receives."""
        if not isinstance(event, (tuple, list)):
            self._take(event)
        elif not self._is_over:
            problem = self._problem_in(event)
            self._is_over = bool(problem) or event[0] == "workerfinished"
            if problem:
                self._give_up(problem)
            else:
                self._take(event)

    def _problem_in(self, event: Sequence[Any]) -> str:
        name, fields = event if len(event) == 2 else ("", None)
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
        return ""
