"""Numbers of items for other tools: JUnit properties, Bencher's JSON, and OpenMetrics.

All of them have the same numbers. Terminal, pages and reports have theirs from views, by the same
rules.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import UNUSABLE, ChangeForm, change_form
from pytest_mlms.core.text import encodable, visible

Result = Mapping[str, Any]
"""An item's line of results.jsonl."""

ITEM_PROPERTY = "mlms_item"
"""Name of the JUnit property that has an item's node id, as results have it."""

_LONGEST_NAME = 1024  # characters of a benchmark of Bencher
_LONGEST_SLUG = 64  # characters of a measure of Bencher
_DIGEST = 8  # characters that keep shortened names apart
_ENDS = {"low": "lower_value", "high": "upper_value"}
_UNITS = {"s": "seconds", "B": "bytes"}
_CHANGES = {
    "ratio": "candidate over baseline",
    "difference": "candidate less baseline, over inputs: of shares, or as a share of the baseline",
    "multiple": "difference of outputs, over what is allowed",
}
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def last_results(results: Iterable[Result]) -> list[Result]:
    """Return the last result of each item, in the order in which items came first."""
    return list({result["nodeid"]: result for result in results}.values())


class Exported(NamedTuple):
    """A number with the ends of its interval, where these are known; ``unit`` is its base unit.

    An ``estimate`` and what a user's own test recorded (``own``) are values. Of an upgrade it is a
    ``ratio`` of candidate and baseline, their ``difference``, or a ``multiple`` of what is allowed.
    """

    form: Literal["estimate", "own"] | ChangeForm
    name: str
    unit: str
    value: float
    low: float | None
    high: float | None

    @property
    def ends(self) -> dict[str, float]:
        """The ends that are known, by "low" and "high"."""
        ends = {"low": self.low, "high": self.high}
        return {name: end for name, end in ends.items() if end is not None}


def exported_numbers(line: Mapping[str, Any]) -> Iterator[Exported]:
    """Yield the numbers of an item's line, but of a disturbed one, which say nothing.

    What was measured too little for an estimate is no number.
    """
    if line["verdict"] in UNUSABLE:
        return
    for name, fields in (line.get("estimates") or {}).items():
        if not fields.get("lacking"):
            yield from _number("estimate", name, QUANTITIES[name].unit, fields, "value")
    for name, fields in (line.get("quantities") or {}).items():
        yield from _number("own", name, fields["unit"], fields, "value")
    for fields in _comparisons(line):
        name = fields["quantity"]
        yield from _number(change_form(name, fields["of"]), name, "", fields, "ratio")


def _comparisons(line: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the comparisons of a line, under whose name a user's test may have noted anything."""
    noted = line.get("comparisons")
    for fields in noted if isinstance(noted, list) else ():
        if isinstance(fields, Mapping) and {"quantity", "of", "ratio"} <= fields.keys():
            yield fields


def _number(
    form: Literal["estimate", "own"] | ChangeForm,
    name: str,
    unit: str,
    fields: Mapping[str, Any],
    value: str,
) -> Iterator[Exported]:
    if fields[value] is not None:
        yield Exported(form, name, unit, fields[value], fields.get("low"), fields.get("high"))


def junit_properties(line: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Return the properties of an item's line as names with values; a null has no property.

    A number is followed by the ends of its interval, which have their own names of an upgrade.
    """
    properties: dict[str, object] = {
        ITEM_PROPERTY: visible(line["nodeid"]),
        "mlms_verdict": line["verdict"],
        "mlms_manifest": line["manifest"]["path"],
        "mlms_model": line["manifest"]["name"],
        "mlms_version": line["manifest"]["version"],
        "mlms_framework": line["framework"],
        "mlms_stack": line["stack"]["name"],
    }
    for framework, version in line.get("versions", {}).items():
        properties[f"mlms_version_of_{visible(framework)}"] = version
    for number in exported_numbers(line):
        if number.form in ("estimate", "own"):
            name = f"mlms_value_of_{number.name}"
            if number.form == "estimate":
                name = QUANTITIES[number.name].property_name
            properties[name] = number.value
            properties.update({f"{name}_{end}": value for end, value in number.ends.items()})
        else:
            properties[f"mlms_{number.form}_of_{number.name}"] = number.value
            for end, value in number.ends.items():
                properties[f"mlms_{end}_of_{number.name}"] = value
    return [pair for pair in properties.items() if pair[1] is not None]


def bencher_json(results: Iterable[Result]) -> str:
    """Return a run in Bencher Metric Format: benchmark, measure, value with its interval.

    Items without a number are left out. Measures have the base unit in their name, such as
    ``latency-p50-seconds``: Bencher's own measure ``latency`` is in nanoseconds.
    https://bencher.dev/docs/reference/bencher-metric-format/
    """
    document = {}
    for item in last_results(results):
        measures = {}
        for number in exported_numbers(item):
            metric = {"value": float(number.value)}
            for end, value in number.ends.items():
                metric[_ENDS[end]] = float(value)
            name = f"{number.name}-{number.unit if number.form == 'own' else number.form}"
            if number.form == "estimate":
                name = QUANTITIES[number.name].property_name.removeprefix("mlms_")
            slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
            measures[_shortened(slug, _LONGEST_SLUG)] = metric
        if measures:
            document[_shortened(encodable(item["nodeid"]), _LONGEST_NAME)] = measures
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _shortened(name: str, most: int) -> str:
    """Return a name of at most ``most`` characters that differs from those of others."""
    if len(name) <= most:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()
    suffix = f"-{digest[:_DIGEST]}"
    return name[: most - len(suffix)] + suffix


@dataclass
class _Family:
    """A metric: its unit, its help, and its samples by their labels."""

    help: str
    unit: str = ""
    samples: dict[str, float] = field(default_factory=dict)


def openmetrics(results: Iterable[Result]) -> str:
    """Return the values of all items, in base units, as gauges, which GitLab shows as a report.

    https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md
    """
    families: dict[str, _Family] = {}
    items = last_results(results)
    for item in items:
        for number in exported_numbers(item):
            _add_number(families, item, number)
    verdicts = _Family("items of the run by verdict")
    for verdict, count in Counter(item["verdict"] for item in items).items():
        verdicts.samples[_labels({"verdict": verdict})] = count
    families["mlms_items"] = verdicts

    lines = []
    for name, family in families.items():
        if family.samples:
            lines.append(f"# TYPE {name} gauge")
            if family.unit:
                lines.append(f"# UNIT {name} {family.unit}")
            lines.append(f"# HELP {name} {_escaped(family.help)}")
            lines += [f"{name}{{{labels}}} {value!r}" for labels, value in family.samples.items()]
    return "\n".join([*lines, "# EOF", ""])


def _add_number(families: dict[str, _Family], item: Result, number: Exported) -> None:
    labels = {
        "model": item["manifest"]["name"],
        "framework": item["framework"],
        "device": item["device"],
        "item": item["nodeid"],
    }
    if number.form == "estimate":
        quantity = QUANTITIES[number.name]
        name = quantity.property_name
        family = _Family(quantity.description, _UNITS.get(quantity.unit, ""))
    elif number.form == "own":
        name = "mlms_own_quantity"
        family = _Family("quantity that a test of the user's own recorded")
        labels |= {"quantity": number.name, "unit": number.unit}
    else:
        name = f"mlms_upgrade_{number.form}"
        family = _Family(_CHANGES[number.form])
        labels["quantity"] = number.name
    families.setdefault(name, family).samples[_labels(labels)] = number.value


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(text: str) -> str:
    return encodable(text).translate(_ESCAPES)
