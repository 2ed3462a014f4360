"""Rows of the index, read from lines that strangers may have written: any field may be missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def item_row(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of an item that its line has; a text that is missing is empty."""
    return {
        "nodeid": _text(line, "nodeid"),
        "repetition": _whole(line.get("repetition")),
        "point": _text(line, "case"),
        "kind": _text(line, "kind"),
        "verdict": _text(line, "verdict"),
        "model": _text(line, "manifest", "name"),
        "version": _text(line, "manifest", "version"),
        "framework": _text(line, "framework"),
        "stack": _text(line, "stack", "name"),
        "device": _text(line, "device"),
        "host": _text(line, "machine", "host"),
        "time": _text(line, "time"),
        "cost_batch": _whole(_value(line, "trace", "cost") and line.get("batch_size", 1)),
    }


def software_rows(line: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the software of each side of an item, where its framework has a version.

    Upgrades have that of both sides in their rounds.
    """
    rounds = line.get("rounds")
    first = rounds[0] if isinstance(rounds, list) and rounds else {}
    of_sides = {"a": "against", "b": "stack"}
    framework = _text(line, "framework")
    for side, stack in of_sides.items():
        version = _text(first, "sides", side, "versions", framework)
        if side == "b":
            version = version or _text(line, "versions", framework)
        if version:
            yield {
                "side": side,
                "host": _text(line, "machine", "host"),
                "stack": _text(line, stack, "name"),
                "framework": framework,
                "version": version,
                "time": _text(line, "time"),
            }


def run_row(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a run that a line tells."""
    kind = line.get("type")
    status = _whole(line.get("exit_status")) if kind == "end" else None
    row = {"started": _text(line, "time"), "exit_status": status}
    if kind == "run":
        row["started"] = _text(line, "began") or row["started"]  # old lines have their time only
        row["plugin"] = _text(line, "plugin")
    elif kind == "item":
        row["host"] = _text(line, "machine", "host")
    return row


def _whole(value: object) -> int | None:
    """Return a whole number that SQLite can have; None for anything else."""
    if not isinstance(value, int) or value.bit_length() > 63:
        return None
    return value


def _text(line: Any, *keys: str) -> str:
    value = _value(line, *keys)
    return value if isinstance(value, str) else ""


def _value(line: Any, *keys: str) -> Any:
    value = line
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
