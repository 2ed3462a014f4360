"""The commands ``mlms analyze`` and ``mlms export``, which query the traces of a run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from pytest_mlms.cli.arguments import add_top
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.trace.exporters import EXPORTERS, Exporter
from pytest_mlms.measure.trace.storage import load_trace
from pytest_mlms.show.report.trace_query import (
    FORMATS,
    contexts_of,
    find_analysis,
    layer_times,
    list_analyses,
    missing_levels,
    reasons,
    render,
    traces_of,
)


def add_analyze(commands: Any) -> None:
    """Add the command to the parser's commands."""
    analyses = "\n".join(f"  {line}" for line in list_analyses())
    parser = commands.add_parser(
        "analyze",
        help="ask a run's traces",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"kinds of analysis, with XSP's number and the levels to trace:\n{analyses}",
    )
    _add_run(parser)
    parser.add_argument(
        "--kind", required=True, metavar="KIND", help="one of those below, by name or number"
    )
    parser.add_argument("--format", choices=FORMATS, default="table")
    parser.add_argument(
        "-k",
        dest="chosen",
        default="",
        metavar="TEXT",
        help="only traces with this text in model or case",
    )
    add_top(parser, "only the N largest rows of each trace, such as its N slowest layers")
    parser.set_defaults(run=_analyze)


def add_export(commands: Any) -> None:
    """Add the command to the parser's commands."""
    formats = ", ".join(f"{name}: {exporter.DESCRIPTION}" for name, exporter in EXPORTERS.items())
    parser = commands.add_parser("export", help="write a run's traces for other tools")
    _add_run(parser)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the files go")
    parser.add_argument(
        "--format", choices=list(EXPORTERS), default="otlp", help=f"{formats}; default: otlp"
    )
    parser.set_defaults(run=_export)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="RUN", help="folder of a run, or a trace.npz")


def _analyze(options: argparse.Namespace) -> int:
    analysis = find_analysis(options.kind)
    contexts = contexts_of(options.path, options.chosen)
    table = analysis.table(contexts)
    if options.top:
        table = analysis.top(table, options.top)
    print(render(table, options.format))
    notes = missing_levels(analysis, contexts) + layer_times(analysis, contexts)
    if not table.rows and not notes:
        notes = reasons(contexts)
    for note in notes:
        print(note, file=sys.stderr)
    return 0


def _export(options: argparse.Namespace) -> int:
    exporter = EXPORTERS[options.format]
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MlmsError(
            f"{options.folder} can't be a folder: {error.strerror}; name another"
        ) from error
    for path in traces_of(options.path):
        _export_one(path, options.folder, exporter)
    return 0


def _export_one(path: Path, folder: Path, exporter: Exporter) -> None:
    name = path.parent.name
    target = folder / f"{name}{exporter.SUFFIX}"
    try:
        count = exporter.export(load_trace(path), target, name)
    except OSError as error:
        raise MlmsError(
            f"{target} can't be written: {error.strerror}; make room, or name another folder"
        ) from error
    print(f"{target}: {count:,} spans")
