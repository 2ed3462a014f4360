"""Properties of JUnit XML from an item's result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_mlms.quantities import QUANTITIES
from pytest_mlms.text import visible

__all__ = ["ITEM_PROPERTY", "junit_properties"]

ITEM_PROPERTY = "mlms_item"
"""Name of the property that has an item's node id, as results have it."""

Properties = dict[str, object]


def junit_properties(line: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Return the properties of an item's line as names with values; a null has no property."""
    properties = _case_properties(line)
    for framework, version in line.get("versions", {}).items():
        properties[f"mlms_version_of_{visible(framework)}"] = version
    for name, estimate in line.get("estimates", {}).items():
        properties.update(_estimate_properties(name, estimate))
    for name, quantity in line.get("quantities", {}).items():
        properties.update(_own_properties(name, quantity))
    for comparison in line.get("comparisons", []):
        properties.update(_comparison_properties(comparison))
    return [pair for pair in properties.items() if pair[1] is not None]


def _case_properties(line: Mapping[str, Any]) -> Properties:
    manifest = line["manifest"]
    stack = line["stack"]
    return {
        ITEM_PROPERTY: visible(line["nodeid"]),
        "mlms_verdict": line["verdict"],
        "mlms_manifest": manifest["path"],
        "mlms_model": manifest["name"],
        "mlms_version": manifest["version"],
        "mlms_framework": line["framework"],
        "mlms_stack": stack["name"],
    }


def _estimate_properties(name: str, estimate: Mapping[str, Any]) -> Properties:
    prefix = QUANTITIES[name].property_name
    return {
        prefix: estimate["value"],
        f"{prefix}_low": estimate["low"],
        f"{prefix}_high": estimate["high"],
    }


def _own_properties(name: str, quantity: Mapping[str, Any]) -> Properties:
    prefix = f"mlms_value_of_{name}"
    return {
        prefix: quantity["value"],
        f"{prefix}_low": quantity.get("low"),
        f"{prefix}_high": quantity.get("high"),
    }


def _comparison_properties(comparison: Mapping[str, Any]) -> Properties:
    quantity = comparison["quantity"]
    return {
        f"mlms_ratio_of_{quantity}": comparison["ratio"],
        f"mlms_low_of_{quantity}": comparison["low"],
        f"mlms_high_of_{quantity}": comparison["high"],
    }
