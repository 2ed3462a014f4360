"""Summary of a run in Markdown, for the page of a job in GitHub Actions.

Names and messages may come from strangers: every character that Markdown or HTML gives a meaning
is written as an entity, which GitHub shows and never interprets.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pytest_mlms.records import Verdict
from pytest_mlms.report.columns import comparisons_of
from pytest_mlms.report.github_annotations import place_of
from pytest_mlms.report.last_results import Result, last_results, worst_first
from pytest_mlms.report.summary import summary_line
from pytest_mlms.text import shortened, visible
from pytest_mlms.upgrade.labels import format_change, percent
from pytest_mlms.views.numbers import value_text

__all__ = ["MOST_BYTES", "step_summary"]

MOST_BYTES = 900 * 1024
"""Largest summary of a step: GitHub drops one above 1 MiB."""

_FOLDED = (Verdict.XFAILED, Verdict.PASSED, Verdict.IMPROVED, Verdict.SKIPPED)
_ROWS = 100  # items of a table
_LONGEST_MESSAGE = 8000  # characters
_LONGEST_CELL = 300  # characters
_MARKUP = re.compile(r"[^\w\s.,:;/=%()+\"'-]|(?<!\w)_|_(?!\w)")
_NONE = "-"
_NOT_MEASURED = {"value": None, "unit": ""}
_TITLES = ("model", "case", "quantity", "measured", "interval", "limit", "set in")
_HEAD = f"| {' | '.join(_TITLES)} |\n|{'---|' * len(_TITLES)}\n"


class _Row(NamedTuple):
    """The cells behind an item's name; those that aren't known are "-"."""

    quantity: str
    measured: str
    interval: str
    limit: str
    place: str


def step_summary(results: Sequence[Result], most: int = MOST_BYTES) -> str:
    """Return the summary in at most ``most`` bytes, worst items first; "" where nothing fits."""
    items = worst_first(last_results(results))
    omitted = _omitted(items)
    blocks = [f"## {_text(summary_line(results))}\n\n", *_blocks(items)]
    taken = _fitting(blocks, most - _bytes_of(omitted))
    if taken and len(taken) < len(blocks):
        taken.append(omitted)
    return "".join(taken)


def _fitting(blocks: Iterable[str], most: int) -> list[str]:
    """Return as many of the blocks as ``most`` bytes have room for, from the first on."""
    taken: list[str] = []
    for block in blocks:
        most -= _bytes_of(block)
        if most < 0:
            break
        taken.append(block)
    return taken


def _bytes_of(text: str) -> int:
    return len(text.encode())


def _omitted(items: Sequence[Result]) -> str:
    return f"\nThis summary is cut: results.jsonl has all {len(items):,} items of the run.\n\n"


def _blocks(items: Sequence[Result]) -> Iterator[str]:
    """Yield the parts of a summary, each of which is complete in itself."""
    for verdict in Verdict:
        of_verdict = [item for item in items if item["verdict"] == verdict.value]
        for first in range(0, len(of_verdict), _ROWS):
            part = of_verdict[first : first + _ROWS]
            title = f"{verdict.value} ({_numbers(first, len(part), len(of_verdict))})"
            if verdict in _FOLDED:
                yield f"<details><summary>{title}</summary>\n\n{_table(part)}\n</details>\n\n"
            else:
                yield f"### {title}\n\n{_table(part)}\n"
                yield from map(_message, part)


def _numbers(first: int, count: int, whole: int) -> str:
    """Return the number of items, or which of them a table has."""
    if count == whole:
        return f"{whole:,}"
    last = first + count
    return f"{first + 1:,} to {last:,} of {whole:,}"


def _table(items: Iterable[Result]) -> str:
    lines = [_HEAD]
    for item in items:
        name = (item["manifest"]["name"], item["case"])
        for row in _rows(item):
            cells = " | ".join(map(_text, (*name, *row)))
            lines.append(f"| {cells} |\n")
    return "".join(lines)


def _message(item: Result) -> str:
    """Return the item's text, folded; "" for an item without one."""
    message = item.get("message")
    if not message:
        return ""
    title = _html(f"{item['manifest']['name']} {item['case']}")
    text = _html(shortened(message, _LONGEST_MESSAGE))
    return f"<details><summary>{title}</summary>\n<pre>{text}</pre>\n</details>\n\n"


def _rows(item: Result) -> Sequence[_Row]:
    """Return the rows of an item: of its limits or comparisons, else one with its place."""
    rows = [*_limit_rows(item), *_comparison_rows(item)]
    if not rows:
        message = _first_line(item)
        rows.append(_Row(_NONE, message, _NONE, _NONE, place_of(item)))
    return rows


def _first_line(item: Result) -> str:
    lines = (item.get("message") or _NONE).splitlines()
    return str(lines[0])


def _limit_rows(item: Result) -> Iterator[_Row]:
    """Yield a row for each limit that decided the item."""
    known = {**(item.get("estimates") or {}), **(item.get("quantities") or {})}
    for limit in _deciding(item.get("limits") or (), item["verdict"]):
        name = limit["quantity"]
        measured = known.get(name, _NOT_MEASURED)
        value = value_text(measured["value"], measured["unit"])
        bound = _bound(limit, measured["unit"])
        yield _Row(name, value, _interval(measured), bound, limit["place"])


def _bound(limit: Result, unit: str) -> str:
    if "min" in limit:
        return f"at least {value_text(limit['min'], unit)}"
    return f"at most {value_text(limit['max'], unit)}"


def _interval(measured: Result) -> str:
    low = measured.get("low")
    high = measured.get("high")
    if low is None and high is None:
        return _NONE
    ends = (-math.inf if low is None else low, math.inf if high is None else high)
    return " to ".join(value_text(end, measured["unit"]) for end in ends)


def _comparison_rows(item: Result) -> Iterator[_Row]:
    """Yield a row for each comparison that decided the item."""
    deciding = _deciding(item.get("comparisons") or (), item["verdict"])
    places = (item.get("terms") or {}).get("places") or {}
    for compared in comparisons_of({"comparisons": deciding}):
        a = value_text(compared.a, compared.unit)
        b = value_text(compared.b, compared.unit)
        change = format_change(compared)
        tolerance = f"tolerance {percent(compared.tolerance)}"
        place = places.get(compared.quantity) or place_of(item)
        yield _Row(compared.quantity, f"{a} → {b}", change, tolerance, place)


def _deciding(judged: Iterable[Any], verdict: str) -> list[Any]:
    """Return the limits or comparisons with the item's verdict; all where none has it."""
    entries = list(judged)
    deciding = [entry for entry in entries if entry["verdict"] == verdict]
    return deciding or entries


def _html(text: str) -> str:
    return html.escape(visible(text))


def _text(text: str) -> str:
    """Return a text for a heading or a cell, in one line and without markup."""
    line = " ".join(visible(shortened(text, _LONGEST_CELL)).split())
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", line)
