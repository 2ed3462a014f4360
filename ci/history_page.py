"""The page of the study of changes, docs/history_study.md."""

from __future__ import annotations

import dataclasses
import datetime
import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from history_noise import NOISES, recording
from history_versions import BEFORE, KINDS, STEP, VersionCell
from history_versions import NOISES as VERSION_NOISES

__all__ = ["Cell", "Drift", "Study", "make_page"]

_WIDTH = 120

_NAMES = {
    "ours": "pytest-mlms",
    "ours_loose": "pytest-mlms, risk 5 %",
    "otava": "Otava",
    "ruptures": "ruptures, BIC",
    "asv": "asv",
    "previous": "previous × 1.05",
    "two_sigma": "2 sigma of 30",
}

_INTRODUCTION = """# Changes in a history: how many are found, and how many reports are wrong

Written by `ci/history_study` on {date}. Each rule runs every night. It sees the
history so far, and reports changes that it has not reported before. Two reports within eight runs
count as the same change. [History](history.md#how-a-change-is-found) explains our rule.

- **False alarms a year** are the reports in 365 runs of a series without a step, with their
  standard error.
- **Found** is the share of steps of that size that were reported within 30 runs and placed at most
  10 runs off, with the median number of runs until the report. Steps go up and down in turns, and
  come after 60 to 100 runs. A rule that often reports something also finds steps by chance.
- Our rule has a risk of 0.03 % a night. The study can change it: with 5 %, our rule finds small
  steps in normal noise about as often as Otava, so false alarms can be compared at equal power.
- Changes of less than 2 % are ignored, except by the last two rules. Otava 0.8.0 runs with its
  default window of 50 and p < 0.001; ruptures 1.1.10 with an optimal partition of the logarithms
  and the BIC penalty; asv 0.6.6 with its steps and regressions, of values and of their inverse.
"""


@dataclass(frozen=True)
class Found:
    """The share of steps of a size that were found, and after how many runs, by the median."""

    step: float
    share: float
    wait: float | None


@dataclass(frozen=True)
class Cell:
    """How a rule does on series of one kind.

    ``rate`` and ``error`` are false alarms a year and their standard error.
    """

    rule: str
    noise: str
    series: int
    rate: float
    error: float
    found: Sequence[Found]


@dataclass(frozen=True)
class Drift:
    """The share of drifting series in which a rule reports, when first, and how often a year."""

    rule: str
    found: float
    first: float | None
    reports: float


@dataclass(frozen=True)
class Study:
    """All that studies found, by the rules in their order of the page."""

    cells: Sequence[Cell] = ()
    drifts: Sequence[Drift] = ()
    versions: Sequence[VersionCell] = ()

    @classmethod
    def read(cls, path: Path) -> Study:
        """Return the study in a file; an empty one where there is none."""
        if not path.exists():
            return cls()
        document = json.loads(path.read_text())
        cells = []
        for cell in document["cells"]:
            found = [Found(**share) for share in cell["found"]]
            cells.append(Cell(**{**cell, "found": found}))
        drifts = [Drift(**drift) for drift in document["drifts"]]
        versions = [VersionCell(**cell) for cell in document.get("versions", [])]
        return cls(cells, drifts, versions)

    def write(self, path: Path) -> None:
        """Write the study into a file."""
        path.write_text(json.dumps(dataclasses.asdict(self)))

    def with_cell(self, new: Cell) -> Study:
        """Return the study with a cell, also in place of an earlier one."""
        same = (new.rule, new.noise)
        kept = [cell for cell in self.cells if (cell.rule, cell.noise) != same]
        return Study(sorted([*kept, new], key=_order), self.drifts, self.versions)

    def with_drift(self, new: Drift) -> Study:
        """Return the study with a rule's drift, also in place of an earlier one."""
        kept = [drift for drift in self.drifts if drift.rule != new.rule]
        return Study(self.cells, sorted([*kept, new], key=_order), self.versions)

    def with_versions(self, cells: Sequence[VersionCell]) -> Study:
        """Return the study with these cells of versions."""
        return Study(self.cells, self.drifts, cells)


