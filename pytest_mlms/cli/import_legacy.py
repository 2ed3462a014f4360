"""``mlms import``: native manifests from MLModelScope's, without fetching or running."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_mlms.author.legacy.digests import KnownDigests
from pytest_mlms.author.legacy.importing import (
    Imported,
    Original,
    find_originals,
    import_original,
    table_lines,
)
from pytest_mlms.author.legacy.outside_dataset import OutsideDataset
from pytest_mlms.cli.arguments import add_predictors
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.text import visible
from pytest_mlms.manifest.load import shown
from pytest_mlms.measure.agent.registry import find_predictors

_CONTAINERS = (
    "images of containers of 2017 to 2021, most of them swapped; declare a stack instead "
    "(docs/stacks.md)"
)


def add_import(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "import", help="write native manifests from those of MLModelScope, CarML or MLHarness"
    )
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="a manifest, or a folder of them"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("imported"),
        metavar="DIR",
        help="folder for the native manifests, in the folders of the originals (default: imported)",
    )
    parser.add_argument(
        "--dataset",
        action="append",
        default=[],
        type=_dataset,
        metavar="NAME=FILE",
        dest="datasets",
        help="labelled inputs for manifests whose training_dataset is NAME; may be repeated",
    )
    parser.add_argument("--force", action="store_true", help="replace manifests that are there")
    add_predictors(parser)
    parser.set_defaults(run=_import)


def _dataset(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not (name.strip() and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE")
    return name, Path(path)


def _import(options: argparse.Namespace) -> int:
    """Write the manifests and print a table; return 1 where some were refused."""
    originals = list(find_originals(options.paths, options.out))
    _check_targets(originals, options.force)
    datasets = [OutsideDataset.of(name, path) for name, path in options.datasets]
    frameworks = find_predictors(options.predictors)
    outcomes = []
    digests = KnownDigests()
    others = 0
    for original in originals:
        outcome = import_original(original, datasets, frameworks)
        if outcome is None:
            others += 1
            continue
        outcomes.append(outcome)
        conflicts = digests.add(original.path, outcome.digests)
        if outcome.problem:
            print(visible(outcome.problem), file=sys.stderr)
        for note in dict.fromkeys([*outcome.notes, *conflicts]):
            warning = f"{shown(original.path)}:{note.line}: warning: {note.text}"
            print(visible(warning), file=sys.stderr)
    return _conclude(options, outcomes, others)


def _check_targets(originals: Sequence[Original], replaces: bool) -> None:
    """Raise MlmsError where a manifest would be written over another file."""
    sources: dict[Path, Path] = {}
    for original in originals:
        first = sources.setdefault(original.target, original.path)
        if first != original.path:
            problem = f"{first} and {original.path} would both become {original.target}"
            raise MlmsError(f"{problem}; import them with another --out each")
        if original.target.exists() and not replaces:
            advice = "--force replaces what is there, --out DIR writes elsewhere"
            raise MlmsError(f"{original.target} is there already; {advice}")
        if original.target.resolve() == original.path.resolve():
            raise MlmsError(f"{original.path} would be replaced; name another folder with --out")


def _conclude(options: argparse.Namespace, outcomes: Sequence[Imported], others: int) -> int:
    """Print a summary; return the exit status."""
    containers = sum(outcome.has_container for outcome in outcomes)
    if containers:
        name = "manifest names" if containers == 1 else "manifests name"
        print(f"warning: {containers} {name} {_CONTAINERS}", file=sys.stderr)
    if others:
        were = "file was" if others == 1 else "files were"
        print(f"{others} other YAML {were} left alone", file=sys.stderr)
    if not outcomes:
        names = ", ".join(str(path) for path in options.paths)
        advice = "name files that begin with 'name: …' and have 'framework: …'"
        raise MlmsError(f"{names}: no manifest of MLModelScope is there; {advice}")
    for line in table_lines(outcomes):
        print(visible(line))
    written = sum(not outcome.kind for outcome in outcomes)
    print(f"wrote {written} of {len(outcomes)} manifests below {options.out}", file=sys.stderr)
    return 0 if written == len(outcomes) else 1
