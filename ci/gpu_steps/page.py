"""The figures of a run of ci/gpu as a table, and in docs/gpu.md."""

import re
import sys
import time
from pathlib import Path
from typing import List, Sequence

from gpu_steps.facts import Fact

_PLACE = re.compile(r"(<!-- figures -->\n).*?(<!-- end of figures -->)", re.DOTALL)
_ANSWERS = {True: "yes", False: "**no**", None: ""}


def write_page(facts: Sequence[Fact], page: Path) -> None:
    """Write the figures between the marks of a page."""
    text = page.read_text(encoding="utf-8")
    if not _PLACE.search(text):
        sys.exit("%s: no <!-- figures --> and <!-- end of figures -->; write them there" % page)
    made = "\n".join([origin(facts), "", *table(facts), ""])
    page.write_text(_PLACE.sub(lambda found: found[1] + made + found[2], text), encoding="utf-8")


def origin(facts: Sequence[Fact]) -> str:
    """Return the card, the driver, the commit and the day of a run, as a sentence."""
    machine = next((fact for fact in facts if "card" in fact), {})
    card = machine.get("card", "an unknown card")
    driver = machine.get("driver", "unknown")
    commit = machine.get("commit", "unknown")
    day = time.strftime("%Y-%m-%d", time.gmtime(facts[0]["at"])) if facts else "an unknown day"
    return "Measured by `ci/gpu` on %s (%s, driver %s, commit %s)." % (day, card, driver, commit)


def table(facts: Sequence[Fact]) -> List[str]:
    """Return a line for each figure, and for each step that has none."""
    head = ["| step | what | figure | bound | within |", "|---|---|---:|---|---|"]
    rows = [(fact["step"], _cells(fact)) for fact in facts]
    return head + [_row(step, *cells) for step, cells in rows if cells]


def _cells(fact: Fact) -> Sequence[str]:
    """Return the cells of a fact, none where it is for the file alone."""
    if "what" in fact:
        return fact["what"], fact["shown"], fact["bound"], _ANSWERS[fact["holds"]]
    if "not_run" in fact:
        return "not run: " + fact["not_run"], "", "", ""
    if "failed" in fact:
        return fact["failed"], "", "", _ANSWERS[False]
    return ()


def _row(*cells: str) -> str:
    return "| %s |" % " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells)
