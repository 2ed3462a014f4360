"""``mlms worker``: preparation of hosts that run items over ssh."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pytest_mlms.core.errors import MlmsError

_AT_ONCE = 16  # hosts


def add_worker(commands: Any) -> None:
    """Add the command to the parser of ``mlms``."""
    worker = commands.add_parser(
        "worker", help="make hosts ready to run items over ssh, or see whether they are"
    )
    actions = worker.add_subparsers(required=True, metavar="ACTION")
    install = actions.add_parser(
        "install", help="put this version on hosts, which need an interpreter and ssh only"
    )
    install.add_argument(
        "--with",
        action="append",
        default=[],
        metavar="REQUIREMENT",
        dest="requirements",
        help="another package for it, such as onnxruntime; may be repeated",
    )
    install.set_defaults(run=_install)
    _add_hosts(install)
    check = actions.add_parser("check", help="see whether hosts have this version")
    check.set_defaults(run=_check)
    _add_hosts(check)


def _add_hosts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("hosts", nargs="+", metavar="HOST", help="as ssh knows it")
    parser.add_argument(
        "--python",
        default="python3",
        metavar="PATH",
        help="the hosts' interpreter, 3.10 or later",
    )
    parser.add_argument("--ssh-config", metavar="FILE", help="instead of ~/.ssh/config")


def _install(options: argparse.Namespace) -> int:
    from pytest_mlms.distribute.remote.install import install

    return _run_on_all(options, lambda host: install(host, options.requirements))


def _check(options: argparse.Namespace) -> int:
    from pytest_mlms.distribute.remote.install import check

    return _run_on_all(options, check)


def _run_on_all(options: argparse.Namespace, action: Callable[[Any], str]) -> int:
    """Run an action on all hosts at once, and print a line for each; return 1 where one failed."""
    from pytest_mlms.distribute.remote.ssh import SshHost

    def run(name: str) -> tuple[str, MlmsError | None]:
        try:
            return action(SshHost(name, options.python, options.ssh_config)), None
        except MlmsError as error:
            return "", error

    status = 0
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        for message, error in pool.map(run, options.hosts):
            if error is None:
                print(message)
            else:
                print(error, file=sys.stderr)
                status = 1
    return status
