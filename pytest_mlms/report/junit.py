"""Properties of JUnit XML from an item's result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pytest_mlms.quantities import QUANTITIES

__all__ = ["junit_properties"]


def junit_properties(line: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Return the properties of an item's line as names with values; a null has no property."""
    properties = [*_case(line), *_versions(line), *_estimates(line), *_comparisons(line)]
    return [(name, value) for name, value in properties if value is not None]


def _case(line: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    manifest = line["manifest"]
    yield "mlms_verdict", line["verdict"]
    yield "mlms_manifest", manifest["path"]
    yield "mlms_model", manifest["name"]
    yield "mlms_version", manifest["version"]
    yield "mlms_framework", line["framework"]
    yield "mlms_stack", line["stack"]["name"]


def _versions(line: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for name, version in line.get("versions", {}).items():
        yield f"mlms_version_of_{name}", version


def _estimates(line: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for name, estimate in line.get("estimates", {}).items():
        property_name = QUANTITIES[name].property_name
        yield property_name, estimate["value"]
        yield f"{property_name}_low", estimate["low"]
        yield f"{property_name}_high", estimate["high"]


def _comparisons(line: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for comparison in line.get("comparisons", []):
        quantity = comparison["quantity"]
        for part in ("ratio", "low", "high"):
            yield f"mlms_{part}_of_{quantity}", comparison[part]
