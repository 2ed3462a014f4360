"""``mlms history``: its subcommands; those that find and accept changes are in ``history_changes``.

What needs the extra ``history`` is imported inside functions: the help must do without it.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_mlms.cli.arguments import (
    DEFAULT_HISTORY,
    add_cache,
    add_expression,
    add_more_requirements,
    add_results,
    add_session_arguments,
    check_output,
    child_options,
    of_project,
    output_width,
    positive,
    print_error,
    show_step,
)
from pytest_mlms.cli.history_changes import add_accept, add_changes
from pytest_mlms.core.files import replacing
from pytest_mlms.core.units import format_quantity

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from pytest_mlms.keep.history.adding import Added
    from pytest_mlms.keep.history.backfill import BackfillOptions, Work
    from pytest_mlms.keep.history.queries import SeriesInfo
    from pytest_mlms.show.report.history_tables import Style


def add_add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = commands.add_parser("add", parents=[common], help="add runs to the history")
    parser.add_argument(
        "runs",
        nargs="*",
        type=Path,
        metavar="RUN",
        help="a run's folder, or a folder of runs; without one, the runs that are queued",
    )
    add_results(parser, "folder whose queue is meant (default: mlms-results)", "--results")
    parser.set_defaults(run=_add)


def _add(options: argparse.Namespace) -> int:
    """Return 1 where a run could not be added; the others are."""
    if not options.runs:
        return _add_queued(options.results, options.history)
    from pytest_mlms.keep.history.adding import add_run
    from pytest_mlms.keep.history.errors import HistoryError, HistoryUnavailable
    from pytest_mlms.keep.history.store import open_history

    status = 0
    history = open_history(options.history)
    for run in _runs_of(options.runs):
        try:
            _print_added(add_run(history, run))
        except HistoryUnavailable:
            raise
        except HistoryError as error:
            print_error(error)
            status = 1
    return status


def _add_queued(results: Path, address: str) -> int:
    from pytest_mlms.keep.history.catching_up import catch_up, queue_of

    queue = queue_of(results, address)
    caught_up = catch_up(queue, results, address, with_refused=True)
    for added in caught_up.added:
        _print_added(added)
    for problem in caught_up.problems:
        print_error(problem)
    if not caught_up.added and not caught_up.problems:
        print(f"no run in {results} is queued for {queue.history}")
    for other in queue.others():
        print(f"{other.folder} is queued for {other.history}")
    return 1 if caught_up.problems else 0


def _runs_of(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield each run that is named, and the runs of a folder of runs, the oldest first."""
    for path in paths:
        files = sorted(path.glob("*/results.jsonl"))
        if (path / "results.jsonl").exists() or not files:
            yield path
            continue
        for file in files:
            if not file.parent.is_symlink():  # such as latest
                yield file.parent


def _print_added(added: Added) -> None:
    print(f"{added.run}: {added.lines:,} lines added, {added.points:,} points")


_MOST_SERIES = 100  # of a table
_LAST = 30  # points of a table


def add_show(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "show", parents=[common], help="show series, the points of one, or versions of a package"
    )
    add_expression(
        parser,
        "words of model, kind, case, quantity and machine, as in pytest: 'b8 and not cuda'",
    )
    parser.add_argument("--quantity", default="", help="such as latency_p90, or all")
    parser.add_argument("--by", metavar="PACKAGE", help="a row for each version of a package")
    parser.add_argument(
        "--last", type=positive, metavar="N", help=f"last N points (default of tables: {_LAST})"
    )
    parser.add_argument("--format", choices=["table", "csv", "json"], default="table")
    parser.set_defaults(run=_show)


def _show(options: argparse.Namespace) -> int:
    from pytest_mlms.keep.history.queries import series_by_id
    from pytest_mlms.keep.history.selection import select_series
    from pytest_mlms.keep.history.store import open_to_read

    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None and not _has_unicode():
        reconfigure(errors="replace")  # of the sign of micro, and of names
    with open_to_read(options.history).connect() as connection:
        ids = select_series(connection, options.expression, options.quantity)
        series = series_by_id(connection, ids)
        if options.format != "table":
            _write_data(connection, series, options)
        elif options.by:
            _print_versions(connection, _main_of(series, options), options.by)
        else:
            shown = _main_of(series, options)
            _print_series(connection, shown, options.last or _LAST)
            names = {each.quantity for each in series} - {each.quantity for each in shown}
            if names:
                text = f"also measured: {', '.join(sorted(names))} (--quantity NAME, or all)"
                print(textwrap.fill(text, _style().width))
    return 0


