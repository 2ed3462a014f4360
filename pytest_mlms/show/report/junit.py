"""Properties of JUnit XML from an item's result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.text import visible
from pytest_mlms.show.report.exported import Exported, exported_numbers

ITEM_PROPERTY = "mlms_item"
"""Name of the property that has an item's node id, as results have it."""

Properties = dict[str, object]


def junit_properties(line: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Return the properties of an item's line as names with values; a null has no property."""
    properties = _case_properties(line)
    for framework, version in line.get("versions", {}).items():
        properties[f"mlms_version_of_{visible(framework)}"] = version
    for number in exported_numbers(line):
        properties.update(_number_properties(number))
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


def _number_properties(number: Exported) -> Properties:
    """Return a number, and the ends of its interval; of an upgrade these have their own names."""
    if number.form == "estimate":
        prefix = QUANTITIES[number.name].property_name
    elif number.form == "own":
        prefix = f"mlms_value_of_{number.name}"
    else:
        ends = {f"mlms_{end}_of_{number.name}": value for end, value in number.ends.items()}
        return {f"mlms_{number.form}_of_{number.name}": number.value, **ends}
    return {
        prefix: number.value,
        **{f"{prefix}_{end}": value for end, value in number.ends.items()},
    }
