"""The ``mlms`` command: its parser, and the exit status of its subcommands."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence

import pytest_mlms
from pytest_mlms.cli.describe import add_describe
from pytest_mlms.cli.judge import add_judge
from pytest_mlms.cli.lint import add_lint
from pytest_mlms.cli.schema import add_schema
from pytest_mlms.cli.stack import add_stack_commands
from pytest_mlms.cli.trace import add_trace_commands
from pytest_mlms.cli.worker import add_worker
from pytest_mlms.errors import MlmsError

__all__ = ["main"]

_SUBCOMMANDS = (
    add_schema,
    add_lint,
    add_describe,
    add_judge,
    add_worker,
    add_stack_commands,
    add_trace_commands,
)
"""The functions that add subcommands, one file each, in the order of the help."""

_COMPLETION = "_ARGCOMPLETE"
"""The variable that is set where the shell asks for completions."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns 0, or 1 where it found errors, or 2 where it was called wrongly.
    """
    parser = _parser()
    if _COMPLETION in os.environ:
        _complete(parser)
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except MlmsError as error:
        print(f"mlms: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as head, has ended
        _discard_output()
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mlms", description="Check manifests, describe models, ask traces."
    )
    version = f"pytest-mlms {pytest_mlms.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in _SUBCOMMANDS:
        add(commands)
    return parser


def _complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell, which asks for the words that may come next, and end.

    Does nothing without the package argcomplete.
    """
    with contextlib.suppress(ImportError):
        import argcomplete

        argcomplete.autocomplete(parser)


def _discard_output() -> None:
    """Redirect the rest of the output, which Python would complain about at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
