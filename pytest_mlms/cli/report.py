"""``mlms report``: the HTML report of runs that were measured before, from their results alone."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_mlms.errors import MlmsError

if TYPE_CHECKING:
    from pytest_mlms.html.report import HistoryFigures

__all__ = ["add_report"]


def add_report(commands: Any) -> None:
    """Add the command."""
    report = commands.add_parser("report", help="write runs as one HTML file")
    report.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="a run's folder, or its results.jsonl"
    )
    report.add_argument(
        "--against", type=Path, metavar="RUN", help="a run to compare each of them with"
    )
    report.add_argument(
        "--history", metavar="FILE|URL", help="history whose series of these items are shown"
    )
    report.add_argument(
        "--out",
        type=Path,
        default=Path("report.html"),
        metavar="FILE",
        help="file to write (default: report.html)",
    )
    report.set_defaults(run=_report)


def _report(options: argparse.Namespace) -> int:
    """Write the report and print its path; return 0 whatever the verdicts are."""
    from pytest_mlms.html.pages import require_templates

    require_templates()
    if not options.out.parent.is_dir():
        raise MlmsError(f"{options.out}: there is no folder {options.out.parent}; make it")
    if options.out.is_dir():
        raise MlmsError(f"{options.out} is a folder; name a file with --out")
    from pytest_mlms.html.report import write_report
    from pytest_mlms.views.run import read_run

    runs = [read_run(run) for run in options.runs]
    baseline = read_run(options.against) if options.against else None
    history: HistoryFigures = ()
    if options.history:
        from pytest_mlms.html.history import history_figures

        history = history_figures(options.history, runs)
    write_report(options.out, runs, baseline, history)
    print(options.out)
    return 0
