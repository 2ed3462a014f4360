"""Lines of results whose fields have their types, for readers that take fields by name.

A file of results may come from anywhere. ``read_lines`` raises an error of ours, with the file and
the line, where a reader would fail on it. What is missing has its default.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.json_lines import lines_from
from pytest_mlms.core.records import Verdict

__all__ = ["Count", "LineError", "Machine", "Number", "Text", "read_lines"]

_LONGEST = 4000  # characters; PostgreSQL's indexes take no more than 8 KiB

Number = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Text = Annotated[str, StringConstraints(max_length=_LONGEST)]
"""A text that histories index."""

_Texts = dict[str, str]


class LineError(MlmsError):
    """A line of a run's results is none; the text has the file and the line."""


def _verdict(text: str) -> str:
    return Verdict(text).value


_Verdict = Annotated[str, AfterValidator(_verdict)]


class _Record(BaseModel):
    """Fields that readers take by name; others may be there, too."""

    model_config = ConfigDict(strict=True, extra="allow")


class _Manifest(_Record):
    name: str = ""
    path: str = ""


class _Model(_Record):
    sha256: _Texts = {}


class _Dataset(_Record):
    sha256: str | None = None


class _Declared(_Record):
    interpreter: str | None = None
    python: str | None = None
    requirements: list[str] = []
    installer: str = "pip"
    pip_options: list[str] = []
    lock: str | None = None
    container: str | None = None
    libraries: dict[str, _Texts] = {}
    env: _Texts = {}
    env_passthrough: list[str] = []


class _Stack(_Record):
    name: str
    threads: Count | None = None
    cores: list[Count] = []
    declared: _Declared | None = None


class _Baseline(_Record):
    name: str
    threads: Count | None = None


class _Launch(_Record):
    command: list[str] = []
    lock: list[str] = []
    packages: list[str] = []
    lacking: str = ""


class _Cpu(_Record):
    model: Text | None = None
    microarchitecture: Text | None = None


class _Cores(_Record):
    logical: Count | None = None
    physical: Count | None = None


class _CgroupLimits(_Record):
    cpus: Number | None = None


class _Gpu(_Record):
    name: Text | None = None
    driver: Text | None = None


class Machine(_Record):
    """The state of a machine, as far as its class and its software are taken from it."""

    host: Text | None = None
    architecture: Text | None = None
    affinity: list[Count] | None = None
    cgroup_limits: _CgroupLimits | None = None
    cpu: _Cpu | None = None
    cores: _Cores | None = None
    core_kinds: dict[Text, list[Count]] | None = None
    gpus: list[_Gpu] | None = None
    memory: Annotated[float, Field(ge=1, lt=2**60)] | None = None
    gpu_driver: Text | None = None


class _Estimate(_Record):
    value: Number | None = None
    low: Number | None = None
    high: Number | None = None


class _Limit(_Record):
    quantity: str
    verdict: _Verdict
    max: Number | None = None
    min: Number | None = None


class _Comparison(_Record):
    quantity: str
    verdict: _Verdict
    of: str
    unit: str
    a: Number | None = None
    b: Number | None = None
    ratio: Number | None = None
    low: Number | None = None
    high: Number | None = None
    tolerance: Number | None = None
    asked: Number | None = None
    least_change: Number | None = None
    lacking: str = ""


class _OutputFinding(_Record):
    name: str
    allowed: Number | None = None


class _Outputs(_Record):
    beyond: Count = 0
    seed: Annotated[int, Field(ge=0)] | None = None
    outputs: list[_OutputFinding] = []
    elsewhere: list[str] = []
    repeated: dict[str, Annotated[list[Count], Field(min_length=2, max_length=2)]] = {}


class _Side(_Record):
    python: str


class _Round(_Record):
    sides: dict[str, _Side]


class _Reference(_Record):
    framework: str
    versions: _Texts = {}


class _Trace(_Record):
    layers_sha256: str | None = None


class _Predictions(_Record):
    sha256: str | None = None
    right: Count | None = None
    inputs: Count | None = None


class _Item(_Record):
    nodeid: str
    kind: str
    verdict: _Verdict
    manifest: _Manifest
    stack: _Stack
    framework: str
    device: str
    batch_size: Count | None = None
    outcome: str | None = None
    message: str | None = None
    digest: str = ""
    python: str | None = None
    model: _Model = Field(default_factory=_Model)
    dataset: _Dataset | None = None
    against: _Baseline | None = None
    options: dict[str, Any] = {}
    machine: Machine = Field(default_factory=Machine)
    launch: _Launch | None = None
    launch_against: _Launch | None = None
    estimates: dict[str, _Estimate] | None = None
    limits: list[_Limit] | None = None
    artifacts: _Texts | None = None


class _Noted(_Record):
    """Fields that items of some kinds note; a user's test may note anything under these names."""

    comparisons: list[_Comparison] | None = None
    rounds: list[_Round] | None = None
    outputs: _Outputs | None = None
    layers: list[list[Any]] | None = None
    reference: _Reference | None = None
    trace: _Trace | None = None
    predictions: _Predictions | None = None
    worse_inputs: list[str] | None = None


class _Teardown(_Record):
    nodeid: str


_CHECKS: dict[str, TypeAdapter[Any]] = {
    "item": TypeAdapter(_Item),
    "teardown": TypeAdapter(_Teardown),
}
_NOTED = TypeAdapter(_Noted)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a results file, those of items with all fields that readers take.

    Yields nothing where the file can't be read. A last line that is cut off is left out, as a kill
    leaves it. Raises LineError for any other that is no line.
    """
    try:
        file = path.open("rb")
    except OSError:
        return
    with file:
        for number, line in enumerate(lines_from(file), 1):
            where = f"{path}:{number}"
            if line.content is None:
                raise LineError(f"{where}: it is no line of results; was the file edited?")
            yield _checked(line.content, where)


def _checked(line: dict[str, Any], where: str) -> dict[str, Any]:
    check = _CHECKS.get(str(line.get("type")))
    if check is None:
        return line
    try:
        found: dict[str, Any] = check.validate_python(line).model_dump()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise LineError(f"{where}: {place}: {first['msg']}; this is no line of a run") from None
    noted = {name: line[name] for name in _Noted.model_fields if name in line}
    try:
        _NOTED.validate_python(noted)
    except ValidationError as error:
        for problem in error.errors(include_url=False, include_input=False):
            noted.pop(str(problem["loc"][0]), None)
    kept = {name: value for name, value in found.items() if name not in _Noted.model_fields}
    known = _NOTED.validate_python(noted).model_dump()
    return {**kept, **{name: known[name] for name in noted}}
