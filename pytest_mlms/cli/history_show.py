"""``mlms history show``: series, the points of one, and versions of a package."""

from __future__ import annotations

import argparse
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from pytest_mlms.cli.arguments import add_expression, output_width, positive

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from pytest_mlms.keep.history.queries import SeriesInfo
    from pytest_mlms.show.report.history_tables import Style

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
