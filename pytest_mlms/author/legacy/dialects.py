"""Dialects of MLModelScope's manifests, told by the form of a file and not by its folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Dialect = Literal["A0", "A1", "A2", "A3", "B"]
"""A0: stubs of 2017. A1: agents before 2019. A2, A3: agents of 2019 and 2021. B: Python inside."""

A1_TYPES = ("feature", "coordinates")
"""Types of an output that only agents before 2019 handled."""

REVISED = frozenset(
    {
        "xmin_index",
        "ymin_index",
        "xmax_index",
        "ymax_index",
        "scale_width",
        "scale_height",
        "background_index",
        "before_preprocess",
    }
)
"""Keys of A3 that A2 doesn't have; a file without them is the same in both."""


def dialect_of(content: Any) -> Dialect | None:
    """Return the dialect of the content of a YAML file; None where it is no such manifest."""
    if not isinstance(content, Mapping) or "framework" not in content or "models" in content:
        return None
    if isinstance(content["framework"], str) and ("input" in content or "trained_url" in content):
        return "A0"
    if "outputs" in content:
        return "B"
    if "output" not in content and "model" not in content:
        return None
    return _dialect_of_one_output(content)


def _dialect_of_one_output(content: Mapping[str, Any]) -> Dialect:
    output = content.get("output")
    if not isinstance(output, Mapping):
        return "A2"
    if output.get("type") in A1_TYPES:
        return "A1"
    parameters = output.get("parameters")
    keys = set(parameters) if isinstance(parameters, Mapping) else set()
    return "A3" if REVISED & (keys | set(content)) else "A2"
