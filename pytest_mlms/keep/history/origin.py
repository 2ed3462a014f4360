"""The revision and the job of the CI that a run came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def origin_columns(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of table ``run`` that a line of type run tells; None for the others.

    A line of an older version has none of these fields.
    """
    git = line.get("git") or {}
    job = line.get("ci") or {}
    return {
        "git_sha": git.get("sha"),
        "dirty": git.get("dirty"),
        "branch": git.get("branch"),
        "ci_url": job.get("url"),
    }
