"""Lines of results.jsonl as the history takes them: what a valid line must have.

A results file may come from anywhere, so that nothing in it may raise another error than ours.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from pytest_mlms.keep.history.errors import HistoryError
from pytest_mlms.keep.results.line import (
    LIMITS,
    DatasetRecord,
    DeclaredRecord,
    EstimateRecord,
    ItemFields,
    LaunchRecord,
    ManifestRecord,
    ModelRecord,
    NotedReference,
    OwnQuantity,
    StackRecord,
)
from pytest_mlms.keep.results.run_line import (
    MACHINE,
    EndRecord,
    GitRecord,
    Head,
    HeadOfItem,
    JobRecord,
    RunRecord,
    format_problem,
)
from pytest_mlms.keep.results.strict import Count, Name, StrictReader, Taken


def _moment(text: str) -> str:
    """Return a time as UTC, in the form whose order as text is that of time."""
    moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    if moment.tzinfo is None:
        raise ValueError("has no time zone")
    try:
        return moment.astimezone(datetime.timezone.utc).isoformat(timespec="milliseconds")
    except OverflowError:
        raise ValueError("is out of range") from None


_LATENCY: TypeAdapter[float | None] = TypeAdapter(
    Annotated[float, Field(allow_inf_nan=False)] | None
)


def _checked_load(load: dict[str, Any]) -> dict[str, Any]:
    for name in LIMITS:
        try:
            _LATENCY.validate_python(load.get(name), strict=True)
        except ValidationError:
            raise ValueError(f"the {name} is no number") from None
    return load


_Time = Annotated[str, AfterValidator(_moment)]
_HEAD = "format run time type"
_OF_HEAD = {"format": Literal[1], "time": _Time}

_TAKEN: Mapping[type, Taken] = {
    **MACHINE,
    Head: Taken(_HEAD, instead=_OF_HEAD),
    RunRecord: Taken(_HEAD, nullable="began plugin git ci", instead={**_OF_HEAD, "began": _Time}),
    GitRecord: Taken(nullable="sha dirty branch"),
    JobRecord: Taken(nullable="url"),
    EndRecord: Taken(f"{_HEAD} exit_status", instead=_OF_HEAD),
    HeadOfItem: Taken(f"{_HEAD} nodeid", nullable="repetition", instead=_OF_HEAD),
    ItemFields: Taken(
        required=f"{_HEAD} nodeid kind verdict manifest model stack options seed framework device"
        " batch_size scenario machine",
        optional="method",
        nullable="outcome repetition dataset seconds launch versions python reference estimates"
        " quantities variant shape definition caches load",
        instead={
            **_OF_HEAD,
            "kind": Name,
            "batch_size": Count | None,
            "reference": NotedReference,
            "load": Annotated[dict[str, Any], AfterValidator(_checked_load)],
        },
    ),
    ManifestRecord: Taken("name", "path"),
    ModelRecord: Taken("sha256"),
    DatasetRecord: Taken(nullable="sha256"),
    StackRecord: Taken("name threads cores", "", "declared", instead={"declared": DeclaredRecord}),
    DeclaredRecord: Taken(
        nullable="interpreter python requirements installer pip_options lock container libraries"
        " env env_passthrough"
    ),
    EstimateRecord: Taken("value unit", nullable="low high replicates counter"),
    OwnQuantity: Taken(
        required="value unit better",
        nullable="low high replicates",
        instead={"better": Literal["lower", "higher"]},
    ),
    LaunchRecord: Taken(nullable="lacking lock packages inherited"),
    NotedReference: Taken(nullable="stack framework device"),
}
"""The fields that are stored, and those that must be there."""

_READER = StrictReader(_TAKEN, "ignore", indexes=True)
_OTHER = _READER.model(Head)
_CHECKS = {
    "run": _READER.model(RunRecord),
    "end": _READER.model(EndRecord),
    "item": _READER.model(ItemFields),
    "teardown": _READER.model(HeadOfItem),
}


@dataclass(frozen=True)
class RunLine:
    """A valid line: its number among the lines of its file, from 0, its text and its fields."""

    number: int
    text: str
    fields: Mapping[str, Any]

    @property
    def type(self) -> str:
        """The type, such as ``item``."""
        kind: str = self.fields["type"]
        return kind

    @property
    def time(self) -> str:
        """The time when it was written, as UTC."""
        return _moment(self.fields["time"])

    @property
    def began(self) -> str:
        """The time when the session began, as UTC; of other and old lines, that of the line."""
        began = self.fields.get("began") if self.type == "run" else None
        return self.time if began is None else _moment(began)


def read_run(lines: Iterable[bytes], where: str) -> Iterator[RunLine]:
    """Yield the lines of a results file.

    A last line that is cut off is left out, as a kill leaves it. Raises HistoryError, which has
    ``where`` and the number of the line, for a line that is no valid one.
    """
    for number, data in enumerate(lines):
        is_whole = data.endswith(b"\n")
        try:
            yield check_line(number, data)
        except HistoryError as error:
            if is_whole or not _is_cut(data):
                raise HistoryError(f"{where}:{number + 1}: {error}") from None


def check_line(number: int, data: bytes) -> RunLine:
    """Return a valid line; raises HistoryError, which says what is wrong with it."""
    try:
        text = data.decode().rstrip("\r\n")
        fields = _parse(text)
    except RecursionError:
        raise HistoryError("it is nested too deeply to be a line of results") from None
    except ValueError as error:
        raise HistoryError(f"it is no JSON ({error}); was the file edited?") from None
    if not isinstance(fields, dict):
        raise HistoryError("it is no JSON object; name the results.jsonl of a run")
    problem = format_problem(fields)
    if problem:
        raise HistoryError(problem)
    check = _CHECKS.get(str(fields.get("type")), _OTHER)
    try:
        record = check.model_validate(fields)
    except ValidationError as error:
        raise HistoryError(_describe(error)) from None
    if "\\u0000" in text and _has_nul(record):
        raise HistoryError("a name in it has a NUL character, which no database takes")
    return RunLine(number, text, fields)


def _parse(text: str) -> Any:
    """Return the value of a JSON text; raises ValueError and RecursionError.

    pydantic's parser is three times as fast as Python's, which takes halves of surrogate pairs:
    names of files have them where they are no UTF-8.
    """
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        return json.loads(text, parse_constant=_refuse_constant)


def _is_cut(data: bytes) -> bool:
    """Return whether JSON ends before it is complete."""
    try:
        json.loads(data)
    except RecursionError:
        return False
    except ValueError:
        return True
    return False


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _has_nul(value: Any) -> bool:
    """Return whether a text of the fields that are stored has the character."""
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, BaseModel):
        return any(_has_nul(getattr(value, name)) for name in type(value).model_fields)
    if isinstance(value, dict):
        return any(map(_has_nul, (*value, *value.values())))
    return isinstance(value, list) and any(map(_has_nul, value))


def _describe(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the line"
    message = first["msg"].removeprefix("Value error, ")
    return f"{place}: {message[:1].lower()}{message[1:]}; is it a line of pytest-mlms?"
