"""``mlms lint``: the errors in manifests and their local files, without running anything."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pytest_mlms.author.loading import load_manifest
from pytest_mlms.cli.arguments import add_cache, add_predictors
from pytest_mlms.cli.lint_checks import check_dataset, check_models
from pytest_mlms.cli.lint_fix import fix_digests
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.extras import install
from pytest_mlms.core.records import Artifact
from pytest_mlms.core.redaction import redact
from pytest_mlms.core.text import visible
from pytest_mlms.manifest import LoadedManifest, find_manifests
from pytest_mlms.manifest.reading import shown
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.project import find_project
from pytest_mlms.provide.artifacts.fetch import check_local, fetch_unpinned
from pytest_mlms.provide.stacks.declared import check_framework, stack_files
from pytest_mlms.provide.stacks.schema import STACK_FILES, load_stacks


def add_lint(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("lint", help="check manifests and the local files that they name")
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="a manifest, or a folder of them"
    )
    parser.add_argument(
        "--fix",
        action="store_true",
        help="write the sha256 of files that a manifest lacks; nothing else is changed",
    )
    parser.add_argument(
        "--fetch",
        action="store_true",
        help="with --fix: also fetch remote files whose sha256 is missing, and trust them",
    )
    add_predictors(parser)
    add_cache(parser)
    parser.set_defaults(run=_lint)


def _lint(options: argparse.Namespace) -> int:
    """Print the errors of each file, first mended if asked; return 1 where there are any."""
    if options.fetch and not options.fix:
        raise MlmsError("--fetch does nothing without --fix; add --fix")
    frameworks = find_predictors(options.predictors)
    manifests = 0
    files_with_errors = 0
    for path in _files(options.paths):
        if path.name in (*STACK_FILES, "pyproject.toml"):
            errors = _errors_of_stacks(path, frameworks)
        else:
            if options.fix:
                fetch = partial(_fetch, options.cache) if options.fetch else None
                for line in fix_digests(path, fetch):
                    print(visible(line))
            errors = _errors_of_manifest(path, frameworks, options.cache)
            manifests += 1
        for error in errors:
            print(error)
        if errors:
            files_with_errors += 1
    plural = "" if manifests == 1 else "s"
    print(f"{manifests} manifest{plural}, {files_with_errors} with errors", file=sys.stderr)
    return 1 if files_with_errors else 0


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the manifests, and the files in which pytest looks for stacks when it has these paths.

    Raises MlmsError where there are none.
    """
    found = set()
    for path in find_manifests(paths):
        found.add(path.resolve())
        yield path
    project = find_project(paths)
    places = [path.absolute() for path in paths]
    for path in stack_files(project.root, places, project.norecursedirs):
        if path.resolve() not in found:
            near = Path(os.path.relpath(path))
            yield path if ".." in near.parts else near


def _fetch(cache: Path, artifact: Artifact) -> str:
    """Download a file, and say so; return its digest."""
    print(f"fetching {redact(artifact.source)}", file=sys.stderr)
    return fetch_unpinned(artifact, cache)


def _errors_of_stacks(path: Path, frameworks: Collection[str]) -> list[MlmsError]:
    try:
        for stack in load_stacks(path).values():
            check_framework(stack, frameworks)
    except MlmsError as error:
        return [error]
    return []


def _errors_of_manifest(path: Path, frameworks: Collection[str], cache: Path) -> list[MlmsError]:
    try:
        loaded = load_manifest(path, frameworks)
    except MlmsError as error:
        return [error]
    errors: list[MlmsError] = list(check_local(loaded))
    if errors:
        return errors
    return [
        *_errors_of_models(loaded),
        *_errors_of_dataset(loaded, cache),
        *_errors_of_arrivals(loaded),
    ]


def _errors_of_models(loaded: LoadedManifest) -> list[MlmsError]:
    try:
        return list(check_models(loaded))
    except ImportError:
        advice = f"{install('onnx')} to compare them with their manifests"
        print(f"ONNX files were not read; {advice}", file=sys.stderr)
        return []


def _errors_of_arrivals(loaded: LoadedManifest) -> Iterator[MlmsError]:
    from pytest_mlms.measure.load.arrivals import read_arrivals

    for artifact in loaded.arrivals_files.values():
        try:
            read_arrivals(shown(Path(artifact.source)))
        except MlmsError as error:
            yield error


def _errors_of_dataset(loaded: LoadedManifest, cache: Path) -> list[MlmsError]:
    try:
        return list(check_dataset(loaded, cache))
    except MlmsError as error:  # a library is missing
        place = loaded.place("dataset", "source")
        print(f"{place}: the dataset's elements were not read; {error}", file=sys.stderr)
        return []
