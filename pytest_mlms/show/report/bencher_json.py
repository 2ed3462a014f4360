"""Results of a run in Bencher Metric Format: benchmark, measure, value with its interval.

https://bencher.dev/docs/reference/bencher-metric-format/
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.text import encodable
from pytest_mlms.show.report.exported import Exported, exported_numbers
from pytest_mlms.show.report.last_results import Result, last_results

_LONGEST_NAME = 1024  # characters of a benchmark
_LONGEST_SLUG = 64  # characters of a measure
_ENDS = {"low": "lower_value", "high": "upper_value"}
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
    measures = {}
    for number in exported_numbers(item):
        metric = {"value": float(number.value)}
        for end, value in number.ends.items():
            metric[_ENDS[end]] = float(value)
        measures[_slug(_measure(number))] = metric
    return measures


def _measure(number: Exported) -> str:
    """Return the name of a number's measure."""
    if number.form == "estimate":
        return QUANTITIES[number.name].property_name.removeprefix("mlms_")
    return f"{number.name}-{number.unit if number.form == 'own' else number.form}"


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
