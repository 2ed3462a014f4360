"""The ``mlms`` command: what can be done with manifests and stacks without running them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest_mlms
from pytest_mlms.agent.registry import find_predictors
from pytest_mlms.artifacts.fetch import check_local
from pytest_mlms.cli.describe import add_describe
from pytest_mlms.cli.judge import add_judge
from pytest_mlms.cli.stack import add_stack_commands
from pytest_mlms.cli.trace import add_trace_commands
from pytest_mlms.cli.worker import add_worker
from pytest_mlms.errors import MlmsError
from pytest_mlms.manifest import Manifest, find_manifests, load
from pytest_mlms.stacks.declared import check_framework
from pytest_mlms.stacks.schema import STACK_FILES, load_stacks

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 where there are faults, or 2 where it was called wrongly."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except MlmsError as error:
        print(f"mlms: {error}", file=sys.stderr)
        status = 2
    except (
        BrokenPipeError
    ):  # head has seen enough; without this, Python complains of it once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mlms", description="Check manifests, describe models, ask traces."
    )
    parser.add_argument(
        "--version", action="version", version=f"pytest-mlms {pytest_mlms.__version__}"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    schema = commands.add_parser("schema", help="print the JSON Schema of a manifest, for editors")
    schema.set_defaults(run=_schema)
    lint = commands.add_parser("lint", help="check manifests and the local files that they name")
    lint.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="a manifest, or a folder of them"
    )
    more = "folder of more predictors; may be repeated"
    lint.add_argument(
        "--mlms-predictors",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        dest="predictors",
        help=more,
    )
    lint.set_defaults(run=_lint)
    add_describe(commands)
    add_judge(commands)
    add_worker(commands)
    add_stack_commands(commands)
    add_trace_commands(commands)
    return parser


def _schema(options: argparse.Namespace) -> int:
    schema = Manifest.model_json_schema()
    print(
        json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2)
    )
    return 0


def _lint(options: argparse.Namespace) -> int:
    frameworks = find_predictors(options.predictors)
    checked = faulty = 0
    for path in find_manifests(options.paths):
        checked += path.name not in STACK_FILES
        faults = list(_faults(path, frameworks))
        for fault in faults:
            print(fault)
        faulty += bool(faults)
    print(f"{checked} manifest{'s' * (checked != 1)}, {faulty} with faults", file=sys.stderr)
    return 1 if faulty else 0


def _faults(path: Path, frameworks: Collection[str]) -> Iterator[str]:
    try:
        if path.name in STACK_FILES:
            for stack in load_stacks(path).values():
                check_framework(stack, frameworks)
        else:
            yield from map(str, check_local(load(path, frameworks)))
    except MlmsError as error:
        yield str(error)
