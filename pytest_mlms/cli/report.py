"""``mlms report``: reports of runs that were measured before, from their results alone."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from pytest_mlms.cli.arguments import check_output
from pytest_mlms.core.errors import MlmsError

_HTML = "report.html"
_MARKDOWN = "upgrade-report.md"


def add_report(commands: Any) -> None:
    """Add the command."""
    report = commands.add_parser(
        "report", help="write runs as one HTML file, or an upgrade for an issue tracker"
    )
    report.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="a run's folder, or its results.jsonl"
    )
    report.add_argument(
        "--against", type=Path, metavar="RUN", help="a run to compare each of them with"
    )
    report.add_argument(
        "--history",
        metavar="FILE|URL",
        help="history whose series of these items are shown (default: the project's mlms_history)",
    )
    report.add_argument(
        "--upgrade-report",
        action="store_true",
        help="write each REGRESSED upgrade as Markdown for an issue tracker, in place of HTML",
    )
    report.add_argument(
        "--bisection",
        type=Path,
        metavar="FILE",
        help="bisect.json of 'mlms bisect', for --upgrade-report",
    )
    report.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"file to write (default: {_HTML}, {_MARKDOWN})",
    )
    report.set_defaults(run=_report)


def _report(options: argparse.Namespace) -> int:
    """Write the report and print its path; return 0 whatever the verdicts are."""
    write = _write_markdown if options.upgrade_report else _write_html
    out = options.out or Path(_MARKDOWN if options.upgrade_report else _HTML)
    check_output(out, "--out")
    write(options, out)
    print(out)
    return 0


def _write_markdown(options: argparse.Namespace, out: Path) -> None:
    from pytest_mlms.explain.bisect.record import load_record
    from pytest_mlms.show.pages.run import read_run
    from pytest_mlms.show.report.upgrade_report import Evidence, write_upgrades

    if options.against or options.history:
        problem = "--upgrade-report has neither another run nor a history"
        raise MlmsError(f"{problem}; leave out --against and --history")
    record = load_record(options.bisection) if options.bisection else None
    write_upgrades(out, [read_run(run) for run in options.runs], Evidence(bisection=record))


def _write_html(options: argparse.Namespace, out: Path) -> None:
    from pytest_mlms.show.pages.html import require_templates

    require_templates()
    if options.bisection:
        raise MlmsError("--bisection is for --upgrade-report; add that, or leave it out")
    from pytest_mlms.project import find_project
    from pytest_mlms.show.pages.report import write_report
    from pytest_mlms.show.pages.run import read_run

    runs = [read_run(run) for run in options.runs]
    baseline = read_run(options.against) if options.against else None
    problem = write_report(out, runs, baseline, options.history or find_project().history)
    if problem and options.history:
        raise MlmsError(problem)
    if problem:  # a project's history may not be there yet
        print(f"mlms report: {problem}", file=sys.stderr)
