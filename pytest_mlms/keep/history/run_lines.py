"""Lines of results.jsonl as the history takes them: what a valid line must have.

A results file may come from anywhere, so that nothing in it may raise another error than ours.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import from_json

from pytest_mlms.core.records import Verdict
from pytest_mlms.keep.history.errors import HistoryError
from pytest_mlms.keep.results.checked_lines import Count, Machine, Number, Text

__all__ = ["FORMAT", "RunLine", "check_line", "read_run"]

FORMAT = 1
"""The format of results.jsonl that is read."""


def _moment(text: str) -> str:
    """Return a time as UTC, in the form whose order as text is that of time."""
    moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    if moment.tzinfo is None:
        raise ValueError("has no time zone")
    try:
        return moment.astimezone(datetime.timezone.utc).isoformat(timespec="milliseconds")
    except OverflowError:
        raise ValueError("is out of range") from None


_LATENCY: TypeAdapter[float | None] = TypeAdapter(Number | None)


def _checked_load(load: dict[str, Any]) -> dict[str, Any]:
    try:
        _LATENCY.validate_python(load.get("latency"), strict=True)
    except ValidationError:
        raise ValueError("the latency is no number") from None
    return load


_Name = Annotated[Text, StringConstraints(min_length=1, max_length=400)]
_Time = Annotated[str, AfterValidator(_moment)]
_Texts = dict[Text, Text]


class _Record(BaseModel):
    """Fields that must be there; others may be there, too."""

    model_config = ConfigDict(strict=True, frozen=True)


class _Line(_Record):
    format: Literal[1]
    run: _Name
    time: _Time
    type: _Name


class _Git(_Record):
    sha: Text | None = None
    dirty: bool | None = None
    branch: Text | None = None


class _Job(_Record):
    url: Text | None = None


class _RunLine(_Line):
    began: _Time | None = None
    plugin: Text | None = None
    git: _Git | None = None
    ci: _Job | None = None


class _EndLine(_Line):
    exit_status: Count


class _TeardownLine(_Line):
    nodeid: Text
    repetition: Count | None = None


class _Manifest(_Record):
    name: _Name
    path: Text = ""


class _Model(_Record):
    sha256: _Texts


class _Dataset(_Record):
    sha256: Text | None = None


class _Declared(_Record):
    interpreter: Text | None = None
    python: Text | None = None
    requirements: list[Text] | None = None
    installer: Text | None = None
    pip_options: list[Text] | None = None
    lock: Text | None = None
    container: Text | None = None
    libraries: dict[Text, _Texts] | None = None
    env: _Texts | None = None
    env_passthrough: list[Text] | None = None


class _Stack(_Record):
    name: Text
    threads: Count | None
    cores: list[Count]
    declared: _Declared | None = None


class _Estimate(_Record):
    value: Number | None
    low: Number | None = None
    high: Number | None = None
    replicates: Count | None = None
    unit: Text
    counter: Text | None = None


class _OwnQuantity(_Estimate):
    better: Literal["lower", "higher"]


class _Launch(_Record):
    lacking: Text | None = None
    lock: list[Text] | None = None
    packages: list[Text] | None = None
    inherited: dict[Text, str] | None = None


class _Reference(_Record):
    stack: Text | None = None
    framework: Text | None = None
    device: Text | None = None


class _ItemLine(_Line):
    nodeid: Text
    kind: _Name
    verdict: Verdict = Field(strict=False)
    outcome: Text | None = None
    repetition: Count | None = None
    manifest: _Manifest
    model: _Model
    dataset: _Dataset | None = None
    stack: _Stack
    options: dict[str, Any]
    seed: int | None
    seconds: dict[Text, Number] | None = None
    framework: Text
    device: Text
    batch_size: Count | None
    scenario: Text | None
    machine: Machine
    launch: _Launch | None = None
    versions: _Texts | None = None
    python: Text | None = None
    reference: _Reference | None = None
    estimates: dict[Text, _Estimate] | None = None
    quantities: dict[Text, _OwnQuantity] | None = None
    variant: Text | None = None
    shape: Text | None = None
    definition: Text | None = None
    caches: Text | None = None
    load: Annotated[dict[str, Any], AfterValidator(_checked_load)] | None = None
    method: Count = 1


_CHECKS: Mapping[str, TypeAdapter[Any]] = {
    "run": TypeAdapter(_RunLine),
    "end": TypeAdapter(_EndLine),
    "item": TypeAdapter(_ItemLine),
    "teardown": TypeAdapter(_TeardownLine),
}
_OTHER = TypeAdapter(_Line)


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
    _check_format(fields)
    check = _CHECKS.get(str(fields.get("type")), _OTHER)
    try:
        record = check.validate_python(fields)
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


def _check_format(fields: Mapping[str, Any]) -> None:
    version = fields.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise HistoryError(f"it has format {version}, this version reads {FORMAT}; upgrade it")


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
