"""Markdown that GitHub shows as meant, and the summary of a run in it, for the page of a job.

Names and messages may come from strangers. They stand in code spans and code blocks, where no
character has a meaning: neither markup, nor mentions of people, nor numbers of issues. Elsewhere
every character that Markdown or HTML gives a meaning is written as an entity, which GitHub shows
and never interprets."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from pytest_mlms.core.records import Verdict
from pytest_mlms.core.text import columns_of, shortened, visible
from pytest_mlms.show.pages.item import ItemView, findings_of, judged_of
from pytest_mlms.show.pages.numbers import NONE
from pytest_mlms.show.report.github_annotations import has_manifest_errors, place_of
from pytest_mlms.show.report.reasons import by_reason, headline
from pytest_mlms.show.report.terminal import summary_line

_LONGEST = 300  # characters of a code span
_TICKS = re.compile("`+")


def code(text: str) -> str:
    """Return a text as a code span in one line; "" for an empty one."""
    line = " ".join(visible(shortened(text, _LONGEST)).split())
    if not line:
        return ""
    if line.startswith("`") or line.endswith("`"):
        line = f" {line} "
    fence = "`" * (_longest_run(line) + 1)
    return f"{fence}{line}{fence}"


def code_block(lines: Iterable[str], language: str = "") -> str:
    """Return lines as a fenced block."""
    text = "\n".join(visible(line) for line in lines)
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}\n"


def _longest_run(text: str) -> int:
    """Return the length of the longest row of backticks in a text."""
    lengths = [len(run) for run in _TICKS.findall(text)]
    return max(lengths, default=0)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose columns are as wide as their cells; "" without rows.

    Cells are Markdown of one line each.
    """
    # A table ends a cell at each bar, also in a code span, and after a backslash all the same.
    body = [[text.replace("\\|", "\\ |").replace("|", "\\|") for text in row] for row in rows]
    if not body:
        return ""
    columns = zip(titles, *body, strict=True)
    widths = [max(3, *map(columns_of, column)) for column in columns]
    rule = ["-" * width for width in widths]
    lines = []
    for row in (titles, rule, *body):
        cells = [
            cell + " " * (width - columns_of(cell)) for cell, width in zip(row, widths, strict=True)
        ]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def folded(title: str, body: str) -> str:
    """Return Markdown that opens by a click; the title is text of ours, as HTML would be read."""
    return f"<details><summary>{title}</summary>\n\n{body}\n</details>\n"


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
