"""Results of a run in Bencher Metric Format: benchmark, measure, value with its interval.

https://bencher.dev/docs/reference/bencher-metric-format/
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable

from pytest_mlms.quantities import QUANTITIES
from pytest_mlms.report.last_results import Result, last_results
from pytest_mlms.text import encodable

__all__ = ["bencher_json"]

_LONGEST_NAME = 1024  # characters of a benchmark
_LONGEST_SLUG = 64  # characters of a measure
_DIGEST = 8  # characters that keep shortened names apart

Metric = dict[str, float]
"""``value``, and where they are known ``lower_value`` and ``upper_value``."""


def bencher_json(results: Iterable[Result]) -> str:
    """Return the document; items without a number are left out.

    Measures have the base unit in their name, such as ``latency-p50-seconds``: Bencher's own
    measure ``latency`` is in nanoseconds.
    """
    document = {}
    for item in last_results(results):
        measures = _measures(item)
        if measures:
            name = encodable(item["nodeid"])
            document[_shortened(name, _LONGEST_NAME)] = measures
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _measures(item: Result) -> dict[str, Metric]:
    measures: dict[str, Metric | None] = {}
    for name, estimate in (item.get("estimates") or {}).items():
        if not estimate["lacking"]:
            full_name = QUANTITIES[name].property_name.removeprefix("mlms_")
            measures[_slug(full_name)] = _metric(estimate, "value")
    for name, quantity in (item.get("quantities") or {}).items():
        slug = _slug(f"{name}-{quantity['unit']}")
        measures[slug] = _metric(quantity, "value")
    for comparison in item.get("comparisons") or ():
        slug = _slug(f"{comparison['quantity']}-ratio")
        measures[slug] = _metric(comparison, "ratio")
    return {slug: metric for slug, metric in measures.items() if metric}


def _metric(fields: Result, value: str) -> Metric | None:
    """Return a number with its interval; None where there is none."""
    ends = {"value": value, "lower_value": "low", "upper_value": "high"}
    metric = {}
    for name, source in ends.items():
        number = fields.get(source)
        if number is not None:
            metric[name] = float(number)
    return metric if "value" in metric else None


def _slug(name: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return _shortened(slug, _LONGEST_SLUG)


def _shortened(name: str, most: int) -> str:
    """Return a name of at most ``most`` characters that differs from those of others."""
    if len(name) <= most:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()
    suffix = f"-{digest[:_DIGEST]}"
    return name[: most - len(suffix)] + suffix
