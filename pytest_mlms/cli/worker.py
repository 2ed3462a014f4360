"""``mlms worker``: hosts before they are workers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pytest_mlms.errors import MlmsError

__all__ = ["add_worker"]


def add_worker(commands: Any) -> None:
    """Add the command to the parser of ``mlms``."""
    worker = commands.add_parser(
        "worker", help="make hosts ready to run items over ssh, or see whether they are"
    )
    actions = worker.add_subparsers(required=True, metavar="ACTION")
    install = actions.add_parser(
        "install", help="put this version on hosts, which need an interpreter and ssh only"
    )
    more = "another package for it, such as onnxruntime; may be repeated"
    install.add_argument(
        "--with", action="append", default=[], metavar="REQUIREMENT", dest="more", help=more
    )
    check = actions.add_parser("check", help="see whether hosts have this version")
    for action, run in ((install, _install), (check, _check)):
        action.add_argument("hosts", nargs="+", metavar="HOST", help="as ssh knows it")
        action.add_argument(
            "--python",
            default="python3",
            metavar="PATH",
            help="the hosts' interpreter, 3.10 or later",
        )
        action.add_argument("--ssh-config", metavar="FILE", help="instead of ~/.ssh/config")
        action.set_defaults(run=run)


def _install(options: argparse.Namespace) -> int:
    from pytest_mlms.distribute.remote.install import install

    return _each(options, lambda ssh: install(ssh, options.more))


def _check(options: argparse.Namespace) -> int:
    from pytest_mlms.distribute.remote.install import check

    return _each(options, check)


def _each(options: argparse.Namespace, action: Callable[[Any], str]) -> int:
    """Do it on all hosts at once; print a line for each; return 1 where one failed."""
    from pytest_mlms.distribute.remote.install import Ssh

    def on(host: str) -> tuple[str, bool]:
        try:
            return action(Ssh(host, options.python, options.ssh_config)), True
        except MlmsError as error:
            return str(error), False

    failed = False
    with ThreadPoolExecutor(max_workers=16) as pool:
        for text, passed in pool.map(on, options.hosts):
            print(text, file=sys.stdout if passed else sys.stderr)
            failed |= not passed
    return 1 if failed else 0