def _order(of_rule: Cell | Drift) -> int:
    return list(_NAMES).index(of_rule.rule)


def make_page(study: Study) -> str:
    """Return the page."""
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    parts = [_INTRODUCTION.format(date=date)]
    for name, noise in NOISES.items():
        parts.append(_section(f"Noise: {name}", noise.description, name, study.cells))
    parts.append(_section("Recorded series", recording(), "recorded", study.cells))
    parts.append(_drift_section(study.drifts))
    if study.versions:
        parts.append(_version_section(study.versions))
    return "\n".join(parts)


def _section(title: str, text: str, noise: str, cells: Iterable[Cell]) -> str:
    of_noise = [cell for cell in cells if cell.noise == noise]
    if not of_noise:
        return ""
    steps = [f"{found.step:.0%} found" for found in of_noise[0].found]
    columns = ["rule", "series", "false alarms a year", *steps]
    return _table(title, text, columns, [_row(cell) for cell in of_noise])


def _row(cell: Cell) -> list[str]:
    alarms = f"{cell.rate:.2f} ± {cell.error:.2f}"
    return [_NAMES[cell.rule], str(cell.series), alarms, *map(_share, cell.found)]


def _share(found: Found) -> str:
    return (
        f"{found.share:.0%}" if found.wait is None else f"{found.share:.0%}, after {found.wait:.0f}"
    )


def _drift_section(drifts: Iterable[Drift]) -> str:
    rows = []
    for drift in drifts:
        first = "-" if drift.first is None else f"{drift.first:.0f}"
        rows.append([_NAMES[drift.rule], f"{drift.found:.0%}", first, f"{drift.reports:.1f}"])
    columns = ["rule", "series with a report", "median run of the first", "reports a year"]
    text = "These series get 10 % slower in a year, with noise of 1 %."
    return _table("Slow drift", text, columns, rows)


def _version_section(cells: Sequence[VersionCell]) -> str:
    """Return the tables of nights with another version: with a step, and without one."""
    by_place = {(cell.kind, cell.noise): cell for cell in cells}
    columns = ["series of a night", *[f"noise of {noise:.1%}" for noise in VERSION_NOISES]]
    stepped = []
    quiet = []
    for kind in KINDS:
        of_kind = [by_place[kind.name, noise] for noise in VERSION_NOISES]
        shares = [f"{cell.found:.1%}, {cell.series:.1%}, {cell.named:.1%}" for cell in of_kind]
        stepped.append([kind.name, *shares])
        rates = [
            f"{1000 * cell.false:.2f} ± {1000 * cell.error:.2f}, {cell.false_named:.1%}"
            for cell in of_kind
        ]
        quiet.append([kind.name, *rates])
    found = _table(
        "A version that changes everything",
        f"{BEFORE} nights are followed by one with another version, which is slower by {STEP:.0%}. "
        "Each cell has the share of such nights with an alarm at once, the share of changed series "
        "with an alarm, and the share of nights with an alarm or a suspicion that is only named. "
        "Noise is normal, with this standard deviation between nights.",
        columns,
        stepped,
    )
    false = _table(
        "A version that changes nothing",
        f"The same without a step. Each cell has the number of nights in 1,000 with a false alarm, "
        f"its standard error over {cells[0].nights:,} nights, and the share of nights with an "
        "alarm or a suspicion that is only named.",
        columns,
        quiet,
    )
    return f"{found}\n{false}"


def _table(title: str, text: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [
        f"## {title}",
        textwrap.fill(text, _WIDTH),
        "",
        _line(columns),
        _line(["---"] * len(columns)),
    ]
    lines += [_line(row) for row in rows]
    return "\n".join([*lines, ""])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