def _main_of(series: list[SeriesInfo], options: argparse.Namespace) -> list[SeriesInfo]:
    """Return one quantity of each performance item, unless others are asked for."""
    from pytest_mlms.keep.history.selection import is_main

    if options.quantity:
        return series
    return [each for each in series if is_main(each.quantity)] or series


def _print_series(connection: Connection, series: list[SeriesInfo], last: int) -> None:
    """Print the points of one series, or a line for each of several."""
    if len(series) == 1:
        _print_points(connection, series[0], last)
    else:
        _print_overview(connection, series[:_MOST_SERIES])
    more = len(series) - _MOST_SERIES
    if more > 0:
        print(f"{more:,} more series: choose some by -k, or take all by --format csv")


def _print_overview(connection: Connection, series: list[SeriesInfo]) -> None:
    from pytest_mlms.keep.history.queries import last_points, point_counts
    from pytest_mlms.show.report.history_tables import EARLIER, series_table

    ids = [each.id for each in series]
    points = last_points(connection, ids, EARLIER + 1, usable=True)
    for line in series_table(series, points, point_counts(connection, ids), _style()):
        print(line)


def _print_points(connection: Connection, series: SeriesInfo, last: int) -> None:
    from pytest_mlms.keep.history.queries import point_counts, points, stacks
    from pytest_mlms.show.report.history_tables import points_table

    found = points(connection, series.id, last)
    known = stacks(connection, [point.stack for point in found])
    _print_title(series)
    for line in points_table(series, found, known, _style()):
        print(line)
    earlier = point_counts(connection, [series.id])[series.id] - len(found)
    if earlier > 0:
        print(f"{earlier:,} earlier points: --last N")


def _print_versions(connection: Connection, series: list[SeriesInfo], package: str) -> None:
    from pytest_mlms.keep.history.by_version import by_version
    from pytest_mlms.show.report.history_tables import versions_table

    for number, found in enumerate(by_version(connection, series[:_MOST_SERIES], package)):
        if number:
            print()
        _print_title(found.series)
        for line in versions_table(found, package, _style()):
            print(line)


def _print_title(series: SeriesInfo) -> None:
    title = f"{series.model} {series.case}: {series.quantity}, {series.better} is better"
    for text in (title, series.machine):
        print(textwrap.fill(text, _style().width, break_on_hyphens=False))


def _write_data(
    connection: Connection, series: list[SeriesInfo], options: argparse.Namespace
) -> None:
    from pytest_mlms.show.report.history_tables import points_data, versions_data, write_rows

    if options.by:
        rows = versions_data(connection, series, options.by)
    else:
        rows = points_data(connection, series, options.last)
    write_rows(rows, options.format, sys.stdout)


def _style() -> Style:
    """Return the width of the terminal, and whether its encoding has more than ASCII."""
    from pytest_mlms.show.report.history_tables import Style

    return Style(output_width(), unicode=_has_unicode())


def _has_unicode() -> bool:
    return (sys.stdout.encoding or "ascii").lower().startswith("utf")


def add_control(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "control",
        parents=[common],
        help="add a model on a pinned stack to each run, so that a machine's own steps are seen",
    )
    parser.add_argument(
        "manifests",
        nargs="?",
        default=Path("manifests"),
        type=Path,
        metavar="DIR",
        help="folder of manifests (default: manifests)",
    )
    parser.add_argument(
        "--write", action="store_true", help="write its files; without it, tell how it is"
    )
    add_cache(parser)
    parser.set_defaults(run=_control)


