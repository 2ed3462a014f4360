"""``mlms push``: runs pushed to a portal that could not be, or that are named."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_mlms.cli.arguments import add_results, print_error
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.portal_address import read_token, read_url
from pytest_mlms.show.report.push import Portal, PushError
from pytest_mlms.show.report.run_folders import unmark, waiting_runs

_URL_VARIABLE = "MLMS_PUSH"


def add_push(commands: Any) -> None:
    """Add the command to the parser's commands."""
    push = commands.add_parser("push", help="push runs to a portal")
    push.add_argument(
        "runs",
        nargs="*",
        type=Path,
        metavar="RUN",
        help="folder of a run (default: those that --mlms-push could not push)",
    )
    push.add_argument(
        "--url",
        default=os.environ.get(_URL_VARIABLE),
        metavar="URL",
        help=f"the portal (default: ${_URL_VARIABLE})",
    )
    add_results(push, "folder whose runs wait (default: mlms-results)", "--results")
    push.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="file with the portal's token (default: $MLMS_PUSH_TOKEN)",
    )
    push.set_defaults(run=_push)


def _push(options: argparse.Namespace) -> int:
    """Push the runs; return 1 where one of them could not be."""
    if not options.url:
        raise MlmsError(f"mlms push: name the portal with --url or {_URL_VARIABLE}")
    portal = Portal(read_url(options.url), read_token(options.token_file))
    if portal.warning:
        print_error(portal.warning)
    status = 0
    runs = list(_runs(options))
    for run in runs:
        try:
            print(f"{run.name}: {portal.push(run)}", flush=True)
        except PushError as error:
            print_error(f"{run.name}: {error}")
            status = 1
            continue
        unmark(run)
    if not runs:
        print(f"no run of {options.results} waits")
    return status


def _runs(options: argparse.Namespace) -> Iterator[Path]:
    """Yield the folders of the runs; raises MlmsError for another path."""
    for run in options.runs:
        if not (run / "results.jsonl").is_file():
            raise MlmsError(f"{run}: it has no results.jsonl; name the folder of a run")
        yield run.resolve()
    if not options.runs:
        yield from waiting_runs(options.results)
