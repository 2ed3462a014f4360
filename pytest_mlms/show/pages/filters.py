"""Filters of templates: the texts of numbers, times and names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pytest_mlms.core.records import Verdict
from pytest_mlms.core.text import visible
from pytest_mlms.decide.upgrade.labels import format_change, tolerance_label, verdict_label
from pytest_mlms.show.pages.numbers import (
    count_text,
    distance_text,
    estimate_text,
    interval_text,
    limit_text,
    own_text,
    quantity_label,
    value_text,
    verdict_words,
)

_TONES = {
    "ERROR": "bad",
    "INVALID": "bad",
    "FAILED": "bad",
    "REGRESSED": "bad",
    "INCONCLUSIVE": "warn",
    "XFAILED": "muted",
    "PASSED": "good",
    "IMPROVED": "good",
    "SKIPPED": "muted",
}
"""Verdict -> the paint of its badge."""


def tone(verdict: str) -> str:
    """Return the paint of a verdict."""
    return _TONES.get(verdict, "muted")


def words(verdict: str) -> str:
    """Return a verdict as the last line of a run has it after a number."""
    return verdict_words(Verdict(verdict))


def moment(time: str) -> str:
    """Return a time of ISO 8601 as people read it, without fractions of a second."""
    return time[:19].replace("T", " ") + (" UTC" if time.endswith("+00:00") else "")


FILTERS: Mapping[str, Callable[..., Any]] = {
    "change": format_change,
    "count": count_text,
    "distance": distance_text,
    "estimate": estimate_text,
    "interval": interval_text,
    "label": quantity_label,
    "limit": limit_text,
    "moment": moment,
    "own": own_text,
    "quantity": value_text,
    "tolerance": tolerance_label,
    "tone": tone,
    "verdict": verdict_label,
    "visible": visible,
    "words": words,
}
"""Name in templates -> filter. ``{{ estimate.value | quantity(estimate.unit) }}``."""
