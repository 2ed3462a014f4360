"""``mlms library``: the shared library by which programs in C and Java use a model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from pytest_mlms.core.text import visible
from pytest_mlms.predict.library.build import build_library


def add_library(commands: Any) -> None:
    """Add the command with its action."""
    group = commands.add_parser("library", help="compile a library for programs in C and Java")
    actions = group.add_subparsers(required=True, metavar="ACTION")
    build = actions.add_parser("build", help="write libmlms.so, of this environment, and mlms.h")
    build.add_argument(
        "--output",
        type=Path,
        default=Path("build"),
        metavar="DIR",
        help="folder for both (default: build)",
    )
    build.set_defaults(run=_build)


def _build(options: argparse.Namespace) -> int:
    library, header = build_library(options.output)
    print(visible(f"{library} uses the environment of {sys.executable}; its header is {header}"))
    return 0
