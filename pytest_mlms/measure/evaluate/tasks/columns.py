"""Columns of predictions.csv."""

from __future__ import annotations

from collections.abc import Iterable


def number_texts(values: Iterable[float]) -> list[str]:
    """Return numbers with six digits."""
    return [f"{value:.6g}" for value in values]
