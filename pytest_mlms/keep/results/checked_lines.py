"""Lines of results whose fields have their types, for readers that take fields by name.

A file of results may come from anywhere. ``read_lines`` raises an error of ours, with the file and
the line, where a reader would fail on it. What is missing has its default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.serialization import lines_from
from pytest_mlms.keep.results.line import (
    BaselineRecord,
    DatasetRecord,
    DeclaredRecord,
    EstimateRecord,
    ItemFields,
    LaunchRecord,
    LimitRecord,
    ManifestRecord,
    ModelRecord,
    StackRecord,
)
from pytest_mlms.keep.results.run_line import MACHINE, HeadOfItem, format_problem
from pytest_mlms.keep.results.strict import StrictReader, Taken


class LineError(MlmsError):
    """A line of a run's results is none; the text has the file and the line."""


_TAKEN: Mapping[type, Taken] = {
    **MACHINE,
    ItemFields: Taken(
        required="nodeid kind verdict manifest stack framework device",
        optional="digest model options machine reproduce",
        nullable="batch_size scenario load shape caches variant definition outcome message python"
        " dataset against launch launch_against estimates limits artifacts repetition",
        instead={"kind": str, "load": Mapping[str, Any]},
    ),
    HeadOfItem: Taken("nodeid", nullable="repetition"),
    ManifestRecord: Taken("name", "path"),
    ModelRecord: Taken(optional="sha256"),
    DatasetRecord: Taken(nullable="sha256"),
    StackRecord: Taken("name", "cores", "threads declared", instead={"declared": DeclaredRecord}),
    DeclaredRecord: Taken(
        optional="requirements installer pip_options libraries env env_passthrough",
        nullable="interpreter python lock container",
    ),
    BaselineRecord: Taken("name", nullable="threads"),
    LaunchRecord: Taken(optional="command lock packages lacking"),
    EstimateRecord: Taken(nullable="value low high"),
    LimitRecord: Taken("quantity verdict", nullable="max min"),
}
"""The fields that readers of lines take by name."""

NOTED = "comparisons rounds outputs layers reference trace predictions worse_inputs"
"""Fields that items of some kinds note, and under whose names a user's test may note anything."""

_READER = StrictReader(_TAKEN, "allow")
_CHECKS = {"item": _READER.model(ItemFields), "teardown": _READER.model(HeadOfItem)}


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
    problem = format_problem(line)
    if problem:
        raise LineError(f"{where}: {problem}")
    check = _CHECKS.get(str(line.get("type")))
    if check is None:
        return line
    try:
        found: dict[str, Any] = check.model_validate(line).model_dump()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise LineError(f"{where}: {place}: {first['msg']}; this is no line of a run") from None
    noted = {name: line[name] for name in NOTED.split() if name in line}
    kept = {name: value for name, value in found.items() if name not in noted}
    return {**kept, **_checked_notes(noted)} if noted else kept


def _checked_notes(noted: dict[str, Any]) -> dict[str, Any]:
    """Return those of the noted fields that are of the type that items of some kinds note."""
    from pytest_mlms.keep.results.checked_notes import NOTES

    try:
        NOTES.model_validate(noted)
    except ValidationError as error:
        for problem in error.errors(include_url=False, include_input=False):
            noted.pop(str(problem["loc"][0]), None)
    known = NOTES.model_validate(noted).model_dump()
    return {name: known[name] for name in noted}
