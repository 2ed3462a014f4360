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

from pytest_mlms.history.errors import HistoryError
from pytest_mlms.records import Verdict

__all__ = ["FORMAT", "RunLine", "check_line", "read_run"]

FORMAT = 1
"""The format of results.jsonl that is read."""


def _moment(text: str) -> str:
    """Return a time as UTC, in the form whose order as text is that of time."""
    moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    if moment.tzinfo is None:
        raise ValueError("has no time zone")
    return moment.astimezone(datetime.timezone.utc).isoformat(timespec="milliseconds")


_LONGEST = 4000  # characters; PostgreSQL's indexes take no more than 8 KiB
_Text = Annotated[str, StringConstraints(max_length=_LONGEST)]
_Name = Annotated[_Text, StringConstraints(min_length=1, max_length=400)]
_Time = Annotated[str, AfterValidator(_moment)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, lt=2**31)]
_Texts = dict[_Text, _Text]


class _Record(BaseModel):
    """Fields that must be there; others may be there, too."""

    model_config = ConfigDict(strict=True, frozen=True)


class _Line(_Record):
    format: Literal[1]
    run: _Name
    time: _Time
    type: _Name


class _Git(_Record):
    sha: _Text | None = None
    dirty: bool | None = None
    branch: _Text | None = None


class _Job(_Record):
    url: _Text | None = None


class _RunLine(_Line):
    plugin: _Text | None = None
    git: _Git | None = None
    ci: _Job | None = None


class _EndLine(_Line):
    exit_status: _Count


class _TeardownLine(_Line):
    nodeid: _Text
    repetition: _Count | None = None


class _Manifest(_Record):
    name: _Name
    path: _Text = ""


class _Model(_Record):
    sha256: _Texts


class _Dataset(_Record):
    sha256: _Text | None = None


class _Declared(_Record):
    interpreter: _Text | None = None
    python: _Text | None = None
    requirements: list[_Text] | None = None
    installer: _Text | None = None
    pip_options: list[_Text] | None = None
    lock: _Text | None = None
    container: _Text | None = None
    libraries: dict[_Text, _Texts] | None = None
    env: _Texts | None = None
    env_passthrough: list[_Text] | None = None


class _Stack(_Record):
    name: _Text
    threads: _Count | None
    cores: list[_Count]
    declared: _Declared | None = None


class _Cpu(_Record):
    model: _Text | None = None
    microarchitecture: _Text | None = None


class _Cores(_Record):
    logical: _Count | None = None
    physical: _Count | None = None


class _CgroupLimits(_Record):
    cpus: _Number | None = None


class _Gpu(_Record):
    name: _Text | None = None
    driver: _Text | None = None


class _Machine(_Record):
    host: _Text | None = None
    architecture: _Text | None = None
    affinity: list[_Count] | None = None
    cgroup_limits: _CgroupLimits | None = None
    cpu: _Cpu | None = None
    cores: _Cores | None = None
    core_kinds: dict[_Text, list[_Count]] | None = None
    gpus: list[_Gpu] | None = None
    memory: Annotated[float, Field(ge=1, lt=2**60)] | None = None
    gpu_driver: _Text | None = None


class _Estimate(_Record):
    value: _Number | None
    low: _Number | None = None
    high: _Number | None = None
    replicates: _Count | None = None
    unit: _Text


class _OwnQuantity(_Estimate):
    better: Literal["lower", "higher"]


class _Launch(_Record):
    lacking: _Text | None = None
    lock: list[_Text] | None = None
    packages: list[_Text] | None = None
    inherited: dict[_Text, str] | None = None


class _Reference(_Record):
    stack: _Text | None = None
    framework: _Text | None = None
    device: _Text | None = None


class _ItemLine(_Line):
    nodeid: _Text
    kind: _Name
    verdict: Verdict = Field(strict=False)
    outcome: _Text | None = None
    repetition: _Count | None = None
    manifest: _Manifest
    model: _Model
    dataset: _Dataset | None = None
    stack: _Stack
    options: dict[str, Any]
    seed: int | None
    seconds: dict[_Text, _Number] | None = None
    framework: _Text
    device: _Text
    batch_size: _Count | None
    scenario: _Text | None
    machine: _Machine
    launch: _Launch | None = None
    versions: _Texts | None = None
    python: _Text | None = None
    reference: _Reference | None = None
    estimates: dict[_Text, _Estimate] | None = None
    quantities: dict[_Text, _OwnQuantity] | None = None
    definition: _Text | None = None
    load: dict[str, Any] | None = None
    method: _Count = 1


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
    if "\\u0000" in text and _has_nul(record.model_dump()):
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
    if isinstance(value, dict):
        return any(map(_has_nul, (*value, *value.values())))
    return isinstance(value, list) and any(map(_has_nul, value))


def _describe(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the line"
    message = first["msg"].removeprefix("Value error, ")
    return f"{place}: {message[:1].lower()}{message[1:]}; is it a line of pytest-mlms?"
