"""``mlms history``: its subcommands, each in a file of its own.

Those files import what needs the extra ``history`` inside functions: the help must do without it.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from pytest_mlms.cli.arguments import DEFAULT_HISTORY, of_project
from pytest_mlms.cli.history_add import add_add
from pytest_mlms.cli.history_backfill import add_backfill
from pytest_mlms.cli.history_changes import add_accept, add_changes
from pytest_mlms.cli.history_control import add_control
from pytest_mlms.cli.history_export import add_export, add_rebuild
from pytest_mlms.cli.history_show import add_show

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
