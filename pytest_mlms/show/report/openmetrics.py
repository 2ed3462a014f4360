"""OpenMetrics text of a run, which GitLab shows as a metrics report.

https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.text import encodable
from pytest_mlms.show.report.exported import Exported, exported_numbers
from pytest_mlms.show.report.last_results import Result, last_results

_UNITS = {"s": "seconds", "B": "bytes"}
_CHANGES = {
    "ratio": "candidate over baseline",
    "difference": "candidate less baseline, over inputs: of shares, or as a share of the baseline",
    "multiple": "difference of outputs, over what is allowed",
}
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass
class _Family:
    """A metric: its unit, its help, and its samples by their labels."""

    help: str
    unit: str = ""
    samples: dict[str, float] = field(default_factory=dict)


def openmetrics(results: Iterable[Result]) -> str:
    """Return the values of all items, in base units, as gauges."""
    families: dict[str, _Family] = {}
    items = last_results(results)
    for item in items:
        for number in exported_numbers(item):
            _add_number(families, item, number)
    _add_verdicts(families, items)
    lines = [line for name in families for line in _lines(name, families[name])]
    return "\n".join([*lines, "# EOF", ""])


def _add_number(families: dict[str, _Family], item: Result, number: Exported) -> None:
    labels = {} if number.form == "estimate" else {"quantity": number.name}
    if number.form == "estimate":
        quantity = QUANTITIES[number.name]
        name = quantity.property_name
        family = _Family(quantity.description, _UNITS.get(quantity.unit, ""))
    elif number.form == "own":
        name = "mlms_own_quantity"
        family = _Family("quantity that a test of the user's own recorded")
        labels["unit"] = number.unit
    else:
        name = f"mlms_upgrade_{number.form}"
        family = _Family(_CHANGES[number.form])
    _add(families.setdefault(name, family), item, number.value, **labels)


def _add_verdicts(families: dict[str, _Family], items: Iterable[Result]) -> None:
    family = _Family("items of the run by verdict")
    for verdict, count in Counter(item["verdict"] for item in items).items():
        family.samples[_labels({"verdict": verdict})] = count
    if family.samples:
        families["mlms_items"] = family


def _add(family: _Family, item: Result, value: float, **more: str) -> None:
    labels = {
        "model": item["manifest"]["name"],
        "framework": item["framework"],
        "device": item["device"],
        "item": item["nodeid"],
        **more,
    }
    family.samples[_labels(labels)] = value


def _labels(labels: dict[str, str]) -> str:
    pairs = [f'{name}="{_escaped(value)}"' for name, value in labels.items()]
    return ",".join(pairs)


def _escaped(text: str) -> str:
    return encodable(text).translate(_ESCAPES)


def _lines(name: str, family: _Family) -> Iterator[str]:
    if not family.samples:
        return
    yield f"# TYPE {name} gauge"
    if family.unit:
        yield f"# UNIT {name} {family.unit}"
    yield f"# HELP {name} {_escaped(family.help)}"
    for labels, value in family.samples.items():
        yield f"{name}{{{labels}}} {value!r}"
