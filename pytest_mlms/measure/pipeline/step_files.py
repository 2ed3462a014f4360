"""Inputs and outputs whose steps name local files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pytest_mlms.manifest.schema import Input, Manifest, Output
from pytest_mlms.measure.pipeline.name_files import class_numbers, read_names

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
