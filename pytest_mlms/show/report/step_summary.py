"""Summary of a run in Markdown, for the page of a job in GitHub Actions.

Names and messages may come from strangers: every character that Markdown or HTML gives a meaning
is written as an entity, which GitHub shows and never interprets.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from pytest_mlms.core.records import Verdict
from pytest_mlms.core.text import shortened, visible
from pytest_mlms.show.pages.findings import findings_of, judged_of
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.numbers import NONE
from pytest_mlms.show.report.github_annotations import has_manifest_errors, place_of
from pytest_mlms.show.report.markdown import code_block
from pytest_mlms.show.report.reasons import by_reason, headline
from pytest_mlms.show.report.summary import summary_line

MOST_BYTES = 900 * 1024
"""Largest summary of a step: GitHub drops one above 1 MiB."""

_FOLDED = (Verdict.XFAILED, Verdict.PASSED, Verdict.IMPROVED, Verdict.SKIPPED)
_ROWS = 100  # items of a table
_LONGEST_MESSAGE = 8000  # characters
_LONGEST_CELL = 300  # characters
_MARKUP = re.compile(r"[^\w\s.,:;/=%()+\"'-]|(?<!\w)_|_(?!\w)")
_TITLES = ("model", "case", "quantity", "measured", "judged by", "set in")
_HEAD = f"| {' | '.join(_TITLES)} |\n|{'---|' * len(_TITLES)}\n"


def step_summary(
    results: Iterable[ItemView], most: int = MOST_BYTES, collection: Iterable[str] = ()
) -> str:
    """Return the summary in at most ``most`` bytes, worst items first; "" where nothing fits.

    ``collection`` has the texts of what could not be collected: errors of manifests come first,
    with the lines below each that explain it.
    """
    blocks = []
    errors = [text for text in collection if has_manifest_errors(text)]
    if errors:
        blocks.append("## mlms: manifests with errors\n\n")
    for text in errors:
        blocks.append(f"{code_block(shortened(text, _LONGEST_MESSAGE).splitlines())}\n")
    items = sorted(results, key=lambda item: item.badness)
    if items:
        blocks += [f"## {_text(summary_line(items))}\n\n", *_blocks(items)]

    omitted = f"\nThis summary is cut: results.jsonl has all {len(items):,} items of the run.\n\n"
    left = most - len(omitted.encode())
    taken: list[str] = []
    for block in blocks:
        left -= len(block.encode())
        if left < 0:
            break
        taken.append(block)
    if taken and len(taken) < len(blocks):
        taken.append(omitted)
    return "".join(taken)


def _blocks(items: Sequence[ItemView]) -> Iterator[str]:
    """Yield the parts of a summary, each of which is complete in itself."""
    for verdict in Verdict:
        of_verdict = [item for item in items if item.verdict is verdict]
        whole = len(of_verdict)
        for first in range(0, whole, _ROWS):
            part = of_verdict[first : first + _ROWS]
            numbers = f"{whole:,}"
            if len(part) < whole:
                numbers = f"{first + 1:,} to {first + len(part):,} of {whole:,}"
            title = f"{verdict.value} ({numbers})"
            if verdict in _FOLDED:
                yield f"<details><summary>{title}</summary>\n\n{_table(part)}\n</details>\n\n"
            else:
                yield f"### {title}\n\n{_table(part)}\n"
                yield from (_message(first) for first, *_ in by_reason(part))


def _table(items: Iterable[ItemView]) -> str:
    """Return a row for each finding of an item, else one with its message."""
    lines = [_HEAD]
    for item in items:
        rows = [
            (found.quantity, found.measured, found.bound, found.place or place_of(item))
            for found in findings_of(item) or judged_of(item)
        ]
        if not rows:
            rows.append((NONE, headline(item) if item.message else NONE, NONE, place_of(item)))
        for row in rows:
            cells = " | ".join(map(_text, (item.manifest.name, item.case, *row)))
            lines.append(f"| {cells} |\n")
    return "".join(lines)


def _message(item: ItemView) -> str:
    """Return the item's text, folded; "" for an item without one."""
    if not item.message:
        return ""
    title = html.escape(visible(f"{item.manifest.name} {item.case}"))
    text = html.escape(visible(shortened(item.message, _LONGEST_MESSAGE)))
    return f"<details><summary>{title}</summary>\n<pre>{text}</pre>\n</details>\n\n"


def _text(text: str) -> str:
    """Return a text for a heading or a cell, in one line and without markup."""
    line = " ".join(visible(shortened(text, _LONGEST_CELL)).split())
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", line)
