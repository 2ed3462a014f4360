"""``mlms history changes --confirm``: suspicions are confirmed by the gate, or dismissed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_mlms.cli.arguments import (
    add_allow_code,
    add_cache,
    add_predictors,
    add_results,
    add_trust,
    positive,
    print_error,
    show_step,
)

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from pytest_mlms.keep.history.changes import Change
    from pytest_mlms.keep.history.child_session import ChildOptions


def add_confirm_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --confirm and what it takes."""
    parser.add_argument(
        "--confirm",
        action="store_true",
        help="make the stacks on both sides of each open change again, and judge them in turns",
    )
    parser.add_argument(
        "--limit", type=positive, metavar="N", help="confirm the first N changes only"
    )
    add_session_arguments(parser)
    add_trust(parser)


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what a command takes that runs pytest."""
    add_results(parser, "folder that each run adds a folder of results to (default: mlms-results)")
    add_predictors(parser)
    add_cache(parser)
    add_allow_code(parser)
    parser.add_argument(
        "--mlms-env-passthrough",
        action="append",
        default=[],
        metavar="NAME",
        dest="env_passthrough",
        help="variable that agents get, too; may be repeated",
    )


def child_options(options: argparse.Namespace) -> ChildOptions:
    """Return the options of the sessions that a command runs."""
    from pytest_mlms.keep.history.child_session import ChildOptions

    return ChildOptions(
        results=options.results,
        cache=options.cache,
        predictors=tuple(options.predictors),
        allow_code=options.allow_code,
        env_passthrough=tuple(options.env_passthrough),
    )


def confirm_changes(
    history: Engine, changes: Sequence[Change], options: argparse.Namespace
) -> None:
    """Confirm those of the changes that are open; tell on standard error what became of each.

    The changes of a host's control item are left out: they are what others are compared with.
    """
    from pytest_mlms.keep.history.confirmation import confirm

    waiting = [change for change in changes if change.status == "open" and not change.control]
    chosen = waiting[: options.limit]
    if not chosen:
        print_error("no open change to confirm")
        return
    print_error(f"confirming {len(chosen)} of {len(waiting)} open changes")
    children = child_options(options)
    for finding in confirm(history, chosen, children, show_step, options.trusted):
        cause = finding.cause or "still open"
        change = finding.change
        model = change.parts["manifest"]
        name = f"change {change.id} ({model}, {change.quantity} ×{change.ratio:.3f})"
        print_error(f"{name}: {cause}: {finding.reason}")
