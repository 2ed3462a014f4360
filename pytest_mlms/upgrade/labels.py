"""Labels of an upgrade's case in tables."""

from __future__ import annotations

__all__ = ["point_label", "sides_label"]


def sides_label(candidate: str, baseline: str, framework: str) -> str:
    """Return what is compared, with the framework where the candidate's name does not have it."""
    label = f"{candidate} (B) against {baseline} (A)"
    if framework in candidate:
        return label
    return f"{label}, {framework}"


def point_label(device: str, batch_size: int) -> str:
    """Return the rest of the case, beside its sides."""
    return f"{device}-b{batch_size}"
