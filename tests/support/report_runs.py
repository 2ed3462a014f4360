"""Runs of made-up lines for the reports that are made of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_mlms.core.records import Verdict
from pytest_mlms.show.pages.run import RunView, read_run
from tests.support.histories import item_line
from tests.support.result_lines import HOSTILE, broken_limit, line_of, undecided, upgrade

__all__ = ["HEAD", "every_verdict", "hostile", "many", "read_lines", "write_lines"]

HEAD = {"format": 1, "run": "20261123-100000-abc123", "time": "2026-11-23T10:00:00.000+00:00"}
ABOUT = {"command": ["/venv/bin/pytest", "--mlms-report=r.html"], "python": "3.11.7", "plugin": "1"}


def write_lines(folder: Path, items: Iterable[Mapping[str, Any]]) -> Path:
    """Write a run that ended with these items; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [{**HEAD, **ABOUT, "type": "run"}]
    lines += [{**HEAD, "type": "item", **item} for item in items]
    lines.append({**HEAD, "type": "end", "exit_status": 1, "items": len(lines) - 1})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "results.jsonl").write_text(text)
    return folder


def read_lines(folder: Path, items: Iterable[Mapping[str, Any]]) -> RunView:
    """Return the run of these items."""
    return read_run(write_lines(folder, items))


def every_verdict() -> Sequence[dict[str, Any]]:
    """Return items with every verdict: the worst of them with what makes it so."""
    special = {
        Verdict.FAILED: broken_limit(20),
        Verdict.INCONCLUSIVE: undecided(30),
        Verdict.REGRESSED: {**upgrade(40), "against": {"name": "old", "threads": 1}},
    }
    items = []
    for number, verdict in enumerate(Verdict, 1):
        plain = line_of(number, verdict.value, message=f"why it is {verdict.value}")
        items.append(special.get(verdict, plain))
    return items


def hostile(text: str = HOSTILE) -> Sequence[dict[str, Any]]:
    """Return an item of each kind of verdict whose every text ends in markup."""
    kept = ("kind", "verdict", "quantity", "of", "unit")
    return [_with_hostile_texts(item, text, kept) for item in every_verdict()]


def _with_hostile_texts(value: Any, text: str, keep: Sequence[str]) -> Any:
    """Return a value with each text in it, but those under ``keep``, before markup."""
    if isinstance(value, dict):
        made = {}
        for name, entry in value.items():
            made[name] = entry if name in keep else _with_hostile_texts(entry, text, keep)
        return made
    if isinstance(value, list):
        return [_with_hostile_texts(entry, text, keep) for entry in value]
    return f"{value}{text}" if isinstance(value, str) and value else value


def many(count: int, bad: int = 0) -> Iterable[dict[str, Any]]:
    """Yield the lines of real performance items, of which the first ``bad`` failed."""
    for number in range(count):
        verdict = "FAILED" if number < bad else "PASSED"
        yield item_line(1, number, verdict=verdict)