def _control(options: argparse.Namespace) -> int:
    """Write a control, or tell of the one that is there; return 1 where there is none."""
    from pytest_mlms.core.errors import MlmsError
    from pytest_mlms.keep.history.control import control_files, write_control

    if not options.manifests.is_dir():
        raise MlmsError(f"there is no folder {options.manifests}; name your folder of manifests")
    control = control_files(options.manifests)
    if options.write:
        packages = write_control(control, options.cache, show_step)
        print(f"wrote {control.folder}, with its stack of {', '.join(packages)}")
        print(f"add it to your repository; pytest --mlms-manifests={options.manifests} runs it")
        return 0
    if not control.exists:
        print(f"{options.manifests} has no control; --write adds one in {control.folder}")
        return 1
    print(f"{control.manifest} is a control")
    _print_history(options.history)
    return 0


def _print_history(address: str) -> None:
    """Print the series of controls, with their changes."""
    from pytest_mlms.keep.history.changes import read_changes
    from pytest_mlms.keep.history.errors import HistoryError
    from pytest_mlms.keep.history.queries import point_counts, series_by_id, series_names
    from pytest_mlms.keep.history.store import open_to_read

    try:
        history = open_to_read(address)
    except HistoryError as error:  # there may be none yet
        print_error(error)
        return
    with history.connect() as connection:
        found = series_by_id(connection, series_names(connection, "latency_p50"))
        controls = [series for series in found if series.control]
        counts = point_counts(connection, [series.id for series in controls])
    for series in controls:
        print(f"measured {counts[series.id]:,} times on {series.machine}")
    if not controls:
        print("no run of it is in the history yet")
    for change in read_changes(history):
        if change.control and change.quantity == "latency_p50":
            print(f"  change {change.id}, {change.ratio - 1:+.1%} since run {change.first_run}")


def add_backfill(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "backfill",
        parents=[common],
        help="measure releases of a package that were never measured, the newest first",
    )
    parser.add_argument(
        "requirement", metavar="REQUIREMENT", help="a package and its versions: 'onnxruntime>=1.17'"
    )
    parser.add_argument(
        "manifests", nargs="+", type=Path, metavar="MANIFESTS", help="folder of manifests, or one"
    )
    add_expression(parser, "only these items, as for pytest")
    parser.add_argument("--last", type=positive, metavar="N", help="only the N newest releases")
    parser.add_argument("--pre", action="store_true", help="pre-releases, too")
    add_more_requirements(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be measured, and measure nothing"
    )
    add_session_arguments(parser)
    parser.set_defaults(run=_backfill)


def _backfill(options: argparse.Namespace) -> int:
    """Measure missing releases; return 1 where one could not be measured in full."""
    from pytest_mlms.core.errors import MlmsError
    from pytest_mlms.keep.history.backfill import BackfillOptions, measured_cases, plan_work
    from pytest_mlms.keep.history.store import open_history
    from pytest_mlms.provide.artifacts.package_index import pip_settings
    from pytest_mlms.provide.artifacts.transfer import DownloadError
    from pytest_mlms.provide.stacks.index import parse_requirement, releases_of

    for path in options.manifests:
        if not path.exists():
            raise MlmsError(f"there is no {path}; name a manifest, or a folder of them")
    requirement = parse_requirement(options.requirement)
    for text in options.more:
        parse_requirement(text)
    try:
        settings = pip_settings()
    except DownloadError as error:
        raise MlmsError(str(error)) from None
    releases = releases_of(requirement, settings, options.pre)[: options.last]
    history = open_history(options.history)
    with history.connect() as connection:
        measured = measured_cases(connection, requirement.name)
    work_options = BackfillOptions(
        child=child_options(options),
        manifests=tuple(options.manifests),
        expression=options.expression,
        more=tuple(options.more),
        history=options.history,
    )
    planned = plan_work(releases, work_options, measured)
    waiting = [work for work in planned if work.missing]
    _print_plan(planned, waiting)
    if options.dry_run:
        return 0
    return _measure_all(waiting, work_options)


def _print_plan(planned: Sequence[Work], waiting: Sequence[Work]) -> None:
    for work in planned:
        release = work.release
        size = format_quantity(release.size, "B") if release.size else "of unknown size"
        state = f"{_items(len(work.missing))} to measure, wheel {size}"
        if not work.missing:
            state = "in the history"
        elif work.present:
            state += f"; {len(work.present)} in the history"
        print(f"{release.package} {release.version}: {state}")
    total = sum(work.release.size for work in waiting)
    if total:
        count = f"{len(waiting)} releases" if len(waiting) > 1 else "1 release"
        print(f"{count}, wheels of {format_quantity(total, 'B')} and what they require")


