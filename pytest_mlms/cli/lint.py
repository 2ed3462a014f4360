"""``mlms lint``: the errors in manifests and their local files, without running anything.

``--fix`` writes the digests that a manifest lacks, and changes nothing else in it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pytest_mlms.author.loading import load_manifest
from pytest_mlms.cli.arguments import add_cache, add_predictors
from pytest_mlms.cli.lint_checks import check_dataset, check_models
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.extras import install
from pytest_mlms.core.files import replacing
from pytest_mlms.core.records import Artifact, Place
from pytest_mlms.core.text import redact, visible
from pytest_mlms.manifest import LoadedManifest, find_manifests
from pytest_mlms.manifest.digests import (
    CannotEdit,
    MissingDigest,
    digest_text,
    local_file,
    missing_digests,
)
from pytest_mlms.manifest.load import read
from pytest_mlms.manifest.reading import shown
from pytest_mlms.manifest.sources import is_remote, split_source
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.project import find_project
from pytest_mlms.provide.artifacts.digest import POINTER_ADVICE, digest_of, is_pointer_file
from pytest_mlms.provide.artifacts.fetch import check_local, fetch_unpinned
from pytest_mlms.provide.stacks.declared import check_framework, stack_files
from pytest_mlms.provide.stacks.schema import STACK_FILES, load_stacks

Fetch = Callable[[Artifact], str]
"""Downloads a file and returns its digest; raises MlmsError."""

_SHOWN = 12  # characters of a digest
_BYTE_ORDER_MARK = "\ufeff"


class _NotFound(Exception):
    """The digest of a file can't be found; the text says why, and what to do."""


def fix_digests(path: Path, fetch: Fetch | None = None) -> Iterator[str]:
    """Write the digests that a manifest lacks; yield a line for each, and for each that is left.

    ``fetch`` returns the digest of a remote file; without it, those are left. Digests that are
    there stay, also those of files that have changed since. The manifest is written once, whole or
    not at all. Raises MlmsError where that fails.
    """
    document = read(path)
    if document.errors:
        return  # mlms lint shows them
    original = path.read_bytes().decode()
    mark = _BYTE_ORDER_MARK if original.startswith(_BYTE_ORDER_MARK) else ""
    text = original.removeprefix(mark)
    lines = []
    for missing in missing_digests(document.value):
        place = Place(shown(path), document.line(missing.path))
        try:
            text, line = _fixed(text, missing, _Finder(path.parent, place, fetch))
        except _NotFound as error:
            line = str(error)
        lines.append(f"{place}: {line}")
    if mark + text != original:
        _write(path, mark + text)
    yield from lines


def _fixed(text: str, missing: MissingDigest, finder: _Finder) -> tuple[str, str]:
    """Return the text with the digests of one mapping, and a line that says so."""
    digests = missing.known()
    wrote = []
    for role, source in missing.sources.items():
        if role not in digests:
            digests[role] = finder.digest_of(source)
            wrote.append(f"{source} ({digests[role][:_SHOWN]}…)")
    names = ", ".join(wrote)
    try:
        return missing.write(text, digests), f"wrote the sha256 of {names}"
    except CannotEdit:
        line = f"sha256: {digest_text(digests)}"
        raise _NotFound(f"is not written in a form that is edited here; add '{line}'") from None


@dataclass(frozen=True)
class _Finder:
    """The finder of the digests of the files that a line of a manifest in ``folder`` names."""

    folder: Path
    place: Place
    fetch: Fetch | None

    def digest_of(self, source: str) -> str:
        """Return the digest of a file; raises _NotFound."""
        if is_remote(source):
            if self.fetch is None:
                raise _NotFound(
                    f"{source} is not fetched; --fetch does that, and writes its sha256"
                )
            location, _ = split_source(source)
            try:
                return self.fetch(Artifact(location, None, self.place))
            except MlmsError as error:
                text = str(error).removeprefix(f"{self.place}: ")
                raise _NotFound(text) from error
        path = local_file(source, self.folder)
        if path is None:
            missing = self.folder / source
            problem = "is a folder, not a file" if missing.is_dir() else "does not exist"
            raise _NotFound(f"{missing} {problem}; correct the path, or put the file there")
        try:
            if is_pointer_file(path):
                raise _NotFound(f"{source} is {POINTER_ADVICE}")
            return digest_of(path)
        except OSError as error:
            problem = f"{source} can't be read: {error.strerror}"
            raise _NotFound(f"{problem}; grant access to it") from None


def _write(path: Path, text: str) -> None:
    """Replace the content of a manifest, which may be a link; its permissions stay."""
    target = path.resolve()
    try:
        with replacing(target) as temporary:
            temporary.write_bytes(text.encode())
            shutil.copymode(target, temporary)
    except OSError as error:
        problem = f"{path} can't be written: {error.strerror}"
        raise MlmsError(f"{problem}; make room or grant access to its folder") from error


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
