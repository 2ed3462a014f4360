"""``mlms history backfill``: releases that were never measured, each in its own stack."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_mlms.cli.arguments import (
    add_expression,
    add_more_requirements,
    add_session_arguments,
    child_options,
    positive,
    show_step,
)
from pytest_mlms.core.units import format_quantity

if TYPE_CHECKING:
    from pytest_mlms.keep.history.backfill import BackfillOptions, Work


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
