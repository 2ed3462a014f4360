"""``mlms portal``: the web server of results and history."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pytest_mlms.cli.arguments import add_results, of_project, positive
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.extras import install


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
