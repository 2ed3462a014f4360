"""The ``mlms`` command: what can be done with manifests without running them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest_mlms
from pytest_mlms.errors import ArtifactError, ManifestError, MlmsError
from pytest_mlms.manifest import Manifest, load
from pytest_mlms.provision.artifacts import check_local
from pytest_mlms.provision.predictors import find_predictors

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 where there are faults, or 2 where it was called wrongly."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except MlmsError as error:
        print(f"mlms: {error}", file=sys.stderr)
        status = 2
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mlms", description="Check manifests of pytest-mlms without running them.")
    parser.add_argument("--version", action="version", version=f"pytest-mlms {pytest_mlms.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    schema = commands.add_parser("schema", help="print the JSON Schema of a manifest, for editors")
    schema.set_defaults(run=_schema)
    lint = commands.add_parser("lint", help="check manifests and the local files that they name")
    lint.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a manifest, or a folder of them")
    lint.add_argument("--mlms-predictors", action="append", default=[], type=Path, metavar="DIR", dest="predictors")
    lint.set_defaults(run=_lint)
    return parser


def _schema(options: argparse.Namespace) -> int:
    schema = Manifest.model_json_schema()
    print(json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2))
    return 0


def _lint(options: argparse.Namespace) -> int:
    frameworks = find_predictors(options.predictors)
    checked = faulty = 0
    for path in _manifests(options.paths):
        checked += 1
        try:
            faults = [str(fault) for fault in check_local(load(path, frameworks))]
        except (ManifestError, ArtifactError) as error:
            faults = [str(error)]
        for fault in faults:
            print(fault)
        faulty += bool(faults)
    print(f"{checked} manifest{'s' * (checked != 1)}, {faulty} with faults", file=sys.stderr)
    return 1 if faulty else 0


def _manifests(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            found = sorted(file for file in path.rglob("*") if file.suffix in (".yaml", ".yml"))
            if not found:
                raise MlmsError(f"{path} has no .yaml file; name a manifest or a folder of them")
            yield from found
        elif path.exists():
            yield path
        else:
            raise MlmsError(f"there is no {path}; name a manifest or a folder of them")