def _measure_all(waiting: Sequence[Work], options: BackfillOptions) -> int:
    """Measure releases in turn; return 1 where one could not be measured in full."""
    from pytest_mlms.keep.history.backfill import measure_release

    failed = 0
    for number, work in enumerate(waiting, start=1):
        release = work.release
        show_step(f"{release.package} {release.version}, {number} of {len(waiting)}")
        outcome = measure_release(work, options, show_step)
        print(
            f"{release.package} {release.version}: {_items(outcome.measured)} measured", flush=True
        )
        if outcome.problem:
            failed += 1
            print(f"  {outcome.problem}", flush=True)
    return 1 if failed else 0


def _items(count: int) -> str:
    return "1 item" if count == 1 else f"{count} items"


def add_export(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command that writes a history as lines of JSON."""
    parser = commands.add_parser(
        "export", parents=[common], help="write all lines and changes as lines of JSON"
    )
    parser.add_argument(
        "file", nargs="?", default="-", metavar="FILE", help="default: -, the standard output"
    )
    parser.set_defaults(run=_export)


def add_rebuild(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command that makes the tables of a history anew."""
    parser = commands.add_parser(
        "rebuild",
        parents=[common],
        help="make a history anew from its own lines, folders of results, and exports",
    )
    parser.add_argument(
        "sources",
        nargs="*",
        type=Path,
        metavar="RESULTS",
        help="folder of runs, a run's folder, or an export",
    )
    parser.set_defaults(run=_rebuild)


def _export(options: argparse.Namespace) -> int:
    from pytest_mlms.keep.history.errors import HistoryError
    from pytest_mlms.keep.history.export import export_lines
    from pytest_mlms.keep.history.store import open_to_read

    if options.file != "-":
        check_output(Path(options.file), "FILE")
    with open_to_read(options.history).connect() as connection:
        lines = export_lines(connection)
        if options.file == "-":
            _write(lines, sys.stdout)
            return 0
        path = Path(options.file)
        try:
            with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
                _write(lines, file)
        except OSError as error:
            raise HistoryError(f"{path}: {error.strerror}; name another file") from None
    return 0


def _write(lines: Iterable[str], file: Any) -> None:
    for line in lines:
        file.write(f"{line}\n")


def _rebuild(options: argparse.Namespace) -> int:
    """Return 1 where something could not be taken over."""
    from pytest_mlms.keep.history.export import rebuild

    rebuilt = rebuild(options.history, options.sources)
    for problem in rebuilt.problems:
        print_error(problem)
    if rebuilt.lost_changes:
        print_error(f"{rebuilt.lost_changes:,} changes are of series that are no longer there")
    if rebuilt.aside:
        print(f"the damaged file is {rebuilt.aside} now")
    print(f"{_count(rebuilt.runs, 'run')}, {_count(rebuilt.points, 'point')}")
    return 1 if rebuilt.problems or rebuilt.lost_changes else 0


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


_SUBCOMMANDS = [
    add_add,
    add_show,
    add_changes,
    add_accept,
    add_control,
    add_backfill,
    add_export,
    add_rebuild,
]
"""Functions that add a subcommand, in the order of the help."""


def add_history(commands: Any) -> None:
    """Add the command to the parser's commands."""
    history = commands.add_parser("history", help="what was measured is kept and compared")
    subcommands = history.add_subparsers(required=True, metavar="COMMAND")
    common = _common_arguments()
    for add_subcommand in _SUBCOMMANDS:
        add_subcommand(subcommands, common)


def _common_arguments() -> argparse.ArgumentParser:
    """Return the parent of the subcommands' parsers, with what all of them take."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--history",
        metavar="FILE|URL",
        default=of_project(parser, "history", os.environ.get("MLMS_HISTORY") or DEFAULT_HISTORY),
        help=f"file, or postgresql+psycopg://… (default: $MLMS_HISTORY, or {DEFAULT_HISTORY})",
    )
    return parser
