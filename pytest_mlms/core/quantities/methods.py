"""Versions of the methods of measurement, by kind of item."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_mlms.core.records import Kind

METHODS: Mapping[Kind, int] = {
    "accuracy": 1,
    "agreement": 1,
    "performance": 2,
    "upgrade": 2,
    "trace": 1,
    "soak": 1,
}
"""Kind of item -> the version of its method.

Raise it when the same software on the same machine would measure another value, or one that means
something else: another clock, loop, warm-up, estimator or definition of a metric. The history then
begins new series, as the values before and after can't be compared. Don't raise it for other
intervals, limits or fields.
"""
