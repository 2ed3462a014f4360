"""OpenMetrics text of a run, which GitLab shows as a metrics report.

https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pytest_mlms.quantities import QUANTITIES
from pytest_mlms.report.last_results import Result, last_results
from pytest_mlms.text import encodable

__all__ = ["openmetrics"]

_UNITS = {"s": "seconds", "B": "bytes"}
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
        _add_estimates(families, item)
        _add_own(families, item)
        _add_comparisons(families, item)
    _add_verdicts(families, items)
    lines = [line for name in families for line in _lines(name, families[name])]
    return "\n".join([*lines, "# EOF", ""])


def _add_estimates(families: dict[str, _Family], item: Result) -> None:
    for name, estimate in (item.get("estimates") or {}).items():
        quantity = QUANTITIES[name]
        unit = _UNITS.get(quantity.unit, "")
        family = families.setdefault(quantity.property_name, _Family(quantity.description, unit))
        if not estimate["lacking"]:
            _add(family, item, estimate["value"])


def _add_own(families: dict[str, _Family], item: Result) -> None:
    for name, quantity in (item.get("quantities") or {}).items():
        family = families.setdefault(
            "mlms_own_quantity", _Family("quantity that a test of the user's own recorded")
        )
        _add(family, item, quantity["value"], quantity=name, unit=quantity["unit"])


def _add_comparisons(families: dict[str, _Family], item: Result) -> None:
    for comparison in item.get("comparisons") or ():
        family = families.setdefault(
            "mlms_upgrade_ratio",
            _Family("candidate over baseline; of accuracy the candidate less the baseline"),
        )
        _add(family, item, comparison["ratio"], quantity=comparison["quantity"])


def _add_verdicts(families: dict[str, _Family], items: Iterable[Result]) -> None:
    family = _Family("items of the run by verdict")
    for verdict, count in Counter(item["verdict"] for item in items).items():
        family.samples[_labels({"verdict": verdict})] = count
    if family.samples:
        families["mlms_items"] = family


def _add(family: _Family, item: Result, value: float | None, **more: str) -> None:
    if value is None:
        return
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
