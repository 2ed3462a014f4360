"""``mlms portal``: the web server of runs; ``mlms push``: runs that it gets from elsewhere."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_mlms.cli.arguments import add_results, of_project, positive, print_error
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.extras import install
from pytest_mlms.core.portal_address import read_token, read_url
from pytest_mlms.show.report.push import Portal, PushError
from pytest_mlms.show.report.run_folders import unmark, waiting_runs


def add_portal(commands: Any) -> None:
    """Add the command to the parser's commands."""
    portal = commands.add_parser("portal", help="show results and history to browsers")
    add_results(portal, "folder of runs (default: mlms-results)", "--results")
    portal.add_argument(
        "--history",
        default=of_project(portal, "history", None),
        metavar="FILE|URL",
        help="history of the runs (default: $MLMS_HISTORY, or history.sqlite of --results)",
    )
    portal.add_argument(
        "--listen",
        default="127.0.0.1:8765",
        metavar="HOST:PORT",
        help="address to listen on (default: 127.0.0.1:8765); others than loopback need a token",
    )
    portal.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="tokens that open the portal, one a line (default: $MLMS_PORTAL_TOKEN)",
    )
    portal.add_argument(
        "--url",
        action="append",
        default=[],
        metavar="URL",
        help="address that people use, where a proxy is in front; may be repeated",
    )
    portal.add_argument(
        "--allow-run",
        action="store_true",
        help="let people with a token start evaluations of --manifests",
    )
    portal.add_argument(
        "--allow-predict",
        action="store_true",
        help="let people use the models of --manifests; others than loopback need a token",
    )
    portal.add_argument(
        "--allow-create",
        action="store_true",
        help="make the stack of a prediction where it isn't there",
    )
    portal.add_argument(
        "--grpc",
        metavar="[HOST:]PORT",
        help="address of the Open Inference Protocol over gRPC (default: none)",
    )
    portal.add_argument("--manifests", type=Path, metavar="DIR", help="folder of their manifests")
    portal.add_argument(
        "--upload-limit",
        default="1 GiB",
        metavar="SIZE",
        help="largest packed run to take; unpacked, eight times that (default: 1 GiB)",
    )
    portal.add_argument(
        "--timeout",
        type=positive,
        default=30,
        metavar="SECONDS",
        help="longest silence of a client amid a request (default: 30)",
    )
    portal.set_defaults(run=_portal)


def _portal(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM."""
    try:
        from pytest_mlms.show.portal.server import serve
        from pytest_mlms.show.portal.settings import read_settings
    except ImportError as error:
        raise MlmsError(f"mlms portal needs {error.name}; {install('portal')}") from None
    serve(read_settings(options))
    return 0


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
