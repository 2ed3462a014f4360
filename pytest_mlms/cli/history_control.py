"""``mlms history control``: the control item of a host."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pytest_mlms.cli.arguments import add_cache, print_error, show_step


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
