"""The command that finds the release which made an upgrade worse."""

from __future__ import annotations

import shlex

__all__ = ["culprit_command", "point_id"]


def point_id(file: str, device: str, batch_size: int, variant: str | None = None) -> str:
    """Return the id that ``mlms culprit`` takes for a point of a manifest."""
    of_model = f"{variant}-" if variant else ""
    return f"{file}::test_upgrade[{of_model}{device}-b{batch_size}]"


def culprit_command(point: str, good: str, bad: str, quantity: str) -> str:
    """Return the command for two releases, such as onnxruntime==1.30.0."""
    words = ["mlms", "culprit", point, "--good", good, "--bad", bad, "--quantity", quantity]
    return shlex.join(words)
