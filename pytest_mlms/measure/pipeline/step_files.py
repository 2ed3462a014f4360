"""Files that steps name: classes, categories and tokens, one a line, and local paths of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.files import read_regular
from pytest_mlms.manifest.schema import Input, Manifest, Output

_MOST_BYTES = 64 << 20


def read_names(path: Path, kind: str) -> list[str]:
    """Return the names in a file, without blanks around them; raises DatasetError."""
    lines = [line.strip() for line in read_text(path, kind).splitlines()]
    return [line for line in lines if line]


def class_numbers(names: Sequence[str]) -> Mapping[str, int]:
    """Return the number of each class by its name in small letters.

    A name that several classes have stands for none of them.
    """
    lower = [name.casefold() for name in names]
    counts = Counter(lower)
    return {name: number for number, name in enumerate(lower) if counts[name] == 1}


def read_text(path: Path, kind: str) -> str:
    """Return the text of a file; raises DatasetError for one that can't be read.

    ``kind`` is what a message calls a line of it, as in "label".
    """
    try:
        return read_regular(path, _MOST_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        advice = f"save it as UTF-8, one {kind} a line"
        raise DatasetError(f"{path} can't be read: {error}; {advice}") from error


Spec = TypeVar("Spec", Input, Output)


def with_local_files(spec: Spec, files: Mapping[str, Path]) -> Spec:
    """Return an input or output whose steps name the local paths of their files.

    ``files`` has these by what the manifest says. ``FILES`` of a step's parameters are the keys
    that name files; names that aren't in ``files`` stay.
    """
    steps = []
    for step in spec.steps:
        changes = _changes(step.parameters, files)
        if changes:
            parameters = step.parameters.model_copy(update=changes)
            step = step.model_copy(update={step.name: parameters})  # noqa: PLW2901
        steps.append(step)
    return spec.model_copy(update={"steps": steps})


def class_numbers_of(manifest: Manifest, files: Mapping[str, Path]) -> Mapping[str, int]:
    """Return the numbers of the classes by their names, as the file of top_k's labels has them.

    It is empty where there is no such file. ``files`` are as for ``with_local_files``. Raises
    DatasetError for a file that can't be read.
    """
    output = manifest.classification
    top_k = output.top_k if output else None
    if top_k is None or top_k.labels is None:
        return {}
    return class_numbers(read_names(files[top_k.labels], "label"))


def _changes(parameters: Any, files: Mapping[str, Path]) -> dict[str, str]:
    """Return the keys of parameters that name files, and their local paths."""
    changes = {}
    for key in getattr(parameters, "FILES", {}):
        source = getattr(parameters, key)
        if source in files:
            changes[key] = str(files[source])
    return changes
